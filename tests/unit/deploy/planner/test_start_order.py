"""Which starts wait for which others, and for which stops."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.model.incarnation import EndState, Inventory, Session, StartState
from speck.model.job import Job
from speck.model.job_operations import Start
from speck.model.link_operations import Release
from speck.model.observation import RunState
from speck.model.plan import Plan
from tests.unit.deploy.planner.plans import deployed, job, moved, plan_jobs, running
from tests.unit.deploy.planner.readers import steps_before

P = job("P", "edge-a/in", "edge-a/x")
R = job("R", "edge-a/x", "edge-a/y")
S = job("S", "edge-a/x", "edge-a/z")
ENDS = ("stop", "cancel")


def starts_before(plan: Plan, name: str) -> set[str]:
    """The jobs whose starts come before that of `name`."""
    starts = {it.id: it.operation for it in plan.steps if isinstance(it.operation, Start)}
    (own,) = (step for step, start in starts.items() if start.job.job_name == name)
    return {starts[step].job.job_name for step in steps_before(plan)[own] if step in starts}


def stops_before(plan: Plan, name: str) -> set[str]:
    """The jobs that stop, or end, before the start of `name`."""
    (own,) = (
        step.id
        for step in plan.steps
        if isinstance(step.operation, Start) and step.operation.job.job_name == name
    )
    stops = {it.id: it.operation.job_name for it in plan.steps if it.operation.kind in ENDS}
    return {stops[step] or "" for step in steps_before(plan)[own] if step in stops}


def stopped(inventory: Inventory, name: str) -> Inventory:
    old = replace(inventory.jobs[name], end=EndState.ENDED, savepoint="file:/s")
    return replace(inventory, jobs={**inventory.jobs, name: old})


def test_new_jobs_wait_for_none() -> None:
    plan = plan_jobs(deployed(), P, R, S)
    assert [starts_before(plan, name) for name in "PRS"] == [set(), set(), set()]


def test_jobs_that_only_move_wait_for_none() -> None:
    far = [moved(each, "cloud") for each in (P, R, S)]
    plan = plan_jobs(deployed(P, R, S), *far)
    assert [starts_before(plan, name) for name in "PRS"] == [set(), set(), set()]


def test_a_job_whose_output_changes_waits_for_the_new_reader() -> None:
    renamed = replace(P, sink=P.sink._replace(topic="w"))
    plan = plan_jobs(deployed(P, R), renamed, job("M", "edge-a/w", "edge-a/x"), R)
    assert starts_before(plan, "P") == {"M"}


@pytest.mark.parametrize("start", [StartState.REQUESTED, StartState.VOID])
def test_a_reader_that_has_never_begun_is_waited_for_like_a_new_one(start: StartState) -> None:
    """Its start was refused, or its answer was lost with the service. The session that it comes to
    take the place of stays until it runs."""
    renamed, m = replace(P, sink=P.sink._replace(topic="w")), job("M", "edge-a/w", "edge-a/y")
    before = stopped(stopped(deployed(P, R, m), "P"), "R")
    end = EndState.ENDED if start is StartState.VOID else EndState.NONE
    never = replace(before.jobs["M"], start=start, end=end)
    inventory = replace(before, jobs={**before.jobs, "M": never})
    observed = running(inventory, M=RunState.CANCELED)
    plan = plan_jobs(inventory, renamed, m, observed=observed)
    assert starts_before(plan, "P") == {"M"}
    (release,) = [each for each in plan.steps if isinstance(each.operation, Release)]
    starts = {each.id for each in plan.steps if isinstance(each.operation, Start)}
    assert isinstance(release.operation, Release) and release.operation.job_name == "R"
    assert starts <= steps_before(plan)[release.id]


def test_a_producer_does_not_wait_for_a_reader_that_goes_with_it_to_another_link() -> None:
    """The reader's drain may fail, and what comes meanwhile goes no other way."""
    p, r = (
        replace(P, sink=P.sink._replace(topic="w")),
        replace(R, source=P.sink._replace(topic="w")),
    )
    plan = plan_jobs(deployed(P, R), p, r)
    assert starts_before(plan, "P") == set()


def test_where_a_link_branches_it_does() -> None:
    p, r = (
        replace(P, sink=P.sink._replace(topic="w")),
        replace(R, source=P.sink._replace(topic="w")),
    )
    plan = plan_jobs(deployed(P, R, S), p, r, replace(S, source=R.sink))
    assert starts_before(plan, "P") == {"R", "S"}


def test_a_reader_outside_speck_makes_a_branch() -> None:
    """It gets what goes the former way until the link is left."""
    inventory = deployed(P, R)
    outside = Session("db", P.sink, P.sink.site, None)
    inventory = replace(inventory, sessions=(*inventory.sessions, outside))
    p, r = (
        replace(P, sink=P.sink._replace(topic="w")),
        replace(R, source=P.sink._replace(topic="w")),
    )
    assert starts_before(plan_jobs(inventory, p, r), "P") == {"R"}


def test_an_update_does_not_wait_for_a_job_that_replaces_a_reader_of_its_link() -> None:
    """It has its session beside the old one: nothing is lost if it cannot start."""
    new = job("C", "edge-a/x", "edge-a/y", "cloud")
    plan = plan_jobs(deployed(P, R, S), replace(P, parallelism=2), new, S)
    assert starts_before(plan, "P") == set()


def test_an_update_waits_for_who_stays_alone_at_its_link() -> None:
    """What is sent from then on is for R only, and S may come back."""
    behind = replace(S, source=R.sink)
    plan = plan_jobs(deployed(P, R, S), moved(P, "cloud"), moved(R, "cloud"), behind)
    assert "R" in starts_before(plan, "P")


def test_a_job_that_did_not_run_waits_until_rewired_jobs_downstream_have_stopped() -> None:
    inventory = stopped(deployed(P, R, job("T", "edge-a/y", "edge-a/out")), "P")
    other = replace(R, sink=R.sink._replace(topic="v"))
    plan = plan_jobs(inventory, P, other, job("T", "edge-a/v", "edge-a/out"))
    assert {"R", "T"} <= stops_before(plan, "P")


def test_a_job_that_did_not_run_waits_until_removed_readers_downstream_have_stopped() -> None:
    inventory = stopped(deployed(P, R, job("T", "edge-a/y", "edge-a/out")), "P")
    plan = plan_jobs(inventory, P, R)
    assert stops_before(plan, "P") == {"T"}


def test_a_rewired_chain_with_a_branch_starts_from_its_end() -> None:
    chain = [job(f"j{n:02}", f"edge-a/l{n}", f"edge-a/l{n + 1}") for n in range(20)]
    branch = job("branch", "edge-a/l1", "edge-a/b")
    plan = plan_jobs(deployed(*chain, branch), *map(_renamed, chain), branch)
    names = [each.job_name for each in chain]
    for number, name in enumerate(names):
        assert starts_before(plan, name) >= set(names[number + 1 :])


def _renamed(each: Job) -> Job:
    return replace(
        each,
        source=each.source._replace(topic=f"{each.source.topic}-new"),
        sink=each.sink._replace(topic=f"{each.sink.topic}-new"),
    )


def test_jobs_that_follow_one_reader_start_when_all_of_them_can_one_after_the_other() -> None:
    """If the first one cannot, nothing has been taken, and the way back is open."""
    e, f = job("E", "edge-a/x", "edge-a/w"), job("F", "edge-a/w", "edge-a/y")
    plan = plan_jobs(deployed(P, R), P, e, f, S)
    assert starts_before(plan, "E") == {"F"}
    assert starts_before(plan, "S") == {"E", "F"}


def test_a_job_that_begins_to_send_waits_for_a_reader_that_gets_another_sink_link() -> None:
    """If it could not start, what waits for it would go its former way, behind the branch."""
    p = replace(P, source=P.source._replace(topic="other"))
    r = replace(R, sink=R.sink._replace(topic="w"))
    assert "R" in starts_before(plan_jobs(deployed(P, R), p, r, S), "P")
