"""What starts, stops, moves and is updated, by the text of the plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from speck.deploy.planner.situation import Outside
from speck.model.composition import Composition
from speck.model.engines import ArtifactKind
from speck.model.incarnation import EndState, Inventory, Session
from speck.model.job import DesiredState, Upgrade
from speck.model.link import Link
from speck.model.observation import Observation, RunState
from tests.unit.deploy.planner.plans import (
    A,
    B,
    deployed,
    job,
    moved,
    plan_composition,
    plan_jobs,
    running,
    text,
)


def test_new_jobs_start_after_the_readers_of_their_links_are_reserved() -> None:
    assert (
        text(plan_jobs(Inventory(), A, B))
        == """
[] -> #1 reserve edge-a/T-1 for A: new reader
[] -> #2 reserve cloud/T-2 for B: new reader
[] -> #3 upload aaaaaaaa to edge-a: needed there
[1,2,3] -> #4 start A on edge-a: new job
[] -> #5 upload aaaaaaaa to cloud: needed there
[2,5] -> #6 start B on cloud: new job
"""
    )


def test_nothing_to_do_when_everything_runs_as_wanted() -> None:
    plan = plan_jobs(deployed(A, B), A, B)
    assert plan.empty
    assert plan.summary() == {"add": 0, "update": 0, "move": 0, "remove": 0, "unchanged": 2}


def test_the_order_of_jobs_in_the_composition_does_not_matter() -> None:
    assert str(plan_jobs(Inventory(), A, B)) == str(plan_jobs(Inventory(), B, A))


@pytest.mark.parametrize(
    ("change", "site", "reason"),
    [({"args": ("--x",)}, "edge-a", "args changed"),
     ({"site": "edge-b"}, "edge-b", "site edge-a -> edge-b")],
    ids=["update", "move"],
)  # fmt: skip
def test_a_job_stops_after_its_main_was_tried_and_keeps_the_session_of_an_unchanged_link(
    change: dict[str, Any], site: str, reason: str
) -> None:
    plan = plan_jobs(deployed(A, B), replace(A, **change), B)
    assert (
        text(plan)
        == f"""
[] -> #1 upload aaaaaaaa to {site}: needed there
[1] -> #2 try A on {site}: before it stops
[2] -> #3 stop A on edge-a: {reason}
[1,3] -> #4 start A on {site}: {reason}
[3,4] -> #5 return A to edge-a: if #4 fails
"""
    )


def test_main_is_tried_once_for_jobs_that_differ_in_name_and_links_only() -> None:
    c = job("C", "edge-a/T-5", "edge-a/T-6")
    changed = [replace(A, args=("--x",)), replace(c, args=("--x",))]
    plan = plan_jobs(deployed(A, c), *changed)
    tries = [step for step in plan.steps if step.operation.kind == "try"]
    stops = [step for step in plan.steps if step.operation.kind == "stop"]
    assert len(tries) == 1
    assert [tries[0].id in step.after for step in stops] == [True, True]
    other = plan_jobs(deployed(A, c), changed[0], replace(c, args=("--y",)))
    assert str(other).count("try") == 2


def test_a_rebuilt_jar_is_an_update() -> None:
    plan = plan_jobs(deployed(A), replace(A, artifact="b" * 64))
    assert plan.jobs[0].action == "update"
    assert plan.jobs[0].reason == "artifact aaaaaaaa -> bbbbbbbb"


TURNED_B = "source cloud/T-2 -> edge-a/T-1; sink cloud/T-3 -> cloud/T-2"
NUMBERED = "at least once where a publisher does not number its messages"


def test_a_chain_can_be_turned_round() -> None:
    turned = (job("A", "cloud/T-2", "cloud/T-3"), job("B", "edge-a/T-1", "cloud/T-2", "cloud"))
    assert (
        text(plan_jobs(deployed(A, B), *turned))
        == f"""
[] -> #1 reserve edge-a/T-1 for B: follows A
[] -> #2 upload aaaaaaaa to edge-a: needed there
[2] -> #3 try A on edge-a: before it stops
[1] -> #4 drain edge-a/T-1 for A: what was sent so far
[1,3,4] -> #5 stop A on edge-a: source edge-a/T-1 -> cloud/T-2; sink cloud/T-2 -> cloud/T-3
[] -> #6 upload aaaaaaaa to cloud: needed there
[6] -> #7 try B on cloud: before it stops
[5] -> #8 drain cloud/T-2 for B: A left it
[7,8] -> #9 stop B on cloud: source cloud/T-2 -> edge-a/T-1; sink cloud/T-3 -> cloud/T-2
[5] -> #10 reserve cloud/T-2 for A: follows B
[9,10] -> #11 handover cloud/T-2 from B to A: goes on where B ended
[1,5] -> #12 handover edge-a/T-1 from A to B: goes on where A ended; {NUMBERED}
[2,5,10,11] -> #13 start A on edge-a: source edge-a/T-1 -> cloud/T-2; sink cloud/T-2 -> cloud/T-3
[5,8,13] -> #14 clear A's numbers at cloud: its links changed
[1,6,9,10,11,12,13] -> #15 start B on cloud: {TURNED_B}
[9,15] -> #16 clear B's numbers at cloud: its links changed
[5,12,13,15] -> #17 release edge-a/T-1 of A: left
[9,11,13,15] -> #18 release cloud/T-2 of B: left
"""
    )


def test_a_stopped_job_keeps_its_session() -> None:
    inventory = deployed(A)
    plan = plan_jobs(inventory, replace(A, state=DesiredState.STOPPED))
    assert (
        text(plan)
        == """
[] -> #1 stop A on edge-a: state running -> stopped
"""
    )
    assert plan.jobs[0].action == "update"


def test_a_stopped_job_comes_back_from_its_savepoint() -> None:
    inventory = deployed(A)
    ended = replace(inventory.jobs["A"], end=EndState.ENDED, savepoint="file:/s")
    plan = plan_jobs(replace(inventory, jobs={"A": ended}), A)
    assert (
        text(plan)
        == """
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 start A on edge-a: state stopped -> running
"""
    )
    assert plan.steps[1].operation.keeps_state  # type: ignore[union-attr]


def test_a_failed_job_is_started_again_as_a_new_attempt() -> None:
    inventory = deployed(A)
    plan = plan_jobs(inventory, A, observed=running(inventory, A=RunState.FAILED))
    assert "start A on edge-a: not running: failed" in str(plan)
    assert plan.steps[-1].operation.attempt == 2  # type: ignore[union-attr]


def test_a_stateless_update_starts_from_nothing() -> None:
    new = replace(A, args=("--x",), upgrade=Upgrade.STATELESS)
    plan = plan_jobs(deployed(A), new)
    assert plan.steps[-2].operation.keeps_state is False  # type: ignore[union-attr]


def test_a_job_that_restarts_without_state_is_cancelled_instead_of_saved() -> None:
    new = replace(A, args=("--x",), upgrade=Upgrade.STATELESS)
    assert "cancel A on edge-a" in str(plan_jobs(deployed(A, B), new, B))
    assert "cancel A on edge-a" in str(plan_jobs(deployed(A, B), moved(new, "edge-b"), B))
    assert "stop A on edge-a" in str(plan_jobs(deployed(A, B), replace(A, args=("--x",)), B))


def test_silence_of_a_site_is_no_word_that_a_job_is_gone() -> None:
    inventory = deployed(A)
    plan = plan_jobs(inventory, A, observed=Observation({}, unreachable={"edge-a": "no answer"}))
    assert plan.empty


def test_a_start_waits_for_the_stop_that_frees_its_slot() -> None:
    inventory = deployed(A, B)
    swapped = (
        replace(A, site="cloud"),
        replace(B, site="edge-a"),
    )
    plan = plan_jobs(inventory, *swapped, observed=running(inventory, free=0))
    assert (
        text(plan)
        == """
[] -> #1 upload aaaaaaaa to cloud: needed there
[1] -> #2 try A on cloud: before it stops
[2] -> #3 stop A on edge-a: site edge-a -> cloud
[] -> #4 upload aaaaaaaa to edge-a: needed there
[4] -> #5 try B on edge-a: before it stops
[5] -> #6 stop B on cloud: site cloud -> edge-a
[1,3,6] -> #7 start A on cloud: site edge-a -> cloud
[3,7] -> #8 return A to edge-a: if #7 fails
[3,4,6] -> #9 start B on edge-a: site cloud -> edge-a
[6,9] -> #10 return B to cloud: if #9 fails
"""
    )


def test_what_another_composition_reads_counts_as_read() -> None:
    outside = Outside(frozenset({A.sink}))
    plan = plan_composition(Composition("c", (A,)), Inventory(), outside=outside)
    assert plan.steps[-1].operation.sink_has_readers  # type: ignore[union-attr]


def test_a_stopped_job_that_was_edited_is_an_update() -> None:
    ended = replace(deployed(A).jobs["A"], end=EndState.ENDED, savepoint="file:/s")
    plan = plan_jobs(
        replace(deployed(A), jobs={"A": ended}),
        replace(A, state=DesiredState.STOPPED, args=("--x",)),
    )
    assert (plan.jobs[0].action, plan.jobs[0].reason) == (
        "update",
        "args changed; stopped, as wanted",
    )
    assert plan.empty


class Counted(tuple[Session, ...]):
    """Counts how often it is read from its beginning."""

    reads = 0

    def __iter__(self) -> Iterator[Session]:
        type(self).reads += 1
        return super().__iter__()


@pytest.mark.parametrize("change", ["removal", "new args", "other sinks", "a move", "new readers"])
def test_a_plan_reads_the_sessions_as_often_however_many_jobs_it_has(change: str) -> None:
    """Each rule that searched them for each job made the plan of 3200 removals a second longer."""
    reads = []
    for number in (4, 40):
        jobs = [job(f"J{n}", f"edge-a/in-{n}", f"cloud/out-{n}") for n in range(number)]
        inventory = deployed(*jobs)
        inventory = replace(inventory, sessions=Counted(inventory.sessions))
        wanted = {
            "removal": [],
            "new args": [replace(each, args=("--x",)) for each in jobs],
            "other sinks": [
                replace(each, sink=Link("cloud", f"new-{n}")) for n, each in enumerate(jobs)
            ],
            "a move": [replace(each, site="cloud") for each in jobs],
            "new readers": [*jobs, *(replace(j, job_name=f"{j.job_name}b") for j in jobs)],
        }[change]
        Counted.reads = 0
        plan_jobs(inventory, *wanted, observed=running(inventory, 1000))
        reads.append(Counted.reads)
    assert reads[0] == reads[1]


def test_of_two_engines_at_a_site_one_may_be_silent() -> None:
    """Nothing is concluded of its jobs; those of the other are planned as ever."""
    woven = job("W", "edge-a/T-8", "edge-a/T-9", artifact_kind=ArtifactKind.TEXT)
    inventory = deployed(A, woven)
    views = dict(running(inventory).engines)
    lost = replace(views["edge-a"], jobs={}, silent={ArtifactKind.TEXT: "no answer"})
    observed = Observation({**views, "edge-a": lost})
    plan = plan_jobs(inventory, A, woven, observed=observed)
    assert (
        text(plan)
        == """
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 start A on edge-a: not running: edge-a does not know it
"""
    )


def test_what_runs_beside_an_engine_takes_none_of_its_slots() -> None:
    woven = job("W", "edge-a/T-8", "edge-a/T-9", artifact_kind=ArtifactKind.TEXT)
    inventory = deployed(A)
    views = dict(running(inventory, free=0).engines)
    views["edge-a"] = replace(views["edge-a"], beside=frozenset({ArtifactKind.TEXT}))
    plan = plan_jobs(inventory, woven, observed=Observation(views))
    assert (
        text(plan)
        == """
[] -> #1 reserve edge-a/T-8 for W: new reader
[] -> #2 cancel A on edge-a: no longer wanted
[] -> #3 upload aaaaaaaa to edge-a: needed there
[1,3] -> #4 start W on edge-a: new job
[2] -> #5 release edge-a/T-1 of A: left; abandons what is queued (number not known)
[2,5] -> #6 forget A: removed
"""
    )
