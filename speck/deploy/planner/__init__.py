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
(e) within one job: the artifact is there and `main` was tried before it stops, it stops before it
    starts; `find_slot_waits`, `find_way_back`.

Stops never wait for starts, so every plan is acyclic by construction.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import count

from speck.deploy.planner.backlog import Backlog, find_backlog, find_postponed
from speck.deploy.planner.catching_up import switch
from speck.deploy.planner.decisions import Decision
from speck.deploy.planner.first_stage import read_first
from speck.deploy.planner.handovers import hand_over
from speck.deploy.planner.queues import mark_queues
from speck.deploy.planner.releases import release_sessions, renew_sessions
from speck.deploy.planner.sessions import reserve_fed_links, reserve_left_links
from speck.deploy.planner.settling import assume_ended, find_settling, list_unheard, settle
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
from speck.model.observation import Observation
from speck.model.plan import Gate, Plan, Step
from speck.model.queue import DroppedQueue


def plan(
    desired: Composition,
    inventory: Inventory,
    observation: Observation,
    installation: str,
    outside: Outside,
    conditions: Conditions,
) -> Plan:
    """The plan that makes `desired` true.

    `inventory` and `desired` belong to one scope (a composition, or one job posted alone);
    `outside` is what jobs of other scopes read and write. Without consent to drop queues, a session
    whose reader is outside speck, or does not run, is released only while nothing waits in it.
    """
    unheard = list_unheard(inventory, observation)
    inventory = assume_ended(inventory, unheard)
    situation = situate(desired, inventory, observation, installation, outside, conditions)
    wiring = wire(situation)
    backlog = find_backlog(wiring)
    stage, postponed = wiring, [] if backlog.jobs else find_postponed(wiring)
    if backlog.jobs:
        stage = read_first(wiring, backlog)
    elif postponed:
        wanted = situation.wanted.replaced([*situation.wanted.sessions, *postponed])
        stage = replace(wiring, situation=replace(situation, wanted=wanted))
    steps, queues = mark_queues(stage, make_steps(stage))
    if backlog.jobs and not steps:  # they read already: the rest need not wait for them
        backlog, stage = Backlog(), wiring
        steps, queues = mark_queues(stage, make_steps(stage))
    queues += _find_later_queues(wiring, backlog) if backlog.jobs else []
    reads = frozenset(backlog.reads)
    # what cannot be read first is dropped, if the user has allowed that
    gate = Gate(failed_too=conditions.drops and bool(reads)) if backlog.jobs or postponed else None
    settling = find_settling(wiring, stage, unheard)
    if settling.readers:  # before anything else is planned; the queues are those of what follows
        steps, reads = settle(wiring, settling), settling.reads
        gate = Gate(failed_too=conditions.drops)
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
    numbers = count(1)
    fed = reserve_fed_links(wiring, numbers)
    stopped, switched = switch(wiring, fed, stop_jobs(wiring, fed, numbers), numbers)
    left = reserve_left_links(wiring, stopped, numbers)
    ended, renewed = renew_sessions(wiring, stopped, switched, numbers)
    reserved = fed.joined(left).joined(renewed)
    handed_over = switched.joined(hand_over(wiring, reserved, stopped, switched, numbers))
    started = start_jobs(wiring, Before(reserved, stopped, handed_over), numbers)
    released = ended.joined(release_sessions(wiring, stopped, handed_over, started, numbers))
    forgotten = forget_jobs(wiring, stopped, released, numbers)
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
