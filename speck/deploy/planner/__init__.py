"""Desired composition + inventory + observation -> Plan. Pure: no I/O, no clock, no metric.

The planner works in stages. Each takes frozen values and returns one: the situation (`situate`),
the decisions, who follows whom, cuts, who leaves which link and what is owed there (`wire`), and
the steps (`make_steps`). Begin reading at `plan`.

Steps are ordered by these rules and no others. Each has the name of its function, of its test and
of its drawn example in docs/planning.md:

(a) `reserve_fed_links`, `reserve_left_links`: sessions are there before messages come for them;
(b) `find_debts`, `find_followers`, `find_cuts`, `find_catch_ups`: readers leave their links when
    they have taken what is for them, and others go on there; `order_starts`: a job starts after
    those downstream to which messages could not be given back if they did not run;
(c) `release_sessions`: a session is the way back until those that come in its place run;
(d) `clear`, `forget_jobs`: the last numbers of sinks are dropped when nobody counts by them;
(e) within one job: the jar is there and `main` was tried before it stops, it stops before it
    starts; `find_slot_waits`, `find_way_back`.

Stops never wait for starts, so every plan is acyclic by construction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from speck.deploy.planner.backlog import Backlog, find_backlog, find_postponed
from speck.deploy.planner.catching_up import switch
from speck.deploy.planner.decisions import Decision
from speck.deploy.planner.first_stage import read_first
from speck.deploy.planner.handovers import hand_over
from speck.deploy.planner.queues import mark_queues
from speck.deploy.planner.releases import release_sessions, renew_sessions
from speck.deploy.planner.sessions import reserve_fed_links, reserve_left_links
from speck.deploy.planner.settling import find_stopping, settle
from speck.deploy.planner.sinks import forget_jobs
from speck.deploy.planner.situation import Conditions, Outside, situate
from speck.deploy.planner.starts import start_jobs
from speck.deploy.planner.steps import Before
from speck.deploy.planner.stops import stop_jobs
from speck.deploy.planner.wire import wire
from speck.deploy.planner.wiring import Wiring
from speck.model.composition import Composition
from speck.model.incarnation import Inventory
from speck.model.job_change import JobChange
from speck.model.link import Link
from speck.model.observation import Observation
from speck.model.plan import DRAIN_LIMIT_S, Gate, Plan, Step
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
    wiring = wire(situation)
    stopping = find_stopping(wiring)
    backlog = find_backlog(wiring)
    stage, postponed = wiring, [] if backlog.jobs else find_postponed(wiring)
    if backlog.jobs:
        stage = read_first(wiring, backlog)
    elif postponed:
        wanted = situation.wanted.replaced([*situation.wanted.sessions, *postponed])
        stage = replace(wiring, situation=replace(situation, wanted=wanted))
    steps, queues = mark_queues(stage, make_steps(stage))
    queues += _find_later_queues(wiring, backlog) if backlog.jobs else []
    reads = frozenset(backlog.reads)
    # what cannot be read first is dropped, if the user has allowed that
    gate = Gate(failed_too=conditions.drops and bool(reads)) if backlog.jobs or postponed else None
    if stopping:  # they stop before anything else is planned; the queues are those of what follows
        steps, gate, reads = settle(stopping), Gate(), frozenset()
    changes = tuple(_make_job_change(decision) for decision in stage.decisions)
    gate = gate if steps else None
    return Plan(desired.name, changes, steps, gate, tuple(queues), reads, conditions.limit_s)


def _find_later_queues(then: Wiring, backlog: Backlog) -> list[DroppedQueue]:
    """The queues that the change drops once the backlog has been read: who asks for the change has
    to know them now."""
    _, queues = mark_queues(then, make_steps(then))
    return [
        queue
        for queue in queues
        if queue.job_name not in backlog.jobs and queue.client_id not in backlog.spared
    ]


def make_steps(wiring: Wiring) -> tuple[Step, ...]:
    """The steps of a wiring, each numbered after those before it."""
    fed = reserve_fed_links(wiring, 0)
    stopped = stop_jobs(wiring, fed, last := len(fed.steps))
    last += len(stopped.steps)
    stopped, switched = switch(wiring, fed, stopped, last)
    last += len(switched.steps)
    left = reserve_left_links(wiring, stopped, last)
    last += len(left.steps)
    ended, renewed = renew_sessions(wiring, stopped, switched, last)
    last += len(ended.steps) + len(renewed.steps)
    reserved = fed.joined(left).joined(renewed)
    handed_over = switched.joined(hand_over(wiring, reserved, stopped, switched, last))
    last += len(handed_over.steps) - len(switched.steps)
    started = start_jobs(wiring, Before(reserved, stopped, handed_over), last)
    last += len(started.steps)
    released = ended.joined(release_sessions(wiring, stopped, handed_over, started, last))
    last += len(released.steps) - len(ended.steps)
    forgotten = forget_jobs(wiring, stopped, released, last)
    steps = (
        *reserved.steps,
        *stopped.steps,
        *handed_over.steps,
        *started.steps,
        *released.steps,
        *forgotten,
    )
    return tuple(sorted(steps, key=lambda step: step.id))


def _make_job_change(decision: Decision) -> JobChange:
    return JobChange(
        decision.job_name,
        decision.action,
        decision.reason,
        decision.old.job.site if decision.old else None,
        decision.new.site if decision.new else None,
    )
