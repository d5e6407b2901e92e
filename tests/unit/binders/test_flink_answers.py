"""Flink's JSON as plain data; the answers are shortened from real ones."""

from __future__ import annotations

from typing import Any

import pytest

from binders.flink import answers
from binders.flink.numbers import unix_ms
from speck.binding import SavedState, SaveProgress
from speck.errors import EngineRefusedError
from speck.model.measurement import PlanNode
from speck.model.observation import RunState, Slots

JOB = "a" * 32


@pytest.mark.parametrize(
    ("state", "tasks", "expected"),
    [
        ("INITIALIZING", (0, 0, 0), RunState.STARTING),
        ("CREATED", (0, 0, 2), RunState.STARTING),
        ("RUNNING", (0, 0, 0), RunState.STARTING),
        ("RUNNING", (0, 0, 2), RunState.STARTING),
        ("RUNNING", (1, 0, 2), RunState.STARTING),
        ("RUNNING", (2, 0, 2), RunState.RUNNING),
        ("RUNNING", (1, 1, 2), RunState.RUNNING),
        ("RUNNING", (0, 2, 2), RunState.STARTING),
        ("RESTARTING", (0, 0, 2), RunState.RESTARTING),
        ("RECONCILING", (0, 0, 2), RunState.RESTARTING),
        ("SUSPENDED", (0, 0, 2), RunState.RESTARTING),
        ("FAILING", (1, 0, 2), RunState.STOPPING),
        ("CANCELLING", (1, 0, 2), RunState.STOPPING),
        ("FINISHED", (0, 2, 2), RunState.FINISHED),
        ("CANCELED", (0, 0, 2), RunState.CANCELED),
        ("FAILED", (0, 0, 0), RunState.FAILED),
    ],
)
def test_running_means_that_every_task_runs(
    state: str, tasks: tuple[int, int, int], expected: RunState
) -> None:
    running, finished, total = tasks
    assert answers.run_state(state, running, finished, total) is expected


def test_job_state_counts_tasks_not_operator_chains() -> None:
    def vertex(width: int, running: int) -> dict[str, Any]:
        return {"parallelism": width, "tasks": {"RUNNING": running, "FINISHED": 0}}

    job = {"state": "RUNNING", "vertices": [vertex(1, 1), vertex(4, 3)]}
    assert answers.job_state(job) is RunState.STARTING
    job["vertices"] = [vertex(1, 1), vertex(4, 4)]
    assert answers.job_state(job) is RunState.RUNNING


def test_engine_view() -> None:
    overview = {"slots-total": 8, "slots-available": 7, "flink-version": "2.3.0"}
    tasks = {"running": 2, "finished": 0, "total": 2}
    jobs = {"jobs": [{"jid": JOB, "name": "A", "state": "RUNNING", "tasks": tasks}]}
    view = answers.engine_view(overview, jobs)
    assert (view.version, view.slots) == ("2.3.0", Slots(8, 7))
    assert view.jobs[JOB].state is RunState.RUNNING
    assert (view.jobs[JOB].tasks_running, view.jobs[JOB].tasks_total) == (2, 2)


def test_checkpoint_progress() -> None:
    assert not answers.checkpoint_progress({"status": {"id": "IN_PROGRESS"}}).done
    over = {"status": {"id": "COMPLETED"}, "operation": {"checkpointId": 3}}
    assert answers.checkpoint_progress(over) == SaveProgress(True)
    cause = {"class": "x.CheckpointException", "stack-trace": "x.CheckpointException: stopping"}
    failed = {"status": {"id": "COMPLETED"}, "operation": {"failure-cause": cause}}
    assert answers.checkpoint_progress(failed) == SaveProgress(
        True, failure="CheckpointException: stopping"
    )


def test_savepoint_progress() -> None:
    assert answers.savepoint_progress({"status": {"id": "IN_PROGRESS"}, "operation": None}) == (
        SaveProgress(done=False)
    )
    answer = {"status": {"id": "COMPLETED"}, "operation": {"location": "file:/s/1"}}
    assert answers.savepoint_progress(answer) == SaveProgress(True, "file:/s/1")


def test_a_savepoint_under_way_says_how_many_subtasks_have_given_their_part() -> None:
    none = SaveProgress(done=False)
    entry = {"status": "IN_PROGRESS", "num_subtasks": 4, "num_acknowledged_subtasks": 3}
    checkpoint_list = [
        {**entry, "id": 8, "is_savepoint": True},
        {**entry, "id": 9, "is_savepoint": False, "num_acknowledged_subtasks": 1},
        {"id": 7, "status": "COMPLETED", "is_savepoint": True},
    ]
    assert answers.with_subtasks(none, {"history": checkpoint_list}) == SaveProgress(
        False, acknowledged=3, total=4
    )
    assert answers.with_subtasks(none, {"history": checkpoint_list[1:]}) == none


def failed(trace: str) -> SaveProgress:
    operation = {"failure-cause": {"class": "a.B", "stack-trace": trace}}
    return answers.savepoint_progress({"status": {"id": "COMPLETED"}, "operation": operation})


def test_completed_may_mean_failed() -> None:
    progress = failed("a.b.CheckpointException: Not all required tasks are running.\n\tat a.B.c(1)")
    assert progress == SaveProgress(
        True, None, "CheckpointException: Not all required tasks are running."
    )


def test_failed_while_stopping_leaves_a_good_savepoint() -> None:
    exception = "org.apache.flink.runtime.scheduler.stopwithsavepoint.StopWithSavepointStopping"
    progress = failed(
        f"java.util.concurrent.CompletionException: {exception}Exception: A savepoint has been"
        " created at: file:/s/savepoint-9-1, but the corresponding job 9 failed during stopping."
    )
    assert progress.location == "file:/s/savepoint-9-1"
    assert progress.failure is not None


def state(number: int, *, savepoint: bool = False, **other: Any) -> dict[str, Any]:
    return {
        "id": number,
        "status": "COMPLETED",
        "is_savepoint": savepoint,
        "trigger_timestamp": 1000 + number,
        "state_size": 10,
        "external_path": f"file:/c/{number}",
        "discarded": False,
        **other,
    }


def checkpoints(
    completed: dict[str, Any] | None = None,
    savepoint: dict[str, Any] | None = None,
    restored: dict[str, Any] | None = None,
    history: tuple[dict[str, Any], ...] = (),
    count: int = 1,
) -> SavedState | None:
    latest = {"completed": completed, "savepoint": savepoint, "restored": restored}
    return answers.newest_state(
        {"latest": latest, "history": list(history), "counts": {"completed": count}}
    )


def number(checkpoint: SavedState | None) -> int | None:
    return checkpoint.number if checkpoint is not None else None


RESTORED = {"id": 3, "restore_timestamp": 5, "is_savepoint": True, "external_path": "file:/c/3"}


def test_the_newest_of_checkpoints_and_savepoints() -> None:
    assert checkpoints(state(7)) == SavedState(7, "file:/c/7", 1007, 10, False)
    assert number(checkpoints(state(7), state(8, savepoint=True))) == 8
    assert number(checkpoints(state(9), state(8, savepoint=True))) == 9


def test_states_that_are_gone_or_in_memory_do_not_count() -> None:
    assert number(checkpoints(state(7, discarded=True), state(8, savepoint=True))) == 8
    memory = "<checkpoint-not-externally-addressable>"
    for gone in (state(7, discarded=True), state(7, external_path=memory)):
        with pytest.raises(
            EngineRefusedError, match="every checkpoint that it completed was discarded"
        ):
            checkpoints(gone)
    older = (state(7, status="FAILED"), state(6), state(5, discarded=True))
    assert number(checkpoints(history=older)) == 6


def test_what_was_restored_counts_only_until_something_completes() -> None:
    assert number(checkpoints(restored=RESTORED, count=0)) == 3
    assert number(checkpoints(state(4), restored=RESTORED)) == 4
    with pytest.raises(EngineRefusedError):
        checkpoints(state(4, discarded=True), restored=RESTORED)


def test_a_job_that_completed_nothing_and_began_with_nothing_has_no_state() -> None:
    assert checkpoints(count=0) is None


def test_exceptions_come_newest_first() -> None:
    def entry(at: int) -> dict[str, Any]:
        return {"timestamp": at, "exceptionName": "a.B", "stacktrace": "a.B: c", "taskName": "t"}

    exceptions = answers.job_exceptions({"exceptionHistory": {"entries": [entry(1), entry(2)]}})
    assert [each.at_ms for each in exceptions] == [2, 1]
    assert answers.job_exceptions({"exceptionHistory": None}) == []


def test_jars_are_those_of_our_names_oldest_first() -> None:
    sha = "0" * 64
    files = [
        {"id": f"2_{sha}.jar", "name": f"{sha}.jar", "uploaded": 2},
        {"id": f"1_{sha}.jar", "name": f"{sha}.jar", "uploaded": 1},
        {"id": "3_other.jar", "name": "other.jar", "uploaded": 3},
    ]
    assert answers.jars({"files": files}) == [answers.Jar(f"{n}_{sha}.jar", sha, n) for n in (1, 2)]
    assert answers.jar_id({"filename": f"/tmp/u/7_{sha}.jar"}) == f"7_{sha}.jar"


def test_counters_are_told_from_gauges_by_name() -> None:
    counters = [
        "0.Source__numbers.numRecordsOut",
        "0.Sink__Writer.speck.sessionsLost",
        "0.accumulateBusyTimeMs",
    ]
    others = [
        "0.numRecordsOut",
        "0.busyTimeMsPerSecond",
        "0.count.numRecordsInPerSecond",
        "0.count.currentInputWatermark",
        "0.Source__numbers.currentEmitEventTimeLag",
        "0.Source__numbers.split.1.watermark.accumulatedIdleTimeMs",
        "0.Source__numbers.sourceIdleTime",
        "0.Shuffle.Netty.Input.Buffers.inPoolUsage",
        "0.mailboxLatencyMs_p99",
        "numRecordsIn",
    ]
    assert answers.counter_names([{"id": name} for name in counters + others]) == sorted(counters)


def test_counters_are_summed_over_subtasks_and_what_is_no_number_is_left_out() -> None:
    values = [
        {"id": "0.a.numRecordsOut", "value": "2"},
        {"id": "1.a.numRecordsOut", "value": "3"},
        {"id": "0.b.numRecordsOut", "value": "NaN"},
        {"id": "0.c.numRecordsOut"},
        {"id": "0.accumulateBusyTimeMs", "value": "7.5"},
    ]
    assert answers.sum_subtasks("v1", values) == {
        "a.numRecordsOut": 5.0,
        "v1.accumulateBusyTimeMs": 7.5,
    }


LARGE = [10**300, -1, 1e308, float("inf"), "9" * 400, 2**63]


@pytest.mark.parametrize("number", LARGE)
def test_numbers_that_no_engine_has_are_refused(number: object) -> None:
    """They would not fit into the store, into JSON or into a calendar."""
    overview = {"flink-version": "2.3.0", "slots-total": 4, "slots-available": 4}
    tasks = {"running": 1, "total": 1, "finished": 0}
    job = {"jid": "a", "name": "b", "state": "RUNNING", "tasks": tasks}
    for name in ("slots-total", "slots-available"):
        with pytest.raises((ValueError, OverflowError)):
            answers.engine_view({**overview, name: number}, {"jobs": []})
    for name in tasks:
        with pytest.raises((ValueError, OverflowError)):
            answers.engine_jobs({"jobs": [{**job, "tasks": {**tasks, name: number}}]})
    entry = {"timestamp": number, "exceptionName": "E", "stacktrace": "E: e"}
    with pytest.raises((ValueError, OverflowError)):
        answers.job_exceptions({"exceptionHistory": {"entries": [entry]}})


@pytest.mark.parametrize("year", [10_000, 280_000])
def test_moments_after_the_calendar_are_refused(year: int) -> None:
    with pytest.raises(ValueError, match="no moment"):
        unix_ms(year * 366 * 86_400_000)


def test_texts_of_an_engine_are_shortened() -> None:
    overview = {"flink-version": "2" * 10**6, "slots-total": 4, "slots-available": 4}
    assert len(answers.engine_view(overview, {"jobs": []}).version or "") == 500
    entry = {
        "timestamp": 1,
        "exceptionName": "E" * 10**6,
        "stacktrace": "",
        "taskName": "t" * 10**6,
    }
    (exception,) = answers.job_exceptions({"exceptionHistory": {"entries": [entry]}})
    assert len(exception.name + str(exception.task)) == 1000


def test_a_plan_is_read_with_how_records_are_shipped() -> None:
    window = {
        "id": "2",
        "parallelism": 1,
        "description": "window",
        "inputs": [{"id": "1", "ship_strategy": "HASH"}],
    }
    source = {"id": "1", "parallelism": 2, "description": "source"}
    assert answers.plan_nodes({"plan": {"nodes": [window, source]}}) == (
        PlanNode("2", "window", 1, (("1", "HASH"),)),
        PlanNode("1", "source", 2),
    )
    with pytest.raises(KeyError):
        answers.plan_nodes({"plan": {"anything": "else"}})


@pytest.mark.parametrize(
    ("gauges", "expected"),
    [
        ({"Source__mqtt-source.connected": 1.0}, True),
        ({"Source__mqtt-source.connected": 0.0}, False),
        ({"Source__a.connected": 2.0, "Source__b.connected": 0.0}, False),
        ({"Source__mqtt-source.connected": 1.0, "mqtt-sink__Committer.connected": 0.0}, True),
        ({"mqtt-sink__Committer.connected": 0.0, "mqtt-sink__Writer.connected": 1.0}, None),
        ({"Source__numbers.numRecordsOut": 0.0}, None),
        ({}, None),
    ],
)
def test_what_sinks_report_is_no_word_about_the_source(
    gauges: dict[str, float], expected: bool | None
) -> None:
    """A committer connects when it has to send."""
    assert answers.source_connected(gauges) is expected
