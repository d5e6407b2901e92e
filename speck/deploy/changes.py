"""Running changes: started, waited for, cancelled, remembered."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from speck import failpoints
from speck.binding import StateKeeper
from speck.clock import Clock, rfc3339
from speck.deploy.change_intent import left_by
from speck.deploy.execution import Bounds, Execution
from speck.deploy.limiter import Limiter
from speck.deploy.locks import NamedLocks
from speck.deploy.operations import Operations, Patience, Refills
from speck.errors import ConflictError, NotFoundError, SpeckError, StoreWriteError, TransientError
from speck.model.change import STOPPED, Cause, Change, ChangeState
from speck.model.composition import job_posted_alone, title, visible_name
from speck.model.plan import Carry, Forget, Plan, Return, Start, TryMain
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.sites.connections import Connections
from speck.store.records import Records
from speck.store.tables import Batch

PLANS_AT_ONCE = 4
"""How many changes that were cut short are planned anew at the same time."""

GIVE_WAY_S = 5.0
"""For so long at most a round of looks at all sites is put off for changes that have just begun."""
_CALM_POLL_S = 0.1


class PlanAnew(Protocol):
    """What makes another plan for a change: one that a stop of the service cut short, or that
    has more than one part."""

    def __call__(self, change: Change) -> tuple[Plan, Mapping[str, Site]]:
        """The plan, and the sites registered when it was made. Raises SpeckError."""


@dataclass(slots=True, eq=False)
class Running:
    """A change under way; `over` is set when its outcome is stored, or when the service stops.

    It has no `execution` while it is planned anew; `anew` says that it is to be. It is under way
    since `begun` (monotonic).
    """

    change: Change
    scope: str
    begun: float
    execution: Execution | None = None
    over: threading.Event = field(default_factory=threading.Event)
    ending: bool = False
    anew: bool = False

    @property
    def failure(self) -> SpeckError | None:
        return self.execution.failure if self.execution else None

    def ended(self, wait_s: float) -> bool:
        """Whether it has come to its end within so many seconds."""
        return self.over.wait(wait_s) and self.change.state.over


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
        keeper: StateKeeper,
    ):
        self._records = records
        self._connections = connections
        self._clock = clock
        self._jar_file = jar_file
        self._bounds = bounds
        self._patience = patience
        self._keeper = keeper
        self._refills = Refills(connections, clock, patience.refill_s)
        self._lock = threading.Lock()
        self._running: dict[str, Running] = {}
        newest = records.change_heads.last_id()
        self._newest_ms = int(newest[:12], 16) if newest else 0
        self._limiter = Limiter(bounds.per_site)
        self._plan_anew: PlanAnew | None = None
        self._planning = threading.BoundedSemaphore(PLANS_AT_ONCE)
        self.placing = threading.Lock()
        """Held while a change takes sites into use, or a site is given up."""
        self._starting = NamedLocks()
        self.closing = False
        """Whether the service is stopping: nothing new starts."""
        self.touched = float("-inf")
        """When (monotonic) a change last did something: looks from before are out of date."""

    def new(
        self,
        plan: Plan,
        revision: int | None,
        cause: Cause = Cause.APPLY,
        *,
        by: str | None = None,
        drain: bool = True,
        leave: frozenset[str] = frozenset(),
        left_stopped: frozenset[str] = frozenset(),
    ) -> Change:
        """A change that is not started; its id begins with its time, so ids sort. When the
        clock was set back they go on from the highest there is."""
        now = self._clock.now()
        with self._lock:
            self._newest_ms = max(self._newest_ms + 1, int(now.timestamp() * 1000))
            identity = f"{self._newest_ms:012x}{self._clock.new_id()[:8]}"
        return Change(
            identity,
            plan,
            revision,
            rfc3339(now),
            cause=cause,
            by=by,
            drain=drain,
            leave=leave,
            left_stopped=left_stopped,
        )

    def start(self, change: Change, accepted: Batch, sites: Mapping[str, Site]) -> Running:
        """Store the change with `accepted` in one write, then run it in its own thread.

        `sites` are those registered when the plan was made. Raises ConflictError when the scope
        has a change under way or a site of the plan is another by now, TransientError once the
        service is stopping.
        """
        scope = change.composition
        begun = self._clock.monotonic()
        running = Running(change, scope, begun, self._execution(change, scope))
        self._records.store.check_writable()
        with self._starting[scope], self.placing, self._lock:
            self._refuse_moved_sites(change, sites)
            if self.closing:
                raise TransientError("cannot start a change: the service is stopping")
            if scope in self._running:
                busy = self._running[scope].change.id
                raise ConflictError(
                    f"cannot start a change: change {busy} is under way"
                    f" (`speck history {busy}` shows it, `speck cancel {busy}` ends it)",
                    change=busy,
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
        self._thread(running, self._run, running)
        return running

    def _execution(self, change: Change, scope: str) -> Execution:
        operations = Operations(
            self._connections,
            self._records,
            self._clock,
            scope,
            self._jar_file,
            self._patience,
            failpoints.watched(self._keeper, tells=False),
            self._refills,
        )
        return Execution(
            change,
            operations,
            self._connections,
            self._records,
            self._clock,
            self._bounds,
            self._touch,
            self._limiter,
        )

    def _thread(self, running: Running, target: Callable[..., None], *arguments: object) -> None:
        name = f"change-{running.change.id}"
        threading.Thread(target=target, args=arguments, name=name, daemon=True).start()

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

    @contextmanager
    def quiet(self, scope: str) -> Iterator[bool]:
        """Whether no change of a scope is under way; none starts before the block ends."""
        with self._starting[scope]:
            yield self.under_way(scope) is None

    @contextmanager
    def resting(self, scope: str) -> Iterator[bool]:
        """Whether nothing of a scope is being carried out; nothing begins to be before the
        block ends. A change that is still planned anew does not count."""
        with self._starting[scope]:
            running = self.under_way(scope)
            yield running is None or running.execution is None

    def at_work_at(self, site: str) -> list[str]:
        """Jobs and readers for which changes under way need a site."""
        found: set[str] = set()
        for running in self.all_under_way():
            found |= _sites_of(running.change).get(site, set())
        return sorted(found)

    def in_the_way(self, scope: str) -> Running | None:
        """The scope's change when a newer wish may end it: a repair, or one that is blocked.
        Raises ConflictError for another one."""
        running = self.under_way(scope)
        if running is None or running.change.cause is Cause.REPAIR:
            return running
        if running.change.state is not ChangeState.BLOCKED:
            raise ConflictError(
                f"cannot change {title(scope)}: change {running.change.id} is under way"
                f" (`speck history {running.change.id}` shows it,"
                f" `speck cancel {running.change.id}` ends it)",
                change=running.change.id,
            )
        return running

    def make_way(self, scope: str) -> Change | None:
        """Bring the change that `in_the_way` finds to its end, and return it."""
        running = self.in_the_way(scope)
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

    def was_cancelled(self, change_id: str | None) -> bool:
        """Whether a change was ended by a person, who wants what is there left as it is."""
        head = self._records.change_heads.get(change_id) if change_id else None
        if head is None or head["superseded_by"] is not None:
            return False
        return bool(head["state"] == ChangeState.CANCELLED and head["cause"] != Cause.REPAIR)

    def over(self, change_id: str, wait_s: float) -> JsonObject | None:
        """A change that is over within `wait_s` seconds, as the API shows it; else None.
        Raises NotFoundError."""
        for running in self.all_under_way():
            if running.change.id == change_id and not running.ended(wait_s):
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

    def beginning(self, most_s: float) -> set[str]:
        """Engine job ids of the incarnations that are begun by changes which go on, and have for
        less than `most_s` seconds."""
        since = self._clock.monotonic() - most_s
        return {
            operation.engine_job_id
            for running in self.all_under_way()
            if running.begun > since and running.change.state is ChangeState.RUNNING
            for operation in (record.step.operation for record in running.change.operations)
            if isinstance(operation, Start | Return)
        }

    def await_calm(self, over: threading.Event) -> bool:
        """Wait while a change has just begun, `GIVE_WAY_S` at most, or until `over`; whether there
        was something to wait for. For what looks at sites by itself: it would take from the change
        the time of the service, of the engines and of the way to them."""
        until, waited = self._clock.monotonic() + GIVE_WAY_S, False
        while not (over.is_set() or self.closing):
            now = self._clock.monotonic()
            if now >= until or not any(
                running.begun > now - GIVE_WAY_S and running.change.state is ChangeState.RUNNING
                for running in self.all_under_way()
            ):
                break
            waited = True
            over.wait(_CALM_POLL_S)
        return waited

    def end_early(self, running: Running) -> None:
        """Bring a change to its safe point, and wait for that."""
        self._ask_to_end(running)
        running.over.wait()

    def _ask_to_end(self, running: Running) -> None:
        """The wish is stored first: after a restart too the change does not go on."""
        wish: JsonObject = {"at": rfc3339(self._clock.now())}
        self._records.write({self._records.endings.key(running.change.id): wish})
        with self._lock:
            running.ending = True
            execution = running.execution
        if execution is not None:
            execution.cancel()

    def begin_anew(self, running: Running, leave: frozenset[str]) -> None:
        """Have a blocked change do what else is to be done now: it is planned anew, leaves
        fewer jobs alone, and keeps its id. Nothing happens once it is not blocked any more.

        Raises SpeckError, and leaves the change as it is, when no plan can be made.
        """
        assert self._plan_anew is not None
        self._plan_anew(running.change)
        with self._lock:
            execution = running.execution
            blocked = running.change.state is ChangeState.BLOCKED
            if not blocked or execution is None or running.ending or self.closing:
                return
            running.change.leave &= leave
            running.anew = True
        execution.halt()

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
                self._ask_to_end(running)
                running.over.wait(1.0)
                return self.get(change_id)
        head = self.get(change_id)
        raise ConflictError(f"cannot cancel change {change_id}: it is {head['state']}")

    # -- over a stop of the service ---------------------------------------------------------

    def recover(self, plan_anew: PlanAnew) -> None:
        """Let changes that a stop of the service cut short go on, in the background.

        Each keeps its id and is planned anew from what is there now; one that was asked to end
        stays ended.
        """
        self._plan_anew = plan_anew
        wishes = {change_id for change_id, _ in self._records.endings.items()}
        for head in list(self._records.changes()):
            if ChangeState(head["state"]).over:
                continue
            change = Change.cut_short(head, self._records.operations(head["id"]))
            scope = change.composition
            running = Running(change, scope, self._clock.monotonic())
            if change.id in wishes or running.scope in self._running:
                change.state = ChangeState.CANCELLED
                self._end(running)
                continue
            self._records.write(
                self._event(change, "was cut short: the service stopped", kind="service")
            )
            self._running[running.scope] = running
        self._records.write({self._records.endings.key(change_id): None for change_id in wishes})
        for running in self.all_under_way():
            self._thread(running, self._go_on, running)

    def _go_on(self, running: Running) -> None:
        """Plan a change anew, and carry that out."""
        change = running.change
        assert self._plan_anew is not None
        try:
            with self._planning:
                plan, sites = self._plan_anew(change)
            change.go_on(plan)
            change.state = ChangeState.RUNNING
            execution = self._execution(change, running.scope)
            with self._starting[running.scope], self.placing, self._lock:
                self._refuse_moved_sites(change, sites)
                if not (self.closing or running.ending):
                    running.execution = execution
        except Exception as error:
            change.go_on(Plan(change.composition, (), ()))
            change.state, change.error = ChangeState.FAILED, _why(error)
        if running.execution is not None:
            self._run(running, self._planned_anew(change))
            return
        if running.ending:
            change.state, change.error = ChangeState.CANCELLED, None
        elif self.closing:  # planned once more at the next start
            change.state, change.error = ChangeState.RUNNING, None
        self._leave(running)

    def close(self) -> None:
        """Bring everything under way to a safe point; it goes on at the next start."""
        with self._lock:
            self.closing = True
            executions = [running.execution for running in self._running.values()]
        for execution in executions:
            if execution is not None:
                execution.halt()
        for running in self.all_under_way():
            running.over.wait(30.0)
        self._refills.close()

    def _planned_anew(self, change: Change) -> Batch:
        operations = self._records.operation_records
        return {
            **{
                operations.key(change.id, number): None for number, _ in operations.items(change.id)
            },
            **self._records.put_change(change),
            **self._put_earlier(change),
            **self._records.put_operations(change.id, change.operations),
            **self._event(change, f"goes on with {len(change.operations)} operations planned anew"),
        }

    def _run(self, running: Running, first: Batch | None = None) -> None:
        """Store `first`, and carry the change out."""
        change = running.change
        assert running.execution is not None
        try:
            if first is not None:
                self._records.write(first)
            running.execution.run()
        except StoreWriteError:
            change.state = ChangeState.RUNNING  # as the store has it
        except Exception as error:
            change.state, change.error = ChangeState.FAILED, _why(error)
        except BaseException:
            self._leave(running)
            raise
        if change.state is ChangeState.DONE and change.plan.goes_on:
            change.begin_next_part()
            running.execution = None
            self._go_on(running)
        elif self._to_be_planned_anew(running):
            self._thread(running, self._go_on, running)
        else:
            self._leave(running)

    def _to_be_planned_anew(self, running: Running) -> bool:
        with self._lock:
            asked, running.anew = running.anew, False
            if not asked or running.change.state.over or self.closing:
                return False
            running.execution = None
            return True

    def _leave(self, running: Running) -> None:
        """A change has come to its end, or as far as it gets before the service stops.

        Nobody is told of an end that is not stored: the change goes on at the next start.
        """
        try:
            if running.change.state.over:
                self._end(running)
            else:
                self._records.write(
                    self._event(running.change, "pauses: the service stops", kind="service")
                )
        except StoreWriteError:
            running.change.state = ChangeState.RUNNING
        finally:
            self._forget(running.scope)
            running.over.set()

    def _end(self, running: Running) -> None:
        change = running.change
        change.ended = rfc3339(self._clock.now())
        self._records.write(
            left_by(change, self._records),
            self._records.put_change(change),
            self._put_earlier(change),
            self._records.put_operations(change.id, change.operations),
            {self._records.endings.key(change.id): None},
            self._event(change, str(change.state)),
        )

    def _put_earlier(self, change: Change) -> Batch:
        return {self._records.operation_records.key(change.id, o["id"]): o for o in change.earlier}

    def _touch(self) -> None:
        self.touched = self._clock.monotonic()

    def _forget(self, scope: str) -> None:
        self._touch()
        with self._lock:
            self._running.pop(scope, None)

    def _event(self, change: Change, what: str, kind: str = "change") -> Batch:
        shown, alone = visible_name(change.composition), job_posted_alone(change.composition)
        noun = "change" if change.cause is Cause.APPLY else str(change.cause)
        return self._records.event(
            kind,
            f"{noun} of {shown or alone} {what}" + (f": {change.error}" if change.error else ""),
            change=change.id,
            composition=shown,
            job_name=alone,
        )


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, SpeckError) else f"cannot carry on: {error!r}"


def _sites_of(change: Change) -> dict[str, set[str]]:
    """The sites that a change's operations need: name -> jobs and readers they are for."""
    found: dict[str, set[str]] = {}
    for step in change.plan.steps:
        operation = step.operation
        sites = {operation.site}
        if isinstance(operation, Start | Return | TryMain):
            sites |= {operation.job.source_site, operation.job.sink_site}
        elif isinstance(operation, Forget):
            sites.add(operation.sink_site)
        elif isinstance(operation, Carry):
            sites.add(operation.source)
        name = operation.job_name or getattr(operation, "client_id", None)
        for site in sites:
            found.setdefault(site, set()).update({name} if name else set())
    for earlier in change.earlier:  # while it is planned anew nothing else tells
        if change.plan.empty and earlier["error"] == STOPPED:
            name = earlier["job_name"]
            found.setdefault(earlier["site"], set()).update({name} if name else set())
    return found
