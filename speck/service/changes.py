"""Running changes: started, waited for, cancelled, remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from speck.change import Change, ChangeState, OperationState
from speck.clock import Clock, rfc3339
from speck.connections import Connections
from speck.errors import ConflictError, NotFoundError, SpeckError, TransientError
from speck.executor import Bounds, Execution
from speck.model import JsonObject, Site
from speck.operations import Operations, Patience
from speck.plan import Forget, Plan, Start, TryMain
from speck.records import Batch, Records, scope_of
from speck.turns import Turns


@dataclass(slots=True)
class Running:
    """A change under way; `over` is set when its outcome is stored."""

    execution: Execution
    scope: str
    over: threading.Event = field(default_factory=threading.Event)

    @property
    def change(self) -> Change:
        return self.execution.change

    @property
    def failure(self) -> SpeckError | None:
        return self.execution.failure


class Changes:
    """All changes: those of this process while they run, all others from the store."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        clock: Clock,
        jar_file: Callable[[str], Path],
        bounds: Bounds,
        patience: Patience,
    ):
        self._records = records
        self._connections = connections
        self._clock = clock
        self._jar_file = jar_file
        self._bounds = bounds
        self._patience = patience
        self._lock = threading.Lock()
        self._running: dict[str, Running] = {}
        self._turns = Turns(bounds.per_site)
        self.placing = threading.Lock()
        """Held while a change takes sites into use, or a site is given up."""
        self.closing = False
        """Whether the service is stopping: nothing new starts."""
        self.touched = float("-inf")
        """When (monotonic) a change last did something: looks from before are out of date."""

    def new(self, plan: Plan, revision: int | None, job_name: str | None = None) -> Change:
        """A change that is not started; its id begins with its time, so ids sort."""
        now = self._clock.now()
        identity = f"{int(now.timestamp() * 1000):012x}{self._clock.new_id()[:8]}"
        return Change(identity, plan, revision, rfc3339(now), job_name)

    def start(
        self,
        change: Change,
        accepted: Batch,
        at_end: Callable[[Change], Batch],
        sites: Mapping[str, Site],
    ) -> Running:
        """Store the change with `accepted` in one write, then run it in its own thread.

        `at_end` gives what to store together with its outcome; `sites` are those registered
        when the plan was made. Raises ConflictError when the scope has a change under way or a
        site of the plan is another by now, TransientError once the service is stopping.
        """
        scope = scope_of(change.composition, change.job_name)
        operations = Operations(
            self._connections, self._records, self._clock, scope, self._jar_file, self._patience
        )
        running = Running(
            Execution(
                change,
                operations,
                self._connections,
                self._records,
                self._clock,
                self._bounds,
                self._touch,
                self._turns,
            ),
            scope,
        )
        self._records.store.check_writable()
        with self.placing, self._lock:
            self._refuse_moved_sites(change, sites)
            if self.closing:
                raise TransientError("cannot start a change: the service is stopping")
            if scope in self._running:
                busy = self._running[scope].change.id
                raise ConflictError(
                    f"cannot start a change: change {busy} is under way", change=busy
                )
            self._running[scope] = running
        try:
            self._records.write(
                accepted,
                self._records.put_change(change),
                self._records.put_operations(change.id, change.operations),
                self._event(change, "accepted"),
            )
        except BaseException:
            self._forget(scope)
            running.over.set()
            raise
        threading.Thread(
            target=self._run, args=(running, at_end), name=f"change-{change.id}", daemon=True
        ).start()
        return running

    def _refuse_moved_sites(self, change: Change, sites: Mapping[str, Site]) -> None:
        now = self._records.sites()
        for site in sorted(_sites_of(change).keys() & sites.keys()):
            there = now.get(site)
            same = there and (there.spe, there.broker) == (sites[site].spe, sites[site].broker)
            if not same:
                raise ConflictError(
                    f"cannot start a change: site {site!r} was removed or changed meanwhile;"
                    " try again"
                )

    def at_work_at(self, site: str) -> list[str]:
        """Jobs and readers for which changes under way need a site."""
        found: set[str] = set()
        for running in self.all_under_way():
            found |= _sites_of(running.change).get(site, set())
        return sorted(found)

    def in_the_way(self, scope: str, what: str) -> Running | None:
        """The scope's change when that is blocked. Raises ConflictError when it runs; `what`
        names what the caller wants to change."""
        running = self.under_way(scope)
        if running is not None and running.change.state is not ChangeState.BLOCKED:
            raise ConflictError(
                f"cannot change {what}: change {running.change.id} is under way",
                change=running.change.id,
            )
        return running

    def make_way(self, scope: str, what: str) -> Change | None:
        """Bring the scope's blocked change to its end and return it, as `in_the_way`."""
        running = self.in_the_way(scope, what)
        if running is None:
            return None
        self.end_early(running)
        return running.change

    def superseded(self, change: Change | None, by: Change) -> Batch:
        """What to store so that an ended change names its successor."""
        if change is None:
            return {}
        change.superseded_by = by.id
        return self._records.put_change(change)

    def over(self, change_id: str, wait_s: float) -> JsonObject | None:
        """A change that is over within `wait_s` seconds, as the API shows it; else None.
        Raises NotFoundError."""
        for running in self.all_under_way():
            if running.change.id == change_id and not running.over.wait(wait_s):
                return None
        found = self.get(change_id)
        return found if ChangeState(found["state"]).over else None

    def under_way(self, scope: str) -> Running | None:
        """The scope's running (or blocked) change."""
        with self._lock:
            return self._running.get(scope)

    def all_under_way(self) -> list[Running]:
        with self._lock:
            return list(self._running.values())

    def end_early(self, running: Running) -> None:
        """Bring a change to its safe point, and wait for that."""
        running.execution.cancel()
        running.over.wait()

    def get(self, change_id: str) -> JsonObject:
        """The change as the API shows it. Raises NotFoundError."""
        for running in self.all_under_way():
            if running.change.id == change_id:
                return running.change.to_json()
        found = self._records.change(change_id)
        if found is None:
            raise NotFoundError(f"cannot find change {change_id!r}")
        return found

    def all(self, composition: str | None = None, state: str | None = None) -> list[JsonObject]:
        """Heads of changes, newest first; filtered."""
        live = {r.change.id: r.change.head_json() for r in self.all_under_way()}
        heads = [live.get(head["id"], head) for head in self._records.changes()]
        return [
            head
            for head in reversed(heads)
            if (composition is None or head["composition"] == composition)
            and (state is None or head["state"] == state)
        ]

    def cancel(self, change_id: str) -> JsonObject:
        """Start no further operation of it. Raises NotFoundError, ConflictError when over."""
        for running in self.all_under_way():
            if running.change.id == change_id:
                running.execution.cancel()
                running.over.wait(1.0)
                return self.get(change_id)
        head = self.get(change_id)
        raise ConflictError(f"cannot cancel change {change_id}: it is {head['state']}")

    def recover(self) -> None:
        """Close the books on changes that a stop of the service cut short.

        What they left is seen by the next plan, which starts from observation.
        """
        for head in list(self._records.changes()):
            if head["state"] in (ChangeState.RUNNING, ChangeState.BLOCKED):
                head |= {
                    "state": str(ChangeState.FAILED),
                    "ended": rfc3339(self._clock.now()),
                    "error": "cannot say how it ended: the service stopped; apply again to go on",
                }
                self._records.write({f"change/{head['id']}": head, **self._cut_short(head["id"])})

    def _cut_short(self, change_id: str) -> Batch:
        """Its operations that had not ended: nobody knows of one under way, the rest is off."""
        ends = {
            OperationState.PENDING: OperationState.CANCELLED,
            OperationState.BLOCKED: OperationState.CANCELLED,
            OperationState.RUNNING: OperationState.FAILED,
        }
        return {
            key: {**record, "state": str(ends[record["state"]]), "error": "the service stopped"}
            for key, record in self._records.store.scan(f"op/{change_id}/")
            if record["state"] in ends
        }

    def close(self) -> None:
        """Cancel everything under way and wait until it is stored; nothing new starts."""
        with self._lock:
            self.closing = True
        for running in self.all_under_way():
            running.execution.cancel()
        for running in self.all_under_way():
            running.over.wait(30.0)

    def _run(self, running: Running, at_end: Callable[[Change], Batch]) -> None:
        change = running.change
        try:
            running.execution.run()
        except Exception as error:
            change.state = ChangeState.FAILED
            change.error = f"cannot carry on: {error!r}"
            change.ended = rfc3339(self._clock.now())
        finally:
            try:
                self._records.write(
                    at_end(change),
                    self._records.put_change(change),
                    self._records.put_operations(change.id, change.operations),
                    self._event(change, str(change.state)),
                )
            finally:
                self._forget(running.scope)
                running.over.set()

    def _touch(self) -> None:
        self.touched = self._clock.monotonic()

    def _forget(self, scope: str) -> None:
        self._touch()
        with self._lock:
            self._running.pop(scope, None)

    def _event(self, change: Change, what: str) -> Batch:
        about = change.composition or change.job_name
        return self._records.event(
            "change",
            f"change of {about} {what}" + (f": {change.error}" if change.error else ""),
            change=change.id,
            composition=change.composition,
            job_name=change.job_name,
        )


def _sites_of(change: Change) -> dict[str, set[str]]:
    """The sites that a change's operations need: name -> jobs and readers they are for."""
    found: dict[str, set[str]] = {}
    for step in change.plan.steps:
        operation = step.operation
        sites = {operation.site}
        if isinstance(operation, Start | TryMain):
            sites |= {operation.job.source_site, operation.job.sink_site}
        elif isinstance(operation, Forget):
            sites.add(operation.sink_site)
        name = operation.job_name or getattr(operation, "client_id", None)
        for site in sites:
            found.setdefault(site, set()).update({name} if name else set())
    return found
