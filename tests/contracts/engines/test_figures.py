"""Figures of jobs and of the engine."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from uuid import uuid4

from speck.binding import EngineCapability, StreamEngine
from speck.model.measurement import COUNTS, TIMES, JobMeasure
from speck.model.observation import RunState
from tests.contracts.engines.benches import Bench, FlinkBench, becomes, run, submission
from tests.declared import Need
from tests.flink_server import FlinkServer
from tests.waiting import wait_for


def test_plan_and_metrics_of_a_running_job(bench: Bench, engine: StreamEngine, need: Need) -> None:
    engine = need(engine, EngineCapability.METRICS)
    job = run(engine, submission(bench))
    nodes = engine.job_plan(job)
    assert nodes
    assert all(node.id and node.description and node.parallelism >= 1 for node in nodes)

    def count_records() -> Mapping[str, float]:
        """All metrics, once counters of records are among them: they come with the first task."""
        metrics = engine.metrics(job)
        names = [name.rpartition(".")[2] for name in metrics]
        return metrics if any(name.startswith("numRecords") for name in names) else {}

    metrics = wait_for(count_records, "metrics with counters of records")
    assert all(isinstance(value, float) for value in metrics.values())
    assert engine.is_connected(job) is not False, "a source without a broker misses none"
    assert engine.exceptions(job) == []


def test_it_tells_of_the_work_of_jobs_that_run(
    bench: Bench, engine: StreamEngine, need: Need
) -> None:
    engine = need(engine, EngineCapability.METRICS)
    job, ended, nobody = run(engine, submission(bench)), run(engine, submission(bench)), uuid4().hex
    engine.cancel(ended)
    becomes(engine, ended, RunState.CANCELED)

    def measure_job() -> JobMeasure | None:
        measures = engine.measure([job, ended, nobody])
        assert set(measures.jobs) <= {job}
        assert measures.slots_total == bench.slots
        job_measure = measures.jobs.get(job)
        return (
            job_measure
            if job_measure is not None and job_measure.tasks and job_measure.restarts == 0
            else None
        )

    before = wait_for(measure_job, "measures of the job")
    for task in before.tasks:
        assert 0 <= task.subtask < task.subtasks
        assert task.busy_ms is None or task.busy_ms >= 0
    assert engine.measure([]).jobs == {}


def test_figures_of_a_job_are_known_and_never_fall(
    bench: Bench, engine: StreamEngine, need: Need
) -> None:
    engine = need(engine, EngineCapability.METRICS)
    job = run(engine, submission(bench))

    def measure_all() -> dict[str, float]:
        """Every known figure of the job's tasks, of the job and of the engine."""
        bench.work()
        measures = engine.measure([job])
        figures = {"engine_cpu_ms": measures.cpu_ms}
        figures |= {name: getattr(measures, name) for name in ("cores", "memory_bytes")}
        if (of_job := measures.jobs.get(job)) is not None:
            figures |= {n: getattr(of_job, n) for n in ("checkpoint_id", "checkpoint_bytes")}
            for task in of_job.tasks:
                at = f"{task.vertex}/{task.subtask} "
                figures |= {f"{at}{n}": getattr(task, n) for n in (*TIMES, *COUNTS, "cpu_ms")}
        return {name: value for name, value in figures.items() if value is not None}

    def know_all() -> dict[str, float]:
        figures = measure_all()
        is_known = bench.figures <= {name.rpartition(" ")[2] for name in figures}
        return figures if is_known and any(" " in name for name in figures) else {}

    first = wait_for(know_all, lambda: f"{sorted(bench.figures)}, not only {measure_all()}")
    of_tasks = [n for n in first if " " in n and n.rpartition(" ")[2] not in bench.wavering]
    growing = [*of_tasks, *({"checkpoint_id"} & first.keys())]

    def compare() -> bool:
        later = measure_all()
        both = [(name, later[name]) for name in growing if name in later]
        assert [name for name, value in both if value < first[name]] == []
        return any(value > first[name] for name, value in both)

    wait_for(compare, "a figure to grow")


def test_time_of_tasks_goes_on(flink: FlinkServer, trial_jar: Path) -> None:
    """Busy, idle and back-pressured time grow together by the time that passes."""
    bench = FlinkBench(flink, trial_jar)
    engine = bench.open()
    job = run(engine, submission(bench))

    def lived() -> float | None:
        job_measure = engine.measure([job]).jobs.get(job)
        times = [
            (t.busy_ms or 0) + (t.idle_ms or 0) + (t.back_pressured_ms or 0)
            for t in (job_measure.tasks if job_measure else ())
        ]
        return min(times, default=None)

    first = wait_for(lived, "a first look")
    wait_for(lambda: (lived() or 0) >= first + 1000, "a second of its life")
    engine.cancel(job)
    becomes(engine, job, RunState.CANCELED)
    engine.close()
