"""Registers the changes under way, lets others wait for them, and reads stored ones.

Nothing is run here; see `speck.deploy.changes.runner`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TypeVar

from speck.clock import Clock, Event, never, rfc3339, wait_unless
from speck.deploy.execution import Execution
from speck.deploy.locks import NamedLocks, SessionLocks
from speck.deploy.scheduler import THREADS, Scheduler
from speck.errors import ConflictError, NotFoundError, SpeckError, TransientError
from speck.model.change import STOPPED, Cause, Change, ChangeHead, ChangeReport, ChangeState
from speck.model.composition import title
from speck.model.job_operations import Return, Start
from speck.model.plan import Plan
from speck.model.site import Site
from speck.store.records import Records
from speck.store.tables import Batch

_Head = TypeVar("_Head", bound=ChangeHead)

GIVE_WAY_S = 5.0
"""The longest time, in seconds, for which a round of polls of all sites waits for changes that have
just begun."""
_CALM_POLL_S = 0.1


class Running:
    """A change under way, since `begun` (monotonic). `over` is set when its outcome is stored, or
    when the service stops.

    It has no execution while it is planned again. Requests to end early, to halt or to begin again
    also apply to a later execution.
    """

    def __init__(
        self,
        change: Change,
        scope: str,
        clock: Clock,
        execution: Execution | None = None,
        scheduler: Scheduler = THREADS,
    ):
        self.change = change
        self.scope = scope
        self.begun = clock.monotonic()
        self._clock = clock
        self.over = scheduler.event()
        self._lock = scheduler.lock()
        self._execution = execution
        self._is_resumed = False
        self._ends_early = False
        self._halts = False
        self._begins_anew = False

    @property
    def execution(self) -> Execution | None:
        return self._execution

    @property
    def is_resumed(self) -> bool:
        """Whether its plan is not the first one."""
        return self._is_resumed

    @property
    def ends_early(self) -> bool:
        """Whether it was asked to end."""
        return self._ends_early

    @property
    def failure(self) -> SpeckError | None:
        execution = self._execution
        return execution.failure if execution else None

    def wait_for_end(self, wait_s: float, gives_up: Callable[[], bool] = never) -> bool:
        """Wait for the end, for at most `wait_s` seconds, as long as the one who waits does not
        give up; whether it has ended."""
        return wait_unless(self._clock, self.over, wait_s, gives_up) and self.change.state.over

    def end_early(self) -> None:
        """Start no further operation, and end."""
        with self._lock:
            self._ends_early = True
            execution = self._execution
        if execution is not None:
            execution.cancel()

    def abandon(self) -> None:
        """End at a safe point without waiting for engines: for what is to be forgotten."""
        self.end_early()
        self.halt()

    def halt(self) -> None:
        """Stop at a safe point, from which the change is continued at the next start of the
        service."""
        with self._lock:
            self._halts = True
            execution = self._execution
        if execution is not None:
            execution.halt()

    def ask_to_begin_anew(self, leave: frozenset[str]) -> None:
        """If it is blocked now, stop at a safe point to be planned again, with fewer jobs to leave
        alone."""
        with self._lock:
            execution = self._execution
            is_blocked = self.change.state is ChangeState.BLOCKED
            if not is_blocked or execution is None or self._ends_early or self._halts:
                return
            self.change.leave &= leave
            self._begins_anew = True
        execution.halt()

    def take_up(self, execution: Execution) -> bool:
        """Accept another execution; false if the change is to end or to halt."""
        with self._lock:
            if self._ends_early or self._halts:
                return False
            self._execution, self._is_resumed = execution, True
            return True

    def put_down(self) -> bool:
        """Drop an execution that has ended; false if none is to follow."""
        with self._lock:
            is_requested, self._begins_anew = self._begins_anew, False
            if self.change.has_next_stage:
                self.change.begin_next_part()
            elif not is_requested or self.change.state.over or self._halts:
                return False
            self._execution = None
            return True


class Changes:
    """All changes: those under way in memory, all others from the store."""

    def __init__(self, records: Records, clock: Clock, scheduler: Scheduler = THREADS):
        self._records = records
        self._clock = clock
        self._lock = scheduler.lock()
        self._running: dict[str, Running] = {}
        newest = records.changes.last_id()
        self._newest_ms = int(newest[:12], 16) if newest else 0
        self.placing = scheduler.lock()
        """Held while a change takes sites into use, and while a site is removed."""
        self.session_locks = SessionLocks(scheduler)
        """Shared by all who write what is stored of sessions, or reach them at their brokers."""
        self._starting = NamedLocks(scheduler)
        self._closing = False
        self._touched_at = float("-inf")

    @property
    def closing(self) -> bool:
        """Whether the service is stopping: nothing new starts."""
        return self._closing

    @property
    def touched(self) -> float:
        """When (monotonic) a change last did something: earlier polls are out of date."""
        return self._touched_at

    def touch(self) -> None:
        """Record that a change has just done something."""
        self._touched_at = self._clock.monotonic()

    def create(
        self,
        plan: Plan,
        revision: int | None,
        cause: Cause = Cause.APPLY,
        *,
        by: str | None = None,
        drop_queues: bool = False,
        drain_limit_s: float | None = None,
        leave: frozenset[str] = frozenset(),
        left_stopped: frozenset[str] = frozenset(),
    ) -> Change:
        """Create a change; it is not started. Its id begins with its time, so ids sort. If the
        clock was set back, ids continue from the highest one."""
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
            drop_queues=drop_queues,
            drain_limit_s=drain_limit_s,
            leave=leave,
            left_stopped=left_stopped,
            reverts_to=plan.reverts_to,
            reverting=plan.reverting,
        )

    @contextmanager
    def resting(self, scope: str) -> Iterator[bool]:
        """Whether nothing of a scope is being carried out; nothing begins before the block ends, so
        no site is asked meanwhile: it may hang. A change that is still being planned again does not
        count."""
        with self._starting[scope]:
            running = self.under_way(scope)
            yield running is None or running.execution is None

    def list_users_of_site(self, site: str) -> list[str]:
        """The jobs and readers for which changes under way need a site."""
        names: set[str] = set()
        for running in self.all_under_way():
            names |= _map_sites(running.change).get(site, set())
        return sorted(names)

    def find_scopes_using(self, site: str) -> set[str]:
        """The scopes of the changes under way that need a site."""
        return {r.scope for r in self.all_under_way() if site in _map_sites(r.change)}

    def find_in_the_way(self, scope: str) -> Running | None:
        """The scope's change under way, if a newer request may end it: a repair, or a blocked
        change. Raises ConflictError for any other, and while the store is `restored`."""
        self._records.refuse_restored()
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

    def put_superseded(self, change: Change | None, by: Change) -> Batch:
        """The writes that make an ended change name its successor."""
        if change is None:
            return {}
        change.superseded_by = by.id
        return self._records.changes.put(change)

    def was_cancelled(self, change_id: str | None) -> bool:
        """Whether a user cancelled a change, and so wants the present state left as it is."""
        head = self._records.changes.head(change_id) if change_id else None
        if head is None or head.superseded_by is not None:
            return False
        return head.state is ChangeState.CANCELLED and head.cause is not Cause.REPAIR

    def await_end(
        self, change_id: str, wait_s: float, gives_up: Callable[[], bool] = never
    ) -> ChangeReport | None:
        """Wait for the end of a change, as `Running.wait_for_end` does. Returns it, or None if it
        is not over. Raises NotFoundError."""
        for running in self.all_under_way():
            if running.change.id == change_id and not running.wait_for_end(wait_s, gives_up):
                return None
        change = self.get(change_id)
        return change if change.state.over else None

    def under_way(self, scope: str) -> Running | None:
        """The scope's running (or blocked) change."""
        with self._lock:
            return self._running.get(scope)

    def all_under_way(self) -> list[Running]:
        with self._lock:
            return list(self._running.values())

    def list_starting_jobs(self, most_s: float) -> set[str]:
        """The engine job ids of incarnations started by running changes that began less than
        `most_s` seconds ago."""
        since = self._clock.monotonic() - most_s
        return {
            operation.engine_job_id
            for running in self.all_under_way()
            if running.begun > since and running.change.state is ChangeState.RUNNING
            for operation in (record.step.operation for record in running.change.operations)
            if isinstance(operation, Start | Return)
        }

    def await_calm(self, over: Event) -> bool:
        """Wait while a change has just begun, for at most `GIVE_WAY_S` or until `over` is set;
        whether there was such a change. For background polls, which would take time of the service,
        the engines and the network from the change."""
        until, has_waited = self._clock.monotonic() + GIVE_WAY_S, False
        while not (over.is_set() or self._closing):
            now = self._clock.monotonic()
            if now >= until or not any(
                running.begun > now - GIVE_WAY_S and running.change.state is ChangeState.RUNNING
                for running in self.all_under_way()
            ):
                break
            has_waited = True
            over.wait(_CALM_POLL_S)
        return has_waited

    def get(self, change_id: str) -> ChangeReport:
        """The change with its operations. Raises NotFoundError."""
        for running in self.all_under_way():
            if running.change.id == change_id:
                return _show_under_way(running.change.report())
        stored = self._records.changes.get(change_id)
        if stored is None:
            raise NotFoundError(f"cannot find change {change_id!r}")
        return stored

    def all(self, composition: str | None = None, state: str | None = None) -> list[ChangeHead]:
        """Heads of changes, newest first; filtered."""
        under_way = [running.change for running in self.all_under_way()]
        live = {change.id: _show_under_way(change.head()) for change in under_way}
        heads = [live.get(head.id, head) for head in self._records.changes.heads()]
        return [
            head
            for head in reversed(heads)
            if (composition is None or head.composition == composition)
            and (state is None or head.state == state)
        ]

    # -- registering ----------------------------------------------------------------------

    def add(self, running: Running, sites: Mapping[str, Site]) -> None:
        """Register a new change as under way. Raises like `ChangeRunner.start`."""
        self._records.refuse_restored()
        scope = running.scope
        with self._starting[scope], self.placing, self._lock:
            self._refuse_moved_sites(running.change, sites)
            if self._closing:
                raise TransientError("cannot start a change: the service is stopping")
            if scope in self._running:
                busy = self._running[scope].change.id
                raise ConflictError(
                    f"cannot start a change: change {busy} is under way"
                    f" (`speck history {busy}` shows it, `speck cancel {busy}` ends it)",
                    change=busy,
                )
            self._running[scope] = running

    def add_cut_short(self, running: Running) -> None:
        """Register an interrupted change after a restart, before others can start."""
        with self._lock:
            self._running[running.scope] = running

    def resume(self, running: Running, execution: Execution, sites: Mapping[str, Site]) -> bool:
        """Let a change that was planned again take sites into use; false if it is to end, or the
        service stops. Raises ConflictError if a site of the plan has changed."""
        with self._starting[running.scope], self.placing:
            self._refuse_moved_sites(running.change, sites)
            return not self._closing and running.take_up(execution)

    def remove(self, running: Running) -> None:
        """Remove a change that is no longer under way, and notify those who wait for it."""
        self.touch()
        with self._lock:
            self._running.pop(running.scope, None)
        running.over.set()

    def close(self) -> list[Running]:
        """Let no further change start. Returns the changes under way."""
        with self._lock:
            self._closing = True
            return list(self._running.values())

    def _refuse_moved_sites(self, change: Change, sites: Mapping[str, Site]) -> None:
        now = self._records.sites.all()
        for site in sorted(_map_sites(change).keys() & sites.keys()):
            there = now.get(site)
            if there is None or _list_kinds(there) != _list_kinds(sites[site]):
                raise ConflictError(
                    f"cannot start a change: site {site!r} was removed or changed meanwhile;"
                    " try again"
                )


def _list_kinds(site: Site) -> tuple[str, ...]:
    """Its addresses do not count: they are looked up when a step needs them."""
    return site.kinds


def _show_under_way(change: _Head) -> _Head:
    """Its end is shown once it is stored: who reads that it is done finds its revision deployed."""
    if not change.state.over:
        return change
    return replace(change, state=ChangeState.RUNNING, ended=None, error=None)


def _map_sites(change: Change) -> dict[str, set[str]]:
    """The sites that a change's operations need, with the jobs and readers that need them."""
    names_by_site: dict[str, set[str]] = {}
    for step in change.plan.steps:
        operation = step.operation
        name = operation.job_name or getattr(operation, "client_id", None)
        for site in step.sites:
            names_by_site.setdefault(site, set()).update({name} if name else set())
    for earlier in change.earlier:  # known only from here while it is planned again
        if change.plan.empty and earlier.error == STOPPED and earlier.site:
            name = earlier.job_name
            names_by_site.setdefault(earlier.site, set()).update({name} if name else set())
    return names_by_site
