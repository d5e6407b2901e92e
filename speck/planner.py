"""Desired composition + inventory + observation -> Plan. Pure: no I/O, no clock, no metric.

Sessions and jobs are compared separately, then their steps are joined by the orders of
docs/architecture.md and no others:

(a) a session is reserved before any producer starts on its link (and before its own reader);
(b) a reader leaves a link after the producers that leave it in this plan have stopped and it
    has taken their last number;
(c) a session is released after its reader's stop, and after the start of the job's next
    incarnation: until that runs, the old session is the way back; one of a reader outside
    speck after its link's leaving producers have stopped, and before that reader's next one on
    the same broker is reserved, since both are one;
(d) a sink's last number is dropped when its job leaves the sink's link, after the drains that
    go by it; the job's next incarnation, if it speaks at the same place of another link, waits
    until that is over, done or not;
(e) within one job: the jar is there and `main` was tried before it stops, it stops before it
    starts; a start that needs a slot waits for stops that free one.

Stops never wait for starts, so every plan is acyclic by construction.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from speck.contract import tells_numbers
from speck.fingerprint import differences
from speck.inventory import Deployed, Inventory, Session
from speck.model import (
    Composition,
    DesiredState,
    Job,
    Link,
    Upgrade,
    engine_job_id,
    sink_client_id,
    source_client_id,
)
from speck.observed import Observation, RunState
from speck.plan import (
    Action,
    Cancel,
    Clear,
    Drain,
    Forget,
    JobChange,
    Operation,
    Plan,
    Release,
    Reserve,
    Restore,
    Settle,
    Start,
    Step,
    Stop,
    TryMain,
    Upload,
)


def plan(
    desired: Composition,
    inventory: Inventory,
    observed: Observation,
    installation: str,
    outside_readers: frozenset[Link] = frozenset(),
    *,
    drain: bool = True,
    cannot_try: frozenset[str] = frozenset(),
    cannot_save: frozenset[str] = frozenset(),
) -> Plan:
    """The plan that makes `desired` true.

    `inventory` and `desired` are of one scope (a composition, or one job posted alone);
    `outside_readers` are links that jobs of other scopes read. Without `drain` readers leave
    their links at once, and what is queued there is abandoned. `cannot_try` and `cannot_save`
    are sites whose engine cannot run a `main` alone, or keep a job's state on request.
    """
    made = _Planner(desired, inventory, observed, installation, outside_readers, drain)
    made.cannot_try, made.cannot_save = cannot_try, cannot_save
    return made.plan()


@dataclass(slots=True)
class _Decision:
    """What will happen to one job; the step ids are filled in as steps are added."""

    job_name: str
    new: Job | None
    old: Deployed | None
    action: Action
    reason: str
    stops: bool = False
    keeps_state: bool = False
    starts: bool = False
    again: bool = False  # the start that was asked for is sent again, under its id
    stop_id: int | None = None
    clear_id: int | None = None
    start_id: int | None = None
    forget_id: int | None = None


@dataclass(slots=True)
class _Planner:
    desired: Composition
    inventory: Inventory
    observed: Observation
    installation: str
    outside_readers: frozenset[Link]
    drain: bool
    wanted: dict[str, Job] = field(default_factory=dict)
    sessions: list[Session] = field(default_factory=list)
    read: frozenset[Link] = frozenset()
    left_by: dict[Link, list[_Decision]] = field(default_factory=lambda: defaultdict(list))
    drained: set[Link] = field(default_factory=set)
    steps: list[Step] = field(default_factory=list)
    uploads: dict[tuple[str, str], int] = field(default_factory=dict)
    tries: dict[tuple[object, ...], int] = field(default_factory=dict)
    reserves: dict[Link, list[int]] = field(default_factory=lambda: defaultdict(list))
    reserve_of: dict[str, int] = field(default_factory=dict)
    producers: dict[Link, list[Deployed]] = field(default_factory=lambda: defaultdict(list))
    slot_waits: dict[str, list[int]] = field(default_factory=dict)
    drains_of: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Steps that need the last number of a sink, by its client id."""
    owed: frozenset[str] = frozenset()
    """Client ids of readers that an earlier drain, which failed, still waits for."""
    emptied: set[str] = field(default_factory=set)
    """Client ids of readers whose session is known to be empty once they were drained."""
    cannot_try: frozenset[str] = frozenset()
    cannot_save: frozenset[str] = frozenset()

    def plan(self) -> Plan:
        self.wanted = {job.job_name: job for job in self.desired.jobs}
        self.sessions = self._wanted_sessions()
        self.owed = frozenset(s.client_id for s in self.inventory.sessions if s.owed)
        for deployed in self.inventory.jobs.values():
            self.producers[deployed.job.sink].append(deployed)
        self.read = self.outside_readers | {session.link for session in self.sessions}
        names = sorted(self.wanted.keys() | self.inventory.jobs.keys())
        decisions = [self._decide(name) for name in names]
        ending = self._ending_sessions()
        shared = {(s.link.broker, s.client_id) for s in ending}
        self._reserve_sessions(
            [s for s in self.sessions if (s.link.broker, s.client_id) not in shared]
        )
        stopping = [d for d in decisions if d.stops]
        self._note_leaving(decisions)
        for decision in self._upstream_first(stopping):
            self._stop(decision)
        self._renew_sessions(ending)
        self._note_slot_waits(decisions)
        for decision in decisions:
            if decision.starts:
                self._clear(decision)
                self._start(decision)
        releases = self._release_sessions(decisions)
        for decision in decisions:
            if decision.action is Action.REMOVE:
                self._forget(decision, releases)
        changes = tuple(
            JobChange(
                d.job_name,
                d.action,
                d.reason,
                d.old.job.site if d.old else None,
                d.new.site if d.new else None,
            )
            for d in decisions
        )
        return Plan(self.desired.name, changes, tuple(self.steps))

    # -- what happens to each job ---------------------------------------------------------

    def _decide(self, name: str) -> _Decision:
        new, old = self.wanted.get(name), self.inventory.jobs.get(name)
        if old is None:
            assert new is not None
            starts = new.state is DesiredState.RUNNING
            reason = "new job" if starts else "new job, kept stopped"
            return _Decision(name, new, None, Action.ADD, reason, starts=starts)
        live = self._live(old)
        if new is None:
            stops = live or self._may_arrive(old)
            return _Decision(name, None, old, Action.REMOVE, "no longer wanted", stops=stops)
        return self._decide_kept(name, new, old, live)

    def _decide_kept(self, name: str, new: Job, old: Deployed, live: bool) -> _Decision:
        wanted = new.state is DesiredState.RUNNING
        changes = differences(old.job, new)
        may_arrive = not live and self._may_arrive(old)
        again = may_arrive and wanted and not changes
        action = Action.MOVE if old.job.site != new.site else Action.UPDATE
        if wanted and live and not changes:
            return _Decision(name, new, old, Action.UNCHANGED, "same fingerprint, running")
        if not wanted and not live and not may_arrive:
            changes_later = "; ".join([*changes, "stopped, as wanted"])
            kept = Action.UPDATE if changes else Action.UNCHANGED
            return _Decision(name, new, old, kept, changes_later)
        if not wanted:
            changes.append("state running -> stopped")
        elif not live and not old.confirmed and old.base is None:
            action = Action.ADD
            changes = [*changes, f"not started yet: {self._why_not_live(old)}"]
        elif not live:
            changes.append(self._why_not_live(old))
        return _Decision(
            name,
            new,
            old,
            action if wanted else Action.UPDATE,
            "; ".join(changes),
            stops=live or (may_arrive and not again),
            keeps_state=not wanted or new.upgrade is Upgrade.SAVEPOINT,
            starts=wanted,
            again=again,
        )

    def _may_arrive(self, old: Deployed) -> bool:
        """Whether a start whose answer was lost may still be on its way to the engine."""
        return old.may_arrive and self.observed.job(old.job.site, old.engine_job_id) is None

    def _live(self, old: Deployed) -> bool:
        """Whether an incarnation may run: silence of a site is no word that it does not."""
        if old.ended:
            return False
        if old.job.site not in self.observed.engines:
            return True
        seen = self.observed.job(old.job.site, old.engine_job_id)
        return seen is not None and not seen.state.terminal

    def _why_not_live(self, old: Deployed) -> str:
        if old.ended:
            return "state stopped -> running"
        seen = self.observed.job(old.job.site, old.engine_job_id)
        if seen is None:
            return f"not running: {old.job.site} does not know it"
        return f"not running: {_WORDS.get(seen.state, str(seen.state))}"

    # -- sessions -------------------------------------------------------------------------

    def _wanted_sessions(self) -> list[Session]:
        jobs = [
            Session(
                source_client_id(self.installation, job.job_name, job.source),
                job.source,
                job.source_site,
                job.job_name,
            )
            for job in self.desired.jobs
        ]
        outside = [
            Session(reader.client_id, reader.link, reader.site, None)
            for reader in self.desired.readers
        ]
        return sorted(jobs + outside, key=lambda s: (s.reader, s.client_id))

    def _reserve_sessions(self, sessions: Iterable[Session], after: Iterable[int] = ()) -> None:
        there = {(s.client_id, s.link) for s in self.inventory.sessions if s.reserved}
        for session in sessions:
            if (session.client_id, session.link) in there:
                continue
            operation = Reserve(session.site, session.link, session.client_id, session.job_name)
            step = self._add(operation, after, "new reader")
            self.reserves[session.link].append(step)
            self.reserve_of[session.client_id] = step

    def _ending_sessions(self) -> list[Session]:
        """Sessions of outsiders that go on under the same client id with another topic."""
        wanted = {(s.link.broker, s.client_id): s.link for s in self.sessions}
        return [
            s
            for s in sorted(self.inventory.sessions, key=lambda s: s.client_id)
            if wanted.get((s.link.broker, s.client_id), s.link) != s.link
        ]

    def _renew_sessions(self, ending: list[Session]) -> None:
        """A broker ends a session as a whole, whatever its topic: it ends first."""
        for old in ending:
            step = self._release(old, None)
            wanted = (old.link.broker, old.client_id)
            new = [s for s in self.sessions if (s.link.broker, s.client_id) == wanted]
            self._reserve_sessions(new, (step,))

    def _release_sessions(self, decisions: list[_Decision]) -> dict[str, list[int]]:
        """Steps that release what nobody wants any more, by job name."""
        keep = {(s.client_id, s.link.broker) for s in self.sessions}
        by_name = {d.job_name: d for d in decisions}
        released: dict[str, list[int]] = defaultdict(list)
        for session in sorted(self.inventory.sessions, key=lambda s: (s.reader, s.client_id)):
            if (session.client_id, session.link.broker) not in keep:
                step = self._release(session, by_name.get(session.job_name or ""))
                released[session.job_name or ""].append(step)
        return released

    def _release(self, session: Session, holder: _Decision | None) -> int:
        if holder is not None:
            after = _ids([holder.stop_id, holder.start_id])
        else:  # what outsiders read may still be said while the links before it are drained
            after = _ids(d.stop_id for d in self.left_by.get(session.link, ()))
        abandons = self._abandoned(session)
        operation = Release(
            session.site,
            session.link,
            session.client_id,
            session.job_name,
            last_reader=session.link not in self.read,
            abandons=abandons,
        )
        return self._add(operation, after, _release_reason(abandons))

    def _abandoned(self, session: Session) -> int | None:
        """Messages that the session will hold when it is released; None: cannot be known."""
        if session.client_id in self.emptied:
            return 0
        view = self.observed.brokers.get(session.site)
        reader = self.inventory.jobs.get(session.job_name or "")
        tells = reader is not None and tells_numbers(reader.job)
        if view is None or not (tells or session.client_id in view.taken):
            return None
        sinks: list[str] = []
        for deployed in self.producers.get(session.link, ()):
            former = [sink for sink in deployed.former_sinks if sink in view.sent]
            sinks += [self._sink_of(deployed), *former]  # a former one may have sent nothing
        return view.lag(session.client_id, sinks)

    def _still_fed(self, link: Link) -> bool:
        """Whether a producer of the link, ours or anybody's, goes on when its reader leaves."""
        producers = {deployed.job.job_name for deployed in self.producers.get(link, ())}
        return not producers or not producers <= {d.job_name for d in self.left_by[link]}

    # -- steps of one job -----------------------------------------------------------------

    def _note_leaving(self, decisions: list[_Decision]) -> None:
        """Which producers leave which links, and which of those links are drained.

        A producer that has stopped before leaves too: what it sent may still wait.
        """
        for decision in decisions:
            if decision.old is None:
                continue
            sink = decision.old.job.sink
            new = decision.new
            if new is None or new.sink != sink or new.state is DesiredState.STOPPED:
                self.left_by[sink].append(decision)
        if self.drain:
            self.drained = {
                d.old.job.source
                for d in decisions
                if d.stops and d.old and (d.new is None or d.new.source != d.old.job.source)
            }

    def _drains(self, reader: _Decision) -> bool:
        """Whether `reader` leaves a link that it can empty before it stops."""
        old, new = reader.old, reader.new
        assert old is not None
        stays = new is not None and new.source == old.job.source
        return not stays and old.job.source in self.drained and not self._may_arrive(old)

    def _producers_that_left(self, reader: _Decision) -> list[_Decision]:
        """Producers that leave, in this plan, the link that `reader` leaves; none if it stays."""
        assert reader.old is not None
        if not self._drains(reader):
            return []
        return [d for d in self.left_by.get(reader.old.job.source, []) if d is not reader]

    def _upstream_first(self, stopping: list[_Decision]) -> list[_Decision]:
        """Producers before the readers that are drained after them, ties by name.

        The deployed graph has no cycle, so neither has this.
        """
        by_name = {d.job_name: d for d in stopping}
        before = {
            d.job_name: {p.job_name for p in self._producers_that_left(d)} & by_name.keys()
            for d in stopping
        }
        return [by_name[name] for name in TopologicalSorter(before).static_order()]

    def _stop(self, decision: _Decision) -> None:
        old = decision.old
        assert old is not None
        after: list[int] = []
        if decision.new and decision.starts and decision.new.site not in self.cannot_try:
            after.append(self._try(decision))
        after += _ids([self._drain(decision, old)])
        kind: type[Settle] | type[Cancel] | type[Stop] = Stop
        if self._may_arrive(old):
            kind = Settle
        elif self._nothing_depends_on(decision) or old.job.site in self.cannot_save:
            kind = Cancel
        operation = kind(old.job.site, decision.job_name, old.attempt, old.engine_job_id)
        decision.stop_id = self._add(operation, after, decision.reason)

    def _drain(self, decision: _Decision, old: Deployed) -> int | None:
        """The step in which a reader empties the link that it leaves, if it needs one."""
        source = old.job.source
        client_id = source_client_id(self.installation, decision.job_name, source)
        producers = self._producers_that_left(decision)
        if not producers and not (client_id in self.owed and self._drains(decision)):
            return None
        left = [d.old for d in producers if d.old]
        told_by = [sink for each in left for sink in self._sinks_of(each)]
        silent = [s for d in left if not tells_numbers(d.job) for s in self._sinks_of(d)]
        operation = Drain(
            old.job.source_site,
            source,
            client_id,
            decision.job_name,
            tuple(sorted(told_by)),
            old.job.site,
            old.engine_job_id,
            tuple(sorted(silent)),
        )
        names = ", ".join(sorted(d.job_name for d in producers))
        reason = f"{names} left it" if producers else "left from before"
        step = self._add(operation, _ids(d.stop_id for d in producers), reason)
        for sink in operation.sinks:
            self.drains_of[sink].append(step)
        if tells_numbers(old.job) and not silent and not self._still_fed(source):
            self.emptied.add(client_id)
        return step

    def _nothing_depends_on(self, decision: _Decision) -> bool:
        """A removed job may be cancelled, unless a reader is drained after it: only a stop
        flushes the sink and says what its last number was."""
        assert decision.old is not None
        return decision.new is None and decision.old.job.sink not in self.drained

    def _sink_of(self, deployed: Deployed) -> str:
        job = deployed.job
        return sink_client_id(self.installation, job.job_name, job.source)

    def _sinks_of(self, deployed: Deployed) -> tuple[str, ...]:
        """Every id under which a last number may stand that went over the job's sink link."""
        return (*deployed.former_sinks, self._sink_of(deployed))

    def _former_sinks(self, old: Deployed | None, new: Job) -> tuple[str, ...]:
        """The ids to remember when `new` follows `old`: none when the sink link is another."""
        if old is None or old.job.sink != new.sink:
            return ()
        own = sink_client_id(self.installation, new.job_name, new.source)
        return tuple(sink for sink in self._sinks_of(old) if sink != own)[-_FORMER_SINKS:]

    def _upload(self, job: Job) -> int:
        key = (job.site, job.jar)
        if key not in self.uploads:
            self.uploads[key] = self._add(Upload(*key), (), "needed there")
        return self.uploads[key]

    def _try(self, decision: _Decision) -> int:
        """`main` is tried once for all jobs that differ in name and links only.

        A `main` that keeps the job contract takes those as they come; one with a spelling of
        its own is tried with each.
        """
        job = decision.new
        assert job is not None
        links = () if tells_numbers(job) else (job.source, job.sink)
        key = (job.site, job.jar, job.entry_class, job.args, job.parallelism, job.delivery, links)
        if key not in self.tries:
            operation = TryMain(job, *self._next(decision.job_name))
            self.tries[key] = self._add(operation, (self._upload(job),), "before it stops")
        return self.tries[key]

    def _next(self, name: str) -> tuple[int, str]:
        attempt = self.inventory.attempts.get(name, 0) + 1
        return attempt, engine_job_id(self.installation, self.desired.name, name, attempt)

    def _start(self, decision: _Decision) -> None:
        job = decision.new
        assert job is not None
        attempt, job_id = self._next(decision.job_name)
        old = decision.old
        if decision.again and old is not None:
            attempt, job_id, old = old.attempt, old.engine_job_id, old.base
        own = source_client_id(self.installation, job.job_name, job.source)
        after = [
            self._upload(job),
            *self.reserves.get(job.sink, []),
            *_ids([self.reserve_of.get(own), decision.stop_id, decision.clear_id]),
            *self.slot_waits.get(decision.job_name, []),
        ]
        restore = None
        if old is not None and decision.keeps_state:
            restore = Restore(old.job.site, old.attempt, old.engine_job_id)
        former = self._former_sinks(decision.old, job)
        operation = Start(job, attempt, job_id, job.sink in self.read, restore, former)
        reason = "new job" if decision.old is None else decision.reason
        whatever = frozenset(_ids([decision.clear_id]))
        decision.start_id = self._add(operation, after, reason, whatever)

    def _note_slot_waits(self, decisions: list[_Decision]) -> None:
        """Stops at a site that must come before a start there because no slot is free for it.

        Starts take free slots in order of name; a start whose own stop frees its slots at the
        same site needs no others.
        """
        freeing: dict[str, deque[tuple[int, int]]] = defaultdict(deque)
        for decision in decisions:
            if decision.stop_id is not None and decision.old and not _in_place(decision):
                old = decision.old.job
                freeing[old.site].append((decision.stop_id, old.parallelism))
        budgets = {
            site: view.slots.free for site, view in self.observed.engines.items() if view.slots
        }
        for decision in decisions:
            if not decision.starts or decision.new is None or decision.new.site not in budgets:
                continue
            site = decision.new.site
            budgets[site] -= decision.new.parallelism - _freed_in_place(decision)
            while budgets[site] < 0 and freeing[site]:
                stop_id, slots = freeing[site].popleft()
                budgets[site] += slots
                self.slot_waits.setdefault(decision.job_name, []).append(stop_id)

    def _forget(self, decision: _Decision, releases: dict[str, list[int]]) -> None:
        old = decision.old
        assert old is not None
        sinks = self._sinks_of(old)
        after = (
            *_ids([decision.stop_id]),
            *releases.get(decision.job_name, []),
            *(step for sink in sinks for step in self.drains_of[sink]),
        )
        operation = Forget(old.job.site, decision.job_name, old.job.sink_site, sinks)
        decision.forget_id = self._add(operation, after, "removed")

    def _clear(self, decision: _Decision) -> None:
        """Drop what the sink said of the link that it leaves, once nobody drains by it.

        It stands at the sink's broker under the ids of the source links that the job had. While
        the sink's link stays it is kept, since a later drain goes by it. Where the next
        incarnation speaks at the same place it starts after that, or the two would be mixed up;
        but a reader that cannot be drained does not keep it down: what is owed to that reader
        is noted with its session.
        """
        old, new = decision.old, decision.new
        if old is None or new is None:
            return
        own = sink_client_id(self.installation, new.job_name, new.source)
        kept = {own, *self._former_sinks(old, new)} if old.job.sink == new.sink else set()
        gone = tuple(sink for sink in self._sinks_of(old) if sink not in kept)
        if not gone:
            return
        after = [*_ids([decision.stop_id]), *(s for sink in gone for s in self.drains_of[sink])]
        operation = Clear(old.job.sink_site, decision.job_name, gone)
        step = self._add(operation, after, "its links changed")
        if own in gone and old.job.sink.broker == new.sink.broker:
            decision.clear_id = step

    def _add(
        self,
        operation: Operation,
        after: Iterable[int],
        reason: str,
        whatever: frozenset[int] = frozenset(),
    ) -> int:
        step = Step(len(self.steps) + 1, operation, tuple(sorted(set(after))), reason, whatever)
        self.steps.append(step)
        return step.id


_FORMER_SINKS = 8
"""Of so many earlier sources of a job the last numbers are kept. An older one would matter only
if none of eight incarnations since had sent anything: by the order of a session, whoever has
taken what came later has taken it too."""

_WORDS = {RunState.FAILED: "failed", RunState.CANCELED: "canceled", RunState.FINISHED: "finished"}


def _in_place(decision: _Decision) -> bool:
    return bool(
        decision.starts
        and decision.old
        and decision.new
        and decision.old.job.site == decision.new.site
    )


def _freed_in_place(decision: _Decision) -> int:
    if not decision.stops or not _in_place(decision) or decision.old is None:
        return 0
    return decision.old.job.parallelism


def _ids(ids: Iterable[int | None]) -> tuple[int, ...]:
    return tuple(step for step in ids if step is not None)


def _release_reason(abandons: int | None) -> str:
    if abandons == 0:
        return "left"
    if abandons is None:
        return "left; abandons what is queued (number not known)"
    return f"left; abandons {abandons} queued messages"
