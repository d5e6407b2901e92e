"""The planner, by the text of its plans."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from speck.deploy.planner import plan as make_plan
from speck.deploy.planner.situation import Conditions, Outside
from speck.model.composition import Composition, Reader
from speck.model.engines import ArtifactKind
from speck.model.ids import engine_job_id, sink_client_id, source_client_id
from speck.model.incarnation import (
    EndState,
    FormerSink,
    Incarnation,
    Inventory,
    Session,
    StaleSink,
    StartState,
)
from speck.model.job import Delivery, DesiredState, Job, Upgrade
from speck.model.job_operations import Forget, Return, Start
from speck.model.link import Link
from speck.model.link_operations import DRAIN_LIMIT_S, Clear, Drain
from speck.model.observation import (
    BrokerView,
    EngineJob,
    EngineView,
    Observation,
    RunState,
    Sent,
    Slots,
    Taken,
)
from speck.model.plan import Plan
from tests.sample_job import make_job

INSTALLATION = "0123456789abcdef"
JAR = "a" * 64


def job(name: str, source: str, sink: str, site: str = "edge-a", **more: object) -> Job:
    """`source` and `sink` are `site/topic`."""
    links = [Link(s, t) for s, t in (source.split("/"), sink.split("/"))]
    values = {"entry_class": "package.ExampleJob", "artifact": JAR, **more}
    return make_job(name, links[0], links[1], site, **values)


def deployed(*jobs: Job) -> Inventory:
    """An inventory in which every job runs as its first attempt."""
    incarnations = {
        j.job_name: Incarnation(
            j, 1, engine_job_id(INSTALLATION, "c", j.job_name, 1, 1), start=StartState.CONFIRMED
        )
        for j in jobs
    }
    sessions = tuple(
        Session(
            source_client_id(INSTALLATION, j.job_name, j.source),
            j.source,
            j.source_site,
            j.job_name,
        )
        for j in jobs
    )
    return Inventory(incarnations, sessions, {j.job_name: 1 for j in jobs})


def running(inventory: Inventory, free: int = 8, **states: RunState) -> Observation:
    """Every incarnation runs, or is in the state given by its name; all sites answer."""
    sites: dict[str, dict[str, EngineJob]] = {"edge-a": {}, "edge-b": {}, "cloud": {}}
    for name, d in inventory.jobs.items():
        state = states.get(name, RunState.RUNNING)
        sites[d.job.site][d.engine_job_id] = EngineJob(d.engine_job_id, name, state, 1, 1)
    return Observation(
        {site: EngineView("2.3.0", Slots(8, free), jobs) for site, jobs in sites.items()}
    )


def plan_jobs(
    inventory: Inventory, *jobs: Job, observed: Observation | None = None, **options: Any
) -> Plan:
    return plan_composition(Composition("c", jobs), inventory, observed, **options)


def plan_composition(
    desired: Composition,
    inventory: Inventory,
    observation: Observation | None = None,
    outside: Outside = Outside(),  # noqa: B008 (frozen)
    *,
    drop_queues: bool = False,
    drain_limit_s: float = DRAIN_LIMIT_S,
    **conditions: Any,
) -> Plan:
    """The plan of a composition whose jobs run unless something else is observed."""
    observed = observation or running(inventory)
    limit_s = drain_limit_s if drop_queues else None
    asked = Conditions(limit_s, **conditions)
    return make_plan(desired, inventory, observed, INSTALLATION, outside, asked)


def text(plan: Plan) -> str:
    return "\n" + str(plan) + "\n"


A = job("A", "edge-a/T-1", "cloud/T-2")
B = job("B", "cloud/T-2", "cloud/T-3", site="cloud")


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


def test_new_args_update_in_place_after_main_was_tried() -> None:
    plan = plan_jobs(deployed(A, B), replace(A, args=("--x",)), B)
    assert (
        text(plan)
        == """
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 try A on edge-a: before it stops
[2] -> #3 stop A on edge-a: args changed
[1,3] -> #4 start A on edge-a: args changed
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


def test_a_move_keeps_the_session_of_an_unchanged_link() -> None:
    plan = plan_jobs(deployed(A, B), replace(A, site="edge-b"), B)
    assert (
        text(plan)
        == """
[] -> #1 upload aaaaaaaa to edge-b: needed there
[1] -> #2 try A on edge-b: before it stops
[2] -> #3 stop A on edge-a: site edge-a -> edge-b
[1,3] -> #4 start A on edge-b: site edge-a -> edge-b
[3,4] -> #5 return A to edge-a: if #4 fails
"""
    )


def test_a_link_that_both_ends_leave_is_drained_between_their_stops() -> None:
    new = (
        replace(A, sink=Link("cloud", "T-9")),
        replace(B, source=Link("cloud", "T-9")),
    )
    assert (
        text(plan_jobs(deployed(A, B), *new))
        == """
[] -> #1 reserve cloud/T-9 for B: new reader
[] -> #2 upload aaaaaaaa to edge-a: needed there
[2] -> #3 try A on edge-a: before it stops
[3] -> #4 stop A on edge-a: sink cloud/T-2 -> cloud/T-9
[] -> #5 upload aaaaaaaa to cloud: needed there
[5] -> #6 try B on cloud: before it stops
[4] -> #7 drain cloud/T-2 for B: A left it
[6,7] -> #8 stop B on cloud: source cloud/T-2 -> cloud/T-9
[1,2,4] -> #9 start A on edge-a: sink cloud/T-2 -> cloud/T-9
[4,7,9] -> #10 clear A's numbers at cloud: its links changed
[1,5,8] -> #11 start B on cloud: source cloud/T-2 -> cloud/T-9
[8,11] -> #12 return B to cloud: if #11 fails
[8,9,11] -> #13 release cloud/T-2 of B: left
"""
    )


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


def test_removal_drains_from_the_beginning_to_the_end() -> None:
    assert (
        text(plan_jobs(deployed(A, B)))
        == """
[] -> #1 stop A on edge-a: no longer wanted
[1] -> #2 drain cloud/T-2 for B: A left it
[2] -> #3 cancel B on cloud: no longer wanted
[1] -> #4 release edge-a/T-1 of A: left; abandons what is queued (number not known)
[3] -> #5 release cloud/T-2 of B: left
[1,2,4,5] -> #6 forget A: removed
[3,5] -> #7 forget B: removed
"""
    )


def test_what_outsiders_read_is_released_after_its_producers_have_stopped() -> None:
    outside = Session("dashboard", B.sink, "cloud", None)
    inventory = deployed(A, B)
    plan = plan_jobs(replace(inventory, sessions=(*inventory.sessions, outside)))
    assert "[2] -> #3 stop B on cloud" in str(plan), "only a stop reports its last number"
    assert "[3] -> #6 release cloud/T-3 of dashboard: left" in str(plan)


def test_removal_without_draining_cancels_all_at_once() -> None:
    assert (
        text(plan_jobs(deployed(A, B), drop_queues=True, drain_limit_s=0))
        == """
drops the queue of A at edge-a/T-1 (number not known): the job leaves it undrained
drops the queue of B at cloud/T-2 (number not known): the job leaves it undrained
[] -> #1 cancel A on edge-a: no longer wanted
[] -> #2 cancel B on cloud: no longer wanted
[1] -> #3 release edge-a/T-1 of A: left; drops its queue
[2] -> #4 release cloud/T-2 of B: left; drops its queue
[1,3,4] -> #5 forget A: removed
[2,4] -> #6 forget B: removed
"""
    )


def test_the_plan_says_how_many_messages_a_reader_abandons() -> None:
    inventory = deployed(A, B)
    sink = sink_client_id(INSTALLATION, "A", A.source, A.sink)
    brokers = {"cloud": BrokerView({}, {sink: Sent("p", 1, 5)})}
    observed = replace(running(inventory), brokers=brokers)
    plan = plan_jobs(inventory, A, observed=observed)
    assert "release cloud/T-2 of B: left; abandons 5 queued messages" in str(plan)


def test_a_reader_that_stays_is_not_drained() -> None:
    assert "drain" not in str(plan_jobs(deployed(A, B), B))


def test_a_reader_in_the_middle_takes_what_was_sent_before_another_reads_on() -> None:
    read_on = job("B", "edge-a/X", "cloud/T-3", site="cloud")
    middle = job("M", "edge-a/X", "cloud/T-2")
    inventory = deployed(job("A", "edge-a/T-1", "edge-a/X"), middle, B)
    plan = plan_jobs(inventory, job("A", "edge-a/T-1", "edge-a/X"), read_on)
    assert (
        text(plan)
        == """
[] -> #1 reserve edge-a/X for B: follows M
[1] -> #2 drain edge-a/X for M: what was sent so far
[1,2] -> #3 stop M on edge-a: no longer wanted
[] -> #4 upload aaaaaaaa to cloud: needed there
[4] -> #5 try B on cloud: before it stops
[3] -> #6 drain cloud/T-2 for B: M left it
[5,6] -> #7 stop B on cloud: source cloud/T-2 -> edge-a/X
[1,3] -> #8 handover edge-a/X from M to B: goes on where M ended
[1,4,7,8] -> #9 start B on cloud: source cloud/T-2 -> edge-a/X
[7,9] -> #10 return B to cloud: if #9 fails
[7,9] -> #11 release cloud/T-2 of B: left
[3,8,9] -> #12 release edge-a/X of M: left
[3,6,11,12] -> #13 forget M: removed
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


def test_results_that_wait_for_a_checkpoint_are_published_by_a_stop() -> None:
    new = replace(A, args=("--x",), upgrade=Upgrade.STATELESS)
    exact = replace(A, delivery=Delivery.EXACTLY_ONCE)
    assert "stop A" in str(plan_jobs(deployed(exact, B), replace(new, delivery=exact.delivery), B))
    assert "stop A" in str(plan_jobs(deployed(A, B), replace(new, delivery=exact.delivery), B))


def test_a_job_without_state_whose_links_change_reports_its_last_number() -> None:
    new = replace(A, sink=Link("cloud", "T-9"), upgrade=Upgrade.STATELESS)
    assert "stop A on edge-a" in str(plan_jobs(deployed(A, B), new, B))
    new = replace(A, source=Link("edge-a", "T-9"), upgrade=Upgrade.STATELESS)
    assert "stop A on edge-a" in str(plan_jobs(deployed(A, B), new, B))


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


OUT = Session("dashboard", A.sink, "cloud", None)


def test_an_outsider_s_session_ends_before_it_begins_on_another_topic() -> None:
    inventory = replace(deployed(A), sessions=(*deployed(A).sessions, OUT))
    new = replace(A, sink=Link("cloud", "T-9"))
    desired = Composition("c", (new,), (Reader("dashboard", new.sink, "cloud"),))
    assert (
        text(plan_composition(desired, inventory))
        == """
drops the queue of dashboard at cloud/T-2 (number not known): its reader is outside speck
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 try A on edge-a: before it stops
[2] -> #3 stop A on edge-a: sink cloud/T-2 -> cloud/T-9
[3] -> #4 release cloud/T-2 of dashboard: left; drops its queue
[4] -> #5 reserve cloud/T-9 for dashboard: new reader
[1,3,5] -> #6 start A on edge-a: sink cloud/T-2 -> cloud/T-9
[3,6] -> #7 clear A's numbers at cloud: its links changed
"""
    )


def with_open_start(new: Job, **more: Any) -> Inventory:
    """A's first start was asked for, and no answer was heard."""
    inventory = deployed(new)
    incarnation = replace(inventory.jobs["A"], **{"start": StartState.REQUESTED, **more})
    return replace(inventory, jobs={"A": incarnation})


NOT_LISTED = running(Inventory())


def test_a_start_without_an_answer_is_sent_again_under_its_id() -> None:
    plan = plan_jobs(with_open_start(A), A, observed=NOT_LISTED)
    assert (
        text(plan)
        == """
[] -> #1 upload aaaaaaaa to edge-a: needed there
[1] -> #2 start A on edge-a: not started yet: not running: edge-a does not know it
"""
    )
    assert plan.jobs[0].action == "add"
    assert plan.steps[1].operation.attempt == 1  # type: ignore[union-attr]


def test_a_start_without_an_answer_is_settled_before_another() -> None:
    plan = plan_jobs(with_open_start(A), replace(A, args=("--x",)), observed=NOT_LISTED)
    assert [step.operation.kind for step in plan.steps] == ["upload", "try", "fence", "start"]
    assert plan.steps[-1].after == (1, 3)
    assert plan.steps[-1].operation.attempt == 2  # type: ignore[union-attr]


def test_a_start_that_the_engine_took_on_and_forgot_is_no_new_job() -> None:
    plan = plan_jobs(with_open_start(A, start=StartState.ACCEPTED), A, observed=NOT_LISTED)
    assert plan.steps[-1].operation.attempt == 2  # type: ignore[union-attr]
    assert plan.steps[-1].operation.keeps_state  # type: ignore[union-attr]


def test_silence_does_not_turn_a_start_without_an_answer_into_a_stop() -> None:
    silent = Observation({}, unreachable={"edge-a": "no answer"})
    plan = plan_jobs(with_open_start(A), replace(A, args=("--x",)), observed=silent)
    assert "fence" in [step.operation.kind for step in plan.steps]


def test_a_failed_drain_does_not_keep_its_producer_down() -> None:
    new = (
        replace(A, sink=Link("cloud", "T-9")),
        replace(B, source=Link("cloud", "T-9")),
    )
    plan = plan_jobs(deployed(A, B), *new)
    start = next(s for s in plan.steps if str(s.operation) == "start A on edge-a")
    drains = {s.id for s in plan.steps if isinstance(s.operation, Drain)}
    assert drains and not drains & {*start.after}


def test_what_a_reader_is_owed_is_drained_though_nobody_leaves_its_link() -> None:
    inventory = deployed(B)
    owed = replace(inventory.sessions[0], owed=(("p", 1, 3),))
    plan = plan_jobs(replace(inventory, sessions=(owed,)))
    assert "[] -> #1 drain cloud/T-2 for B: left from before" in str(plan)


def test_a_producer_that_has_stopped_before_is_drained() -> None:
    inventory = deployed(A, B)
    ended = replace(inventory.jobs["A"], end=EndState.ENDED, savepoint="file:/s")
    inventory = replace(inventory, jobs={**inventory.jobs, "A": ended})
    stopped = replace(A, state=DesiredState.STOPPED)
    assert "drain cloud/T-2 for B: A left it" in str(plan_jobs(inventory, stopped))


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


def test_of_a_jar_that_tells_no_numbers_nothing_is_known() -> None:
    foreign = replace(A, args=("--in={source_topic}",))
    sink = sink_client_id(INSTALLATION, "A", A.source, A.sink)
    plan = plan_jobs(deployed(foreign, B))
    drain = next(s.operation for s in plan.steps if isinstance(s.operation, Drain))
    assert drain.silent == (sink,)
    assert "release cloud/T-2 of B: left; abandons what is queued (number not known)" in str(plan)


def sink_of(new: Job) -> str:
    return sink_client_id(INSTALLATION, new.job_name, new.source, new.sink)


def fed_by(topic: str) -> Job:
    return replace(A, source=Link("edge-a", topic))


def with_former(*topics: str, now: Job = A) -> Inventory:
    """`now` and B run; `now` had these topics as its source before, over the same sink link."""
    inventory = deployed(now, B)
    former = tuple(FormerSink(now.sink, sink_of(fed_by(topic))) for topic in topics)
    a = replace(inventory.jobs["A"], former_sinks=former)
    return replace(inventory, jobs={**inventory.jobs, "A": a})


def former_of(operation: Start | Return) -> tuple[str, ...]:
    return tuple(former.client_id for former in operation.former_sinks)


def start_of(plan: Plan, job_name: str) -> Start:
    starts = (s.operation for s in plan.steps if isinstance(s.operation, Start))
    return next(start for start in starts if start.job_name == job_name)


def test_a_changed_source_leaves_the_numbers_of_the_sink_s_link() -> None:
    plan = plan_jobs(deployed(A, B), fed_by("T-8"), B)
    assert (
        text(plan)
        == """
[] -> #1 reserve edge-a/T-8 for A: new reader
[] -> #2 upload aaaaaaaa to edge-a: needed there
[2] -> #3 try A on edge-a: before it stops
[3] -> #4 stop A on edge-a: source edge-a/T-1 -> edge-a/T-8
[1,2,4] -> #5 start A on edge-a: source edge-a/T-1 -> edge-a/T-8
[4,5] -> #6 return A to edge-a: if #5 fails
[4,5] -> #7 release edge-a/T-1 of A: left; abandons what is queued (number not known)
"""
    )
    assert former_of(start_of(plan, "A")) == (sink_of(A),)


def test_a_start_on_the_same_sink_link_remembers_what_the_one_before_did() -> None:
    inventory = with_former("T-7")
    for new in (replace(A, args=("--x",)), replace(A, upgrade=Upgrade.STATELESS, parallelism=2)):
        assert former_of(start_of(plan_jobs(inventory, new, B), "A")) == (sink_of(fed_by("T-7")),)
    failed = running(inventory, A=RunState.FAILED)
    plan = plan_jobs(inventory, A, B, observed=failed)
    assert former_of(start_of(plan, "A")) == (sink_of(fed_by("T-7")),)


def test_a_start_that_is_sent_again_remembers_the_same() -> None:
    former = (FormerSink(A.sink, sink_of(fed_by("T-7"))),)
    plan = plan_jobs(with_open_start(A, former_sinks=former), A, observed=NOT_LISTED)
    assert start_of(plan, "A").former_sinks == former


def test_a_source_that_comes_back_is_no_former_one() -> None:
    plan = plan_jobs(with_former("T-7", "T-8"), fed_by("T-7"), B)
    assert former_of(start_of(plan, "A")) == (sink_of(fed_by("T-8")), sink_of(A))
    assert "clear" not in str(plan)


def test_a_drain_goes_by_the_numbers_told_under_former_sources_too() -> None:
    plan = plan_jobs(with_former("T-7", now=fed_by("T-8")))
    assert (
        text(plan)
        == """
[] -> #1 stop A on edge-a: no longer wanted
[1] -> #2 drain cloud/T-2 for B: A left it
[2] -> #3 cancel B on cloud: no longer wanted
[1] -> #4 release edge-a/T-8 of A: left; abandons what is queued (number not known)
[3] -> #5 release cloud/T-2 of B: left
[1,2,4,5] -> #6 forget A: removed
[3,5] -> #7 forget B: removed
"""
    )
    both = {sink_of(fed_by("T-7")), sink_of(fed_by("T-8"))}
    drain = next(s.operation for s in plan.steps if isinstance(s.operation, Drain))
    assert set(drain.sinks) == both
    assert drain.silent == ()
    forget = next(s.operation for s in plan.steps if isinstance(s.operation, Forget))
    assert [set(left.sinks) for left in forget.left] == [both]


def test_all_numbers_are_cleared_once_the_sink_leaves_its_link() -> None:
    new = (
        replace(A, sink=Link("cloud", "T-9")),
        replace(B, source=Link("cloud", "T-9")),
    )
    plan = plan_jobs(with_former("T-7"), *new)
    (cleared,) = (s for s in plan.steps if isinstance(s.operation, Clear))
    drain = next(s for s in plan.steps if isinstance(s.operation, Drain))
    start = next(s for s in plan.steps if s.operation == start_of(plan, "A"))
    assert isinstance(cleared.operation, Clear)
    assert set(cleared.operation.sinks) == {sink_of(fed_by("T-7")), sink_of(A)}
    assert {start.id, drain.id} <= {*cleared.after}
    assert former_of(start_of(plan, "A")) == ()


def test_a_sink_on_another_link_takes_no_place_of_a_former_one() -> None:
    new = replace(fed_by("T-7"), sink=Link("cloud", "T-9"))
    plan = plan_jobs(with_former("T-7"), new, B)
    (clear,) = (s.operation for s in plan.steps if isinstance(s.operation, Clear))
    start = next(s for s in plan.steps if s.operation == start_of(plan, "A"))
    assert sink_of(new) not in clear.sinks and not start.whatever


def test_what_a_job_said_of_two_links_is_cleared_one_after_the_other() -> None:
    """Each stores the incarnation without its own reports: at once, one would be undone."""
    inventory = deployed(A)
    stale = [StaleSink("cloud", Link("cloud", t), f"{t}-out") for t in ("T-7", "T-8")]
    jobs = {"A": replace(inventory.jobs["A"], stale=tuple(stale))}
    plan = plan_jobs(replace(inventory, jobs=jobs), A)
    first, second = (s for s in plan.steps if isinstance(s.operation, Clear))
    assert first.id in second.after
    assert first.id in second.whatever, "the second is tried even if the first fails"


def test_the_numbers_of_the_last_eight_sources_are_kept() -> None:
    plan = plan_jobs(with_former(*(f"S-{n}" for n in range(8))), fed_by("T-8"), B)
    sinks = former_of(start_of(plan, "A"))
    assert sinks == (*(sink_of(fed_by(f"S-{n}")) for n in range(1, 8)), sink_of(A))
    clear = next(s for s in plan.steps if isinstance(s.operation, Clear))
    start = next(s for s in plan.steps if s.operation == start_of(plan, "A"))
    assert isinstance(clear.operation, Clear)
    assert clear.operation.sinks == (sink_of(fed_by("S-0")),)
    assert clear.id not in start.after


def test_what_was_sent_under_former_sources_counts_as_abandoned() -> None:
    inventory = with_former("T-7", "T-8")
    reader = source_client_id(INSTALLATION, "B", B.source)
    sent = {sink_of(fed_by("T-7")): Sent("i-A", 1, 9), sink_of(A): Sent("i-A", 3, 5)}
    cloud = BrokerView({reader: Taken(1, {"i-A": {1: 2}})}, sent)
    observed = replace(running(inventory), brokers={"cloud": cloud})
    plan = plan_jobs(inventory, A, observed=observed)
    assert "release cloud/T-2 of B: left; abandons 12 queued messages" in str(plan)


# -- ways back, and state that travels ----------------------------------------------------


def moved(old: Job, site: str) -> Job:
    return replace(old, site=site)


APART = frozenset({("edge-a", "edge-b"), ("edge-b", "edge-a")})


def apart(inventory: Inventory, *jobs: Job) -> Plan:
    """Planned where edge-a and edge-b cannot read each other's storage."""
    return plan_composition(Composition("c", jobs), inventory, apart=APART)


def test_state_is_carried_after_the_stop_and_before_the_start() -> None:
    assert (
        text(apart(deployed(A), moved(A, "edge-b")))
        == """
[] -> #1 upload aaaaaaaa to edge-b: needed there
[1] -> #2 try A on edge-b: before it stops
[2] -> #3 stop A on edge-a: site edge-a -> edge-b
[3] -> #4 carry A's state from edge-a to edge-b: they share no storage
[1,3,4] -> #5 start A on edge-b: site edge-a -> edge-b
[3,5] -> #6 return A to edge-a: if #5 fails
"""
    )


def test_no_state_is_carried_for_a_stateless_move_or_between_sites_that_share_it() -> None:
    stateless = replace(moved(A, "edge-b"), upgrade=Upgrade.STATELESS)
    assert "carry" not in str(apart(deployed(A), stateless))
    assert "carry" not in str(apart(deployed(A), moved(A, "cloud")))
    assert "carry" not in str(apart(deployed(A), replace(A, args=("--x",))))


def test_state_that_a_failed_move_left_behind_is_carried_by_the_next() -> None:
    """The failed attempt at edge-b left none; that of the one before lies at edge-a."""
    before = deployed(A).jobs["A"]
    there = moved(A, "edge-b")
    failed = Incarnation(there, 2, "f" * 32, start=StartState.VOID, end=EndState.ENDED, base=before)
    inventory = replace(deployed(A), jobs={"A": failed})
    assert "carry A's state from edge-a to edge-b" in str(apart(inventory, there))
    assert "carry" not in str(apart(inventory, A))


def test_nothing_comes_back_where_another_has_been_given_its_link() -> None:
    elsewhere = replace(A, source=Link("edge-a", "T-8"))
    plan = str(plan_jobs(deployed(A, B), elsewhere, B, job("C", "edge-a/T-1", "cloud/T-7")))
    assert "return A" not in plan


def test_nothing_comes_back_that_could_close_a_circle() -> None:
    """C is rewired from T-5 to write what A, as it was, reads."""
    c = job("C", "cloud/T-5", "cloud/T-6")
    new = (
        replace(A, source=Link("edge-a", "T-8")),
        replace(c, source=Link("cloud", "T-3"), sink=Link("edge-a", "T-1")),
    )
    plan = str(plan_jobs(deployed(A, B, c), *new, B))
    assert "start A" in plan
    assert "return A" not in plan


def test_what_was_told_by_a_failed_start_is_remembered_by_what_comes_back() -> None:
    new = fed_by("T-8")
    plan = plan_jobs(deployed(A, B), new, B)
    (back,) = (s.operation for s in plan.steps if isinstance(s.operation, Return))
    assert former_of(back) == (sink_of(new),)
    assert (back.attempt, back.failed) == (3, start_of(plan, "A").engine_job_id)


def test_a_job_that_does_not_run_has_no_way_back() -> None:
    inventory = deployed(A)
    plan = plan_jobs(inventory, A, observed=running(inventory, A=RunState.FAILED))
    assert "return" not in str(plan)


def test_a_start_that_would_close_a_circle_waits_for_what_stops() -> None:
    """While A still leads T-1 to T-2, what B takes from T-2 would come back to T-1 for ever."""
    old_b = job("B", "cloud/T-8", "cloud/T-9", site="cloud")
    new_a = job("A", "edge-a/T-6", "edge-a/T-7")
    new_b = job("B", "cloud/T-2", "edge-a/T-1", site="cloud")
    plan = plan_jobs(deployed(A, old_b), new_a, new_b)
    stop = next(s.id for s in plan.steps if str(s.operation) == "stop A on edge-a")
    started = next(
        s for s in plan.steps if isinstance(s.operation, Start) and s.operation.job == new_b
    )
    assert stop in started.after


def test_a_circle_that_runs_already_can_be_taken_apart() -> None:
    back = job("B", "cloud/T-2", "edge-a/T-1", site="cloud")
    plan = plan_jobs(deployed(A, back))
    assert plan.summary()["remove"] == 2
    assert all(before < step.id for step in plan.steps for before in step.after)


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
