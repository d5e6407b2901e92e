"""Desired composition + inventory + observation -> Plan. Pure: no I/O, no clock, no metric.

Sessions and jobs are compared separately, then their steps are ordered by the rules of
docs/planning.md and no others:

(a) a session is reserved before any producer starts on its link (and before its own reader),
    and before another reader leaves the link while it is still fed, so that no message is lost
    in between; where all its producers leave the link, it is reserved after they have stopped;
(b) a reader leaves a link after the producers that leave it in this plan have stopped and it
    has taken their last number; what it has taken is handed over to the reader that follows it
    before that reader starts, and before a new producer of the link does;
    a job starts after those downstream to which messages could not be given back if they did not
    run (`start_order.py`);
(c) a session is released after its reader's stop, and after the start of the job's next
    incarnation and of its reader's follower: until they run, the old session is the way back;
    the session of a reader outside speck is released after the producers that leave its link
    have stopped, and before its next one on the same broker is reserved: the client id is the
    same;
(d) a sink's last number is dropped when its job leaves the sink's link, after the drains that
    use it and the job's next start, and with the job after the releases on the link, which
    count by it; if the next start reports under the same id for another
    link, it waits until the numbers owed to readers are stored, or that has failed;
(e) within one job: the jar is there and `main` was tried before it stops, it stops before it
    starts; a start that needs a slot waits for stops that free one; between the stop and a
    start that cannot read the old site's storage the state is transferred; the old incarnation
    comes back if the start fails, unless a reader has left the link that it would write to.

Stops never wait for starts, so every plan is acyclic by construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from speck.deploy.planner.backlog import (
    Backlog,
    find_postponed,
    find_stopped_between,
    find_waiting,
    keep_sessions,
)
from speck.deploy.planner.catching_up import stop_together, switch
from speck.deploy.planner.cuts import note_cuts
from speck.deploy.planner.decisions import decide, leave_alone
from speck.deploy.planner.draft import Decision, Draft, ids
from speck.deploy.planner.handovers import hand_over, match_readers
from speck.deploy.planner.queues import mark_queues
from speck.deploy.planner.sessions import (
    find_ending_sessions,
    is_still_fed,
    release_sessions,
    renew_sessions,
    reserve_sessions,
)
from speck.deploy.planner.settling import find_stopping, settle
from speck.deploy.planner.sinks import clear, forget
from speck.deploy.planner.situation import Conditions, Outside, Situation, situate
from speck.deploy.planner.start_order import StartOrder
from speck.deploy.planner.starts import note_circuits, note_slot_waits, start
from speck.deploy.planner.state_losses import note_state_losses
from speck.deploy.planner.stops import note_leaving, sort_upstream_first, stop
from speck.model.composition import Composition
from speck.model.incarnation import Inventory
from speck.model.job_change import Action, JobChange
from speck.model.link import Link
from speck.model.observation import Observation
from speck.model.plan import DRAIN_LIMIT_S, Gate, Plan
from speck.model.queue import DroppedQueue


def plan(
    desired: Composition,
    inventory: Inventory,
    observation: Observation,
    installation: str,
    outside_readers: frozenset[Link] = frozenset(),
    outside_sinks: Mapping[Link, Sequence[str]] | None = None,
    *,
    drop_queues: bool = False,
    drain_limit_s: float = DRAIN_LIMIT_S,
    stuck: frozenset[str] = frozenset(),
    readers_stopped: frozenset[str] = frozenset(),
    cannot_try: frozenset[str] = frozenset(),
    cannot_save: frozenset[str] = frozenset(),
    apart: frozenset[tuple[str, str]] = frozenset(),
    leave: frozenset[str] = frozenset(),
    stopped: frozenset[str] = frozenset(),
    has_read: frozenset[str] = frozenset(),
) -> Plan:
    """The plan that makes `desired` true.

    `inventory` and `desired` belong to one scope (a composition, or one job posted alone).
    `outside_readers` are links that jobs of other scopes read, `outside_sinks` the client ids of
    their sinks by link. With `drop_queues` a session is released with what waits in it if its
    reader is outside speck, does not run, cannot be reached, or has not taken everything in
    `drain_limit_s` seconds (0: readers leave their links at once). Otherwise one whose reader is
    outside speck, or does not run, is released only while nothing waits in it. `stuck` are jobs
    that take nothing though their engine lists them. `cannot_try` and `cannot_save` are sites whose
    engine cannot run a `main` alone, or cannot take savepoints; `apart` are pairs (from, to) of
    sites between which state must be transferred. Jobs in `leave` stay as they are, whatever is
    desired. `stopped` are jobs that the change has stopped already, if it is planned again: the
    former incarnation comes back if their start fails. `readers_stopped` are all that it has
    stopped: they ran until then, and what came afterwards to the links that they have left is not a
    queue to ask about. `has_read` are the client ids of sessions that it has read first, and does
    not read again.
    """
    conditions = Conditions(
        drain_limit_s if drop_queues else None,
        stuck,
        readers_stopped,
        stopped,
        cannot_try,
        cannot_save,
        apart,
        leave,
        has_read,
    )
    outside = Outside(outside_readers, outside_sinks or {})
    situation = situate(desired, inventory, observation, installation, outside, conditions)
    draft = Draft(situation)
    match_readers(draft)
    decisions = _decide(situation)
    note_cuts(draft, decisions)
    stopping = [] if leave else find_stopping(draft)
    reads_first = not leave and conditions.drains
    backlog = find_waiting(draft, has_read) if reads_first else Backlog()
    if reads_first and not backlog.jobs:
        backlog = find_stopped_between(draft, decisions, has_read)
    waiting = backlog.jobs
    postponed = find_postponed(draft) if reads_first and not waiting else []
    if postponed:
        wanted = situation.wanted.replaced([*situation.wanted.sessions, *postponed])
        draft.situation = replace(situation, wanted=wanted)
    later_queues: list[DroppedQueue] = []
    if waiting:  # these jobs first read what waits for them; all others stay as they are until then
        meanwhile = {**waiting, **backlog.giving_way}
        rest = frozenset(inventory.jobs.keys() - meanwhile.keys())
        first = replace(desired, jobs=tuple(meanwhile.values()))
        then, draft = draft, Draft(situation.reading_first(first, rest))
        draft.backlog_only, draft.kept_jobs = True, rest
        keep_sessions(draft, then, backlog.set_aside)
        draft.cut_between = frozenset(backlog.giving_way)
        draft.handed_back = backlog.handed_back
        draft.predecessors |= backlog.handed_back
        draft.first_readers |= backlog.renewed
        later_queues = _find_later_queues(then, decisions, backlog)
        decisions = _decide(draft.situation)
    _add_steps(draft, decisions)
    changes = tuple(_make_job_change(decision) for decision in decisions)
    queues = tuple(mark_queues(draft) + later_queues)
    reads = frozenset(backlog.reads)
    # what cannot be read first is dropped, if the user has allowed that
    gate = Gate(failed_too=conditions.drops and bool(reads)) if waiting or postponed else None
    if stopping:  # they stop before anything else is planned; the queues are those of what follows
        draft = Draft(situation)
        settle(draft, stopping)
        gate, reads = Gate(), frozenset()
    steps = tuple(draft.steps)
    gate = gate if steps else None
    return Plan(desired.name, changes, steps, gate, queues, reads, conditions.limit_s)


def _find_later_queues(
    then: Draft, decisions: list[Decision], backlog: Backlog
) -> list[DroppedQueue]:
    """The queues that the change drops once the backlog has been read: who asks for the change has
    to know them now."""
    _add_steps(then, decisions)
    return [
        queue
        for queue in mark_queues(then)
        if queue.job_name not in backlog.jobs and queue.client_id not in backlog.spared
    ]


def _decide(situation: Situation) -> list[Decision]:
    leave = situation.conditions.leave
    names = sorted(situation.jobs.wanted.keys() | situation.inventory.jobs.keys())
    return [leave_alone(situation, n) if n in leave else decide(situation, n) for n in names]


def _add_starts(draft: Draft, decision: Decision, order: StartOrder) -> None:
    """Add a start after those that come before it, whatever their names."""
    ahead, earlier_of = [decision], dict[str, list[Decision]]()
    while ahead:  # each is on top a second time when those before it have been added
        each = ahead[-1]
        if each.start_id is None and each.job_name not in earlier_of:
            earlier = earlier_of[each.job_name] = order.find_earlier(each)
            ahead += [other for other in earlier if other.job_name not in earlier_of]
            continue
        ahead.pop()
        if each.start_id is None:
            starts = ids(other.start_id for other in earlier_of[each.job_name])
            start(draft, each, starts, order.find_stops(each), order.find_beside(each))
            _add_clear(draft, each)


def _add_clear(draft: Draft, decision: Decision) -> None:
    if decision.action is not Action.REMOVE and decision.job_name not in draft.kept_jobs:
        clear(draft, decision)


def _make_job_change(decision: Decision) -> JobChange:
    return JobChange(
        decision.job_name,
        decision.action,
        decision.reason,
        decision.old.job.site if decision.old else None,
        decision.new.site if decision.new else None,
    )


def _add_steps(draft: Draft, decisions: list[Decision]) -> None:
    by_name = {d.job_name: d for d in decisions}
    ending = find_ending_sessions(draft)
    shared_ids = {(s.link.site, s.client_id) for s in ending}
    lasting = [
        s for s in draft.situation.wanted.sessions if (s.link.site, s.client_id) not in shared_ids
    ]
    if draft.backlog_only:
        lasting = [s for s in lasting if s.client_id in draft.first_readers]
    note_state_losses(decisions)
    note_leaving(draft, decisions)
    reserve_sessions(draft, [s for s in lasting if is_still_fed(draft, s.link)], {})
    for names in draft.together.values():
        if not any(by_name[name].stops for name in names):
            stop_together(draft, by_name, names)
    for decision in sort_upstream_first(draft, [d for d in decisions if d.stops]):
        stop(draft, decision)
        if decision.old is not None:
            stop_together(draft, by_name, draft.find_together(decision.old.job))
    switch(draft, decisions)
    reserve_sessions(draft, [s for s in lasting if not is_still_fed(draft, s.link)], {})
    renew_sessions(draft, ending)
    hand_over(draft, decisions)
    note_slot_waits(draft, decisions)
    note_circuits(draft, decisions)
    order = StartOrder(draft, decisions)
    for decision in decisions:
        if decision.starts:
            _add_starts(draft, decision, order)
        else:
            _add_clear(draft, decision)
    releases = release_sessions(draft, decisions)
    for decision in decisions:
        if decision.action is Action.REMOVE:
            forget(draft, decision, releases)
