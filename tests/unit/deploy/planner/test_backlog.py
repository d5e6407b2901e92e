"""Sessions that are set aside while jobs read first: what these write is not for them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from speck.deploy.planner.backlog import Backlog, find_backlog
from speck.deploy.planner.situation import Conditions, Outside, situate
from speck.deploy.planner.wire import wire
from speck.model.composition import Composition
from speck.model.incarnation import Inventory
from speck.model.job import DesiredState
from speck.model.job_operations import Start
from speck.model.link import Link
from tests.unit.deploy.planner.plans import INSTALLATION, deployed, job, plan_jobs, running, sink_of
from tests.unit.deploy.planner.readers import (
    FEED,
    NEW,
    OLD,
    OTHER,
    client_id,
    end_jobs,
    list_handovers,
    reader,
    session,
    with_sessions,
)

FEED2 = job("feed2", "edge-a/in", "edge-a/T")
BEFORE = reader("before", "cloud/z")


def read_first(inventory: Inventory) -> Backlog:
    """Before `feed2` takes the place of `feed`, which was lost with its engine."""
    others = {name: each for name, each in inventory.jobs.items() if name != "feed"}
    observed = running(replace(inventory, jobs=others))
    desired = Composition("c", (FEED2, OLD, BEFORE))
    inputs = (inventory, observed, INSTALLATION, Outside(), Conditions())
    return find_backlog(wire(situate(desired, *inputs)))


def come_after(*ended: str, before: Any = None, **own: Any) -> Inventory:
    """The old reader came to the link after `feed` had left it, where another one had been."""
    there = session(BEFORE) if before is None else before
    of_old = session(OLD, begun=True, job=OLD, left_by=(sink_of(FEED),), **own)
    return with_sessions(end_jobs(deployed(FEED, OLD, BEFORE), *ended), there, of_old)


def test_a_reader_that_came_after_those_that_read_first_gives_way() -> None:
    backlog = read_first(come_after())
    assert backlog.jobs.keys() == {"feed"}
    assert backlog.set_aside == {client_id(OLD)}
    assert backlog.giving_way == {"old": replace(OLD, state=DesiredState.STOPPED)}


@pytest.mark.parametrize("how", ["former", "instead_of"])
def test_one_goes_on_whose_records_nobody_takes_where_they_were_taken_before(how: str) -> None:
    backlog = read_first(come_after("before", **{how: client_id(BEFORE)}))
    assert backlog.jobs.keys() == {"feed"}
    assert not backlog.set_aside
    assert not backlog.giving_way


@pytest.mark.parametrize("how", ["former", "instead_of"])
def test_it_gives_way_if_the_one_before_it_runs(how: str) -> None:
    backlog = read_first(come_after(**{how: client_id(BEFORE)}))
    assert backlog.giving_way.keys() == {"old"}


def test_its_session_begins_anew_if_it_does_not_run() -> None:
    backlog = read_first(come_after("before", "old", former=client_id(BEFORE)))
    assert backlog.set_aside == {client_id(OLD)}
    assert not backlog.giving_way


def test_it_gives_way_if_its_records_are_read_first_where_they_were_taken_before() -> None:
    """At the link that `feed` reads, by `feed` itself."""
    own = session(FEED)
    backlog = read_first(come_after("before", instead_of=own.client_id))
    assert backlog.reads == {own.client_id}
    assert backlog.giving_way.keys() == {"old"}


@pytest.mark.parametrize("waits", [True, False])
def test_a_reader_that_waits_beside_one_which_completes_a_change_reads_first_too(
    waits: bool,
) -> None:
    """What came since the old reader's end is for both of them, whatever is wanted next."""
    tail = job("tail", "cloud/x", "cloud/y", site="cloud")
    follows = {"follows": client_id(OLD)} if waits else {"former": client_id(BEFORE)}
    inventory = with_sessions(
        end_jobs(deployed(FEED, OLD, tail), "old"),
        session(OLD, begun=True, job=OLD),
        session(NEW, follows=client_id(OLD), whole=True, job=NEW),
        session(OTHER, beside=True, whole=True, job=OTHER, **follows),
    )
    plan = plan_jobs(inventory, FEED, reader("third"), replace(tail, sink=Link("cloud", "out")))
    assert plan.gate
    assert list_handovers(plan) == {"new": "old", **({"other": "old"} if waits else {})}
    starts = {step.operation.job_name for step in plan.steps if isinstance(step.operation, Start)}
    assert starts == {"new", *(("other",) if waits else ())}


@pytest.mark.parametrize("is_lost", [True, False])
def test_a_reader_goes_on_first_if_the_session_of_one_that_begins_where_it_ended_is_lost(
    is_lost: bool,
) -> None:
    """What came since then is in its own session only, for the jobs behind it as they were."""
    before = job("A", "edge-a/in", "edge-a/x"), job("B", "edge-a/x", "cloud/o1")
    after = job("A", "edge-a/in", "edge-a/y"), job("B", "edge-a/y", "cloud/o1")
    ended = end_jobs(deployed(*before), "A", "B")
    of_a, of_b = (replace(each, job=of) for each, of in zip(ended.sessions, before, strict=True))
    began = replace(of_a, begun=True), replace(of_b, begun=True, drained=True)
    new = job("S", "edge-a/in", "cloud/o2")
    of_new = session(new, job=new, reserved=not is_lost, whole=not is_lost, fed_outside=True)
    plan = plan_jobs(with_sessions(ended, *began, of_new), *after, new)
    starts = {each.operation.job for each in plan.steps if isinstance(each.operation, Start)}
    assert bool(plan.gate) is is_lost
    assert starts == ({*before} if is_lost else {*after, new})


def test_a_link_that_is_left_by_one_which_reads_first_is_read_by_the_one_before() -> None:
    """The reader of the input has gone on elsewhere, and so has one behind it, before the session
    of its follower was lost: both go back, and so does the one whose place it had taken."""
    old = job("E", "edge-a/in", "edge-a/p"), job("D", "edge-a/p", "edge-a/x")
    last = job("B", "edge-a/x", "cloud/o1")
    now = job("E", "edge-a/x", "edge-a/y"), job("D", "edge-a/y", "cloud/o1")
    new = job("C", "edge-a/in", "edge-a/x")
    inventory = with_sessions(
        end_jobs(deployed(*now, last), "B"),
        session(now[0], job=now[0], begun=True, former=client_id(last)),
        session(last, job=last, begun=True, drained=True, followed_by=client_id(now[0])),
        session(old[0], job=old[0], begun=True),
        session(old[1], job=old[1], begun=True, drained=True),
        session(new, job=new, follows=client_id(old[0]), reserved=False),
    )
    plan = plan_jobs(inventory, new, *now)
    starts = {each.operation.job for each in plan.steps if isinstance(each.operation, Start)}
    assert plan.gate and starts == {*old, last}
    assert list_handovers(plan) == {"B": "E"}


def test_a_first_stage_in_which_nothing_is_to_be_done_is_none() -> None:
    """What waits is read already: by a job that runs, whose beginning the service could not store
    before it was killed."""
    head, side = job("H", "edge-a/in", "edge-b/y"), job("S", "edge-b/y", "cloud/o2")
    inventory = deployed(head, side)
    sessions = [
        replace(
            each,
            begun=each.job_name != "S",
            committed=True,
            job=inventory.jobs[each.job_name or ""].job,
        )
        for each in inventory.sessions
    ]
    inventory = with_sessions(inventory, *sessions)
    new = job("H", "edge-a/in", "cloud/o"), job("S", "cloud/o", "cloud/o2")
    plan = plan_jobs(inventory, *new)
    assert plan.steps and not plan.empty
