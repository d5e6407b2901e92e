"""The Flink binder's requests for metrics, and its reading of the answers; no Flink."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from binders.flink.engine import FlinkEngine
from speck.errors import UnreachableError
from speck.model.measurement import MOST_OF_PROBLEM, JobMeasure, LinkMeasure
from tests.unit.binders.fake_flink import Fake

JOB, OTHER = "a" * 32, "b" * 32
TIMES = ("accumulateBusyTimeMs", "accumulateIdleTimeMs", "accumulateBackPressuredTimeMs")
CHAIN = {
    **dict.fromkeys((f"0.{name}" for name in TIMES), "5"),
    "0.numRecordsIn": "0",
    "0.Source__mqtt.numRecordsIn": "100",
    "0.Source__mqtt.numRecordsInErrors": "1",
    "0.Source__mqtt.numBytesIn": "9000",
    "0.Source__mqtt.taskCpuTimeMs": "4.25",
    "0.mqtt-sink__Writer.taskCpuTimeMs": "4.5",
    "0.mqtt-sink__Writer.numRecordsSend": "50",
    "0.mqtt-sink__Writer.numBytesSend": "10",
    "0.mqtt-sink__Committer.numBytesSend": "4000",
    "0.numRecordsOut": "0",
}


def values(metrics: dict[str, str]) -> list[dict[str, str]]:
    return [{"id": name, "value": value} for name, value in metrics.items()]


def cluster(fake: Fake, *jobs: str, state: str = "RUNNING", **metrics: str) -> None:
    fake.say("/overview", {"slots-total": 8, "slots-available": 6})
    fake.say("/jobs/overview", {"jobs": [{"jid": job, "state": state} for job in jobs]})
    path = "pekko.tcp://flink@10.0.0.{}:6122/user/rpc/taskmanager_0"
    workers = [
        {"id": f"tm-{n}", "path": path.format(host), "hardware": {"cpuCores": 4}}
        for n, host in ((1, 1), (2, 1), (3, 2))
    ]
    fake.say("/taskmanagers", {"taskmanagers": workers})
    worker = {
        "Status.JVM.CPU.Time": "2000000000",
        "Status.JVM.Memory.Heap.Used": "10",
        "Status.JVM.Memory.Heap.Max": "40",
        "Status.JVM.Memory.Heap.Committed": "20",
        "Status.JVM.Memory.NonHeap.Committed": "5",
        "Status.JVM.Memory.Direct.MemoryUsed": "1",
        **metrics,
    }
    for n in (1, 2, 3):
        fake.say(f"/taskmanagers/tm-{n}/metrics", values(worker))
    fake.say("/jobmanager/metrics", values({}))


def job(fake: Fake, job_id: str = JOB, metrics: dict[str, str] | None = None, **of: str) -> None:
    vertices = [{"id": "v", "name": "mqtt -> sink", "parallelism": 1}]
    fake.say(f"/jobs/{job_id}", {"vertices": vertices})
    fake.say(f"/jobs/{job_id}/metrics", values({"numRestarts": "0", **of}))
    fake.say(f"/jobs/{job_id}/vertices/v/metrics", values(CHAIN if metrics is None else metrics))


def take_requests(fake: Fake, path: str) -> list[str]:
    """The queries that were sent to a path since the last time."""
    paths = [
        line.partition("?")[2]
        for line, _, _ in fake.requests
        if line.partition("?")[0] == f"GET {path}"
    ]
    fake.requests.clear()
    return paths


def measure_one(engine: FlinkEngine, job_id: str = JOB) -> JobMeasure:
    return engine.measure([job_id]).jobs[job_id]


def test_a_chained_job_is_told_by_the_counters_of_its_source_and_sink(
    fake: Fake, engine: FlinkEngine
) -> None:
    cluster(fake, JOB)
    job(fake, lastCompletedCheckpointId="7", lastCheckpointFullSize="99", uptime="1234")
    measure = measure_one(engine)
    (task,) = measure.tasks
    assert (task.is_source, task.is_sink, task.subtask, task.subtasks) == (True, True, 0, 1)
    assert (task.busy_ms, task.idle_ms, task.back_pressured_ms) == (5.0, 5.0, 5.0)
    assert task.cpu_ms == 4.5, "source and sink tell of one thread"
    assert (task.records_in, task.records_out) == (100, 50)
    assert (task.bytes_in, task.bytes_out) == (9000, 4010)
    assert (measure.restarts, measure.checkpoint_id, measure.checkpoint_bytes) == (0, 7, 99)
    assert (measure.uptime_ms, measure.checkpoint_ms) == (1234, None)


LINKS = {
    "0.Source__mqtt.linkProblem": "",
    "0.Source__mqtt.messagesDropped": "4",
    "0.mqtt-sink__Writer.linkProblem": "",
    "0.mqtt-sink__Writer.recordsUndeliverable": "2",
    "0.mqtt-sink__Writer.numRecordsSendErrors": "5",
    "0.mqtt-sink__Committer.linkProblem": "cannot write to tcp://b:1883 T: NOT_AUTHORIZED",
    "0.mqtt-sink__Committer.recordsUndeliverable": "1",
    "0.mqtt-sink__Committer.recordsFailed": "1",
    "0.mqtt-sink__Committer.recordsUnread": "6",
    "0.map.linkProblem": "of another operator",
}


def test_what_the_connector_says_of_its_links_is_read(fake: Fake, engine: FlinkEngine) -> None:
    cluster(fake, JOB)
    job(fake, metrics=CHAIN | LINKS)
    assert measure_one(engine).link == LinkMeasure(
        "cannot write to tcp://b:1883 T: NOT_AUTHORIZED", left_out=3, lost=9, dropped=4
    )


@pytest.mark.parametrize(
    ("problem", "lasts"),
    [
        ("cannot read tcp://b:1883 T: the broker refuses the login: NOT_AUTHORIZED", True),
        ("cannot read tcp://b:1883 T: the broker refuses the login: SERVER_BUSY", False),
        (
            "cannot read kafka://b:9092 T: the broker refuses the login: AUTHENTICATION_FAILED (x)",
            True,
        ),
        ("cannot write to kafka://b:9092 T: the broker refuses access: NOT_AUTHORIZED (x)", True),
        ("cannot write to kafka://b:9092 T: the broker is not available", False),
        ("cannot write to tcp://b:1883 T: NOT_AUTHORIZED", False),
    ],
)
def test_a_refusal_that_does_not_pass_by_itself_is_told(
    fake: Fake, engine: FlinkEngine, problem: str, lasts: bool
) -> None:
    cluster(fake, JOB)
    job(fake, metrics=CHAIN | {"0.Source__mqtt.linkProblem": problem})
    assert measure_one(engine).link == LinkMeasure(problem, is_lasting=lasts)


def test_a_long_problem_is_cut(fake: Fake, engine: FlinkEngine) -> None:
    cluster(fake, JOB)
    job(fake, metrics=CHAIN | {"0.Source__mqtt.linkProblem": "x" * 100_000})
    assert measure_one(engine).link == LinkMeasure("x" * MOST_OF_PROBLEM)


def test_a_foreign_connector_says_nothing_of_links(fake: Fake, engine: FlinkEngine) -> None:
    cluster(fake, JOB)
    job(fake, metrics=CHAIN | {"0.mqtt-sink__Writer.numRecordsSendErrors": "5"})
    assert measure_one(engine).link is None


def test_what_a_foreign_connector_does_not_count_is_not_told(
    fake: Fake, engine: FlinkEngine
) -> None:
    cluster(fake, JOB)
    uncounted = {
        "0.Source__mqtt.numBytesIn": "0",
        "0.mqtt-sink__Writer.numRecordsIn": "50",
        "0.mqtt-sink__Writer.numRecordsSend": "0",
        "0.mqtt-sink__Writer.numBytesSend": "0",
        "0.mqtt-sink__Committer.numBytesSend": "0",
    }
    job(fake, metrics={**CHAIN, **uncounted})
    (task,) = measure_one(engine).tasks
    assert (task.records_in, task.bytes_in) == (100, None)
    assert (task.records_out, task.bytes_out) == (None, None)


def test_before_anything_came_a_zero_is_a_zero(fake: Fake, engine: FlinkEngine) -> None:
    cluster(fake, JOB)
    job(fake, metrics=dict.fromkeys((*CHAIN, "0.mqtt-sink__Writer.numRecordsIn"), "0"))
    (task,) = measure_one(engine).tasks
    assert (task.records_in, task.bytes_in, task.records_out, task.bytes_out) == (0, 0, 0, 0)


def test_a_task_between_others_is_told_by_its_exchange(fake: Fake, engine: FlinkEngine) -> None:
    cluster(fake, JOB)
    metrics = {
        "0.numRecordsIn": "8",
        "1.numRecordsIn": "9",
        "1.numBytesOut": "3",
        "0.map.numX": "1",
    }
    job(fake, metrics=metrics)
    first, second = measure_one(engine).tasks
    assert (first.is_source, first.is_sink) == (False, False)
    assert (first.subtask, first.records_in, first.bytes_out) == (0, 8, None)
    assert (second.subtask, second.records_in, second.bytes_out) == (1, 9, 3)


def test_nan_and_minus_one_are_not_told(fake: Fake, engine: FlinkEngine) -> None:
    cluster(fake, JOB)
    metrics = {**CHAIN, "0.accumulateBusyTimeMs": "NaN"}
    job(fake, metrics=metrics, lastCompletedCheckpointId="-1", lastCheckpointDuration="-1")
    measure = measure_one(engine)
    assert (measure.tasks[0].busy_ms, measure.tasks[0].idle_ms) == (None, 5.0)
    assert (measure.checkpoint_id, measure.checkpoint_ms, measure.checkpoint_bytes) == (
        None,
        None,
        None,
    )


def test_names_are_learned_until_they_stay_and_again_after_a_restart(
    fake: Fake, engine: FlinkEngine
) -> None:
    """A task that begins has not all its metrics yet."""
    path = f"/jobs/{JOB}/vertices/v/metrics"
    cluster(fake, JOB)
    job(fake, metrics={name: CHAIN[name] for name in list(CHAIN)[:6]})
    assert measure_one(engine).tasks[0].records_out is None
    assert [bool(query) for query in take_requests(fake, path)] == [False, True]
    job(fake)
    assert measure_one(engine).tasks[0].records_out == 50
    assert [bool(query) for query in take_requests(fake, path)] == [False, True]
    measure_one(engine)
    assert [bool(query) for query in take_requests(fake, path)] == [False, True]
    measure_one(engine)
    assert [bool(query) for query in take_requests(fake, path)] == [True]
    job(fake, numRestarts="1")
    measure_one(engine)
    assert [bool(query) for query in take_requests(fake, path)] == [False, True]


@pytest.mark.parametrize("looks", [1, 2, 5])
def test_names_are_learned_until_every_subtask_has_begun(
    fake: Fake, engine: FlinkEngine, looks: int
) -> None:
    """Looks that follow each other closely are answered from one fetch of a job that starts."""
    path = f"/jobs/{JOB}/vertices/v/metrics"
    cluster(fake, JOB)
    early = {**dict.fromkeys((f"0.{name}" for name in TIMES), "0"), "0.numRecordsIn": "0"}
    job(fake, metrics={**early, f"0.{TIMES[0]}": "NaN"})
    for _ in range(looks):
        (task,) = measure_one(engine).tasks
        assert (task.is_source, task.is_sink) == (False, False)
    job(fake)
    (task,) = measure_one(engine).tasks
    assert (task.is_source, task.records_in, task.records_out) == (True, 100, 50)
    measure_one(engine)
    take_requests(fake, path)
    measure_one(engine)
    assert [bool(query) for query in take_requests(fake, path)] == [True]


def test_names_are_learned_while_a_subtask_has_not_begun(fake: Fake, engine: FlinkEngine) -> None:
    cluster(fake, JOB)
    beside = {name.replace("0.", "1.", 1): value for name, value in CHAIN.items()}
    late = {"1.accumulateBusyTimeMs": "NaN", "1.numRecordsIn": "0"}
    job(fake, metrics={**CHAIN, **late})
    fake.say(f"/jobs/{JOB}", {"vertices": [{"id": "v", "name": "mqtt", "parallelism": 2}]})
    path = f"/jobs/{JOB}/vertices/v/metrics"
    for _ in range(3):
        take_requests(fake, path)
        measure_one(engine)
    assert "" in take_requests(fake, path)
    fake.say(path, values({**CHAIN, **beside}))
    assert [task.records_in for task in measure_one(engine).tasks] == [100, 100]
    measure_one(engine)
    take_requests(fake, path)
    measure_one(engine)
    assert "" not in take_requests(fake, path)


def test_values_that_are_missing_are_looked_for_anew(fake: Fake, engine: FlinkEngine) -> None:
    path = f"/jobs/{JOB}/vertices/v/metrics"
    cluster(fake, JOB)
    job(fake)
    measure_one(engine)
    measure_one(engine)
    job(fake, metrics={})
    assert measure_one(engine).tasks == ()
    take_requests(fake, path)
    measure_one(engine)
    assert take_requests(fake, path) == [""]


@pytest.mark.parametrize("far", [False, True])
def test_every_one_of_many_jobs_is_told_with_its_own_figures(
    fake: Fake, engine: FlinkEngine, monkeypatch: pytest.MonkeyPatch, far: bool
) -> None:
    monkeypatch.setattr("binders.flink.measuring.FAR_S", -1.0 if far else 60.0)
    pools: list[int] = []

    def pool(threads: int, **named: str) -> ThreadPoolExecutor:
        pools.append(threads)
        return ThreadPoolExecutor(threads, **named)

    monkeypatch.setattr("binders.flink.measuring.ThreadPoolExecutor", pool)
    ids = [f"{n:032x}" for n in range(11)]
    cluster(fake, *ids)
    for n, job_id in enumerate(ids):
        job(fake, job_id, {**CHAIN, "0.Source__mqtt.numRecordsIn": str(n)})
    jobs_by_id = engine.measure(ids).jobs
    assert [jobs_by_id[job_id].tasks[0].records_in for job_id in ids] == list(range(11))
    assert pools == [8 if far else 2]


def test_no_further_job_is_asked_about_when_a_look_takes_too_long(
    fake: Fake, engine: FlinkEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster(fake, JOB)
    job(fake)
    monkeypatch.setattr("binders.flink.measuring.LONGEST_S", -1.0)
    assert engine.measure([JOB]).jobs == {}
    assert take_requests(fake, f"/jobs/{JOB}/metrics") == []


def test_a_job_that_fails_to_answer_is_missing_alone(fake: Fake, engine: FlinkEngine) -> None:
    cluster(fake, JOB, OTHER)
    job(fake)
    fake.say(f"/jobs/{OTHER}", {"errors": ["gone"]}, 404)
    assert list(engine.measure([JOB, OTHER]).jobs) == [JOB]


@pytest.mark.parametrize("state", ["FINISHED", "CANCELED", "FAILED"])
def test_jobs_that_ended_are_not_asked_for(fake: Fake, engine: FlinkEngine, state: str) -> None:
    """Flink keeps the last values of a job that has ended."""
    cluster(fake, JOB, state=state)
    job(fake)
    assert engine.measure([JOB]).jobs == {}


def test_workers_are_summed_and_share_the_cores_of_their_machine(
    fake: Fake, engine: FlinkEngine
) -> None:
    cluster(fake)
    measures = engine.measure([])
    assert (measures.slots_total, measures.slots_free, measures.cores) == (8, 6, 8.0)
    assert (measures.cpu_ms, measures.memory_bytes) == (6000.0, 78)
    assert (measures.heap_used_bytes, measures.heap_max_bytes) == (30, 120)


@pytest.mark.parametrize("missing", ["NaN", "-1", "nothing"])
def test_what_a_worker_does_not_tell_is_no_zero(
    fake: Fake, engine: FlinkEngine, missing: str
) -> None:
    cluster(fake, **{"Status.JVM.CPU.Time": missing, "Status.JVM.Memory.Heap.Committed": missing})
    measures = engine.measure([])
    assert (measures.cpu_ms, measures.memory_bytes, measures.heap_max_bytes) == (None, None, 120)


def test_an_engine_that_is_none_is_unreachable(fake: Fake, engine: FlinkEngine) -> None:
    answer: Any = {"hello": "world"}
    for path in ("/overview", "/taskmanagers", "/jobs/overview"):
        fake.say(path, answer)
    with pytest.raises(UnreachableError, match="does not answer as Flink does"):
        engine.measure([])


def metaspace(used: object, limit: object) -> Any:
    names = ("Status.JVM.Memory.Metaspace.Used", "Status.JVM.Memory.Metaspace.Max")
    return values(dict(zip(names, (str(used), str(limit)), strict=True)))


def test_the_fullest_metaspace_counts_the_job_managers_too(fake: Fake, engine: FlinkEngine) -> None:
    """Its trials of `main` load classes as well."""
    cluster(fake)
    fake.say("/taskmanagers/tm-1/metrics", metaspace(90, 200))
    fake.say("/taskmanagers/tm-2/metrics", metaspace(100, -1))
    fake.say("/jobmanager/metrics", metaspace(60, 100))
    measures = engine.measure([])
    assert (measures.metaspace_used_bytes, measures.metaspace_max_bytes) == (60, 100)
    assert measures.metaspace_share == 0.6


def test_a_jvm_without_a_limit_has_no_share(fake: Fake, engine: FlinkEngine) -> None:
    cluster(fake)
    fake.say("/jobmanager/metrics", {"errors": ["not found"]}, 404)
    assert engine.measure([]).metaspace_share is None


def test_the_job_manager_of_a_single_jvm_is_not_asked(fake: Fake, engine: FlinkEngine) -> None:
    cluster(fake)
    worker = {"id": "tm-1", "path": "pekko://flink/user/rpc/taskmanager_0"}
    fake.say("/taskmanagers", {"taskmanagers": [worker | {"hardware": {"cpuCores": 2}}]})
    fake.say("/taskmanagers/tm-1/metrics", metaspace(9, 10))
    assert engine.measure([]).metaspace_share == 0.9
    assert take_requests(fake, "/jobmanager/metrics") == []
