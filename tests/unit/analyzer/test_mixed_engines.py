"""Jobs of different engines in one ranking: from what each binder measures follows the cost that a
job has. Rows are summed up here in Python, as the analyzer does it in Spark."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from binders.process.status import PROGRAM, ProgramStatus
from speck.analyzer.data_origins import DataOrigins
from speck.analyzer.features import describe_jobs
from speck.analyzer.incarnations import choose_incarnations
from speck.analyzer.links import join_links
from speck.analyzer.ranking import rank_jobs
from speck.analyzer.rates import rate_jobs, rate_tasks
from speck.analyzer.result import add_loads
from speck.analyzer.sites import add_use
from speck.analyzer.state import wire_plans
from speck.analyzer.sums import COUNTED, SUMMED
from speck.metrics.rows import Samples, make_plan_rows, make_task_rows, update_samples
from speck.model.analysis_result import RankedJob
from speck.model.incarnation import Incarnation
from speck.model.link import Link
from speck.model.measurement import (
    COUNTS,
    TIMES,
    EngineMeasures,
    Host,
    JobMeasure,
    PlanNode,
    TaskMeasure,
)
from speck.model.observation import RunState
from speck.model.values import JsonObject
from tests.examples import costly
from tests.sample_job import make_job

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
POLLS, EVERY_S = 9, 12.5
ENGINES = ("flink", "process", "spark")
BYTES = 100


@dataclass(frozen=True)
class Truth:
    """A job in the cloud that reads at edge-a: its CPU seconds a record, and how many records it
    takes a second and lets through."""

    name: str
    engine: str
    cost: float
    rate: int
    selectivity: float
    stateful: bool | None = None

    @property
    def score(self) -> float:
        """WAN bytes saved for each CPU second."""
        return BYTES * (1 - self.selectivity) / self.cost

    @property
    def incarnation(self) -> Incarnation:
        source, sink = Link("edge-a", f"{self.name}-in"), Link("cloud", f"{self.name}-out")
        return Incarnation(make_job(self.name, source, sink, "cloud"), 1, self.name)

    def measure(self, seconds: float) -> JobMeasure:
        """After so many seconds of its life, as the binder of its engine measures it."""
        taken = round(self.rate * seconds)
        sent = round(taken * self.selectivity)
        cpu_ms = 1000 * self.cost * self.rate * seconds
        busy_ms = 1.25 * cpu_ms  # it waits for a core, too
        times = {"busy_ms": busy_ms, "idle_ms": 1000 * seconds - busy_ms, "back_pressured_ms": 0.0}
        counts = {"records_in": taken, "bytes_in": taken * BYTES}
        counts |= {"records_out": sent, "bytes_out": sent * BYTES}
        if self.engine == "flink":
            half = {
                name: value / 2 if name == "busy_ms" else value for name, value in times.items()
            }
            half["idle_ms"] += busy_ms / 2
            tasks = tuple(
                TaskMeasure(v, v, 0, 1, v == "source", v == "sink", cpu_ms=cpu_ms / 2, **half,
                            **counts)  # type: ignore[arg-type]
                for v in ("source", "sink")
            )  # fmt: skip
            return JobMeasure(self.name, tasks, restarts=0, checkpoint_bytes=2000)
        program = ProgramStatus(
            *(self.name, self.name, RunState.RUNNING, 1, False, 3, 5, "file:///x"),
            cpu_ms=cpu_ms,
            state_bytes=2000,
            report={**times, **counts, "ready": True},
            engine=self.engine,
        )
        return program.measure()

    def plan(self) -> list[JsonObject]:
        nodes = {
            "flink": (
                PlanNode("source", "s", 1),
                PlanNode("sink", "t", 1, (("source", "FORWARD"),)),
            )
        }.get(self.engine, (PlanNode(PROGRAM, "the program", 1, None),))
        return make_plan_rows(T0, "c", self.incarnation, nodes, stateful=self.stateful)


def sample(truths: Sequence[Truth]) -> list[JsonObject]:
    """Rows of TASKS, as the sampler makes them."""
    incarnations = {("c", each.name): each.incarnation for each in truths}
    samples: Samples = {}
    rows: list[JsonObject] = []
    for poll in range(POLLS):
        at = T0 + timedelta(seconds=poll * EVERY_S)
        jobs = {each.name: each.measure(10 + poll * EVERY_S) for each in truths}
        samples = update_samples(at, EngineMeasures(jobs), samples)
        rows += make_task_rows(at, samples, incarnations, Host(0.2, 4))
    return rows


def sum_rows(rows: Sequence[JsonObject]) -> Iterator[JsonObject]:
    """Rows of TASKS -> SLICED, of one slice: `speck.analyzer.clean` and `sums`, for good pairs."""
    series: dict[tuple[Any, ...], list[JsonObject]] = {}
    for row in rows:
        series.setdefault((row["engine_job_id"], row["vertex"], row["subtask"]), []).append(row)
    for of_task in series.values():
        sums: JsonObject = dict.fromkeys(SUMMED) | dict.fromkeys(COUNTED, 0)
        for before, after in pairwise(of_task):
            clock_s = (after["at"] - before["at"]).total_seconds()
            grown = {n: after[n] - before[n] for n in (*TIMES, *COUNTS, "cpu_ms")}
            pair = {n.replace("_ms", "_s"): g / 1000 for n, g in grown.items() if n not in COUNTS}
            pair |= {name: grown[name] for name in COUNTS}
            pair |= {"reported_s": sum(grown[name] for name in TIMES) / 1000}
            clocks = [n for n in SUMMED if n.endswith("clock_s")]
            pair |= dict.fromkeys(clocks, clock_s)
            for name, value in pair.items():
                sums[name] = (sums[name] or 0.0) + value
            sums["pairs"] += 1
        last = of_task[-1]
        yield {
            **last, **sums, "rows": len(of_task), "slice": 0, "stride": 9,
            "first_at": of_task[0]["at"], "last_at": last["at"],
            "restarts_least": 0, "restarts_most": 0,
        }  # fmt: skip


def analyse(truths: Sequence[Truth]) -> tuple[list[JsonObject], tuple[RankedJob, ...]]:
    """The jobs and their ranking, as `speck.analyzer.run` has them."""
    sliced = list(sum_rows(sample(truths)))
    rated = rate_jobs(sliced, rate_tasks(sliced))
    polled = [
        {
            "site": name,
            "tier": tier,
            "cores": 4.0,
            "core_speed": 1.0,
            "slots_total": 4,
            "slots_free": 4,
            "host_cpu": 0.2,
            "cpu": None,
            "seconds": 100.0,
            "bins": None,
            "uplink_mbps": None,
            "last_at": T0 + timedelta(seconds=(POLLS - 1) * EVERY_S),
        }
        for name, tier in (("edge-a", "edge"), ("cloud", "cloud"))
    ]
    used = add_use(polled, rated)
    plans = wire_plans(row for each in truths for row in each.plan())
    jobs = describe_jobs(choose_incarnations(rated, plans), plans, used, {})
    origins = DataOrigins(jobs, join_links(jobs, []), list(plans.values()))
    return jobs, rank_jobs(jobs, add_loads(used, jobs), origins)


TRUTHS = st.lists(
    st.builds(
        Truth,
        name=st.just(""),
        engine=st.sampled_from(ENGINES),
        cost=st.sampled_from([0.0002, 0.0005, 0.001, 0.002]),
        rate=st.sampled_from([100, 200, 300]),
        selectivity=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
    ),
    min_size=2,
    max_size=5,
).map(lambda all_of: [Truth(f"j{i}", *_values(each)) for i, each in enumerate(all_of)])


def _values(truth: Truth) -> tuple[Any, ...]:
    return truth.engine, truth.cost, truth.rate, truth.selectivity


@costly()
@given(TRUTHS)
def test_the_ranking_goes_by_what_jobs_cost_whatever_runs_them(truths: list[Truth]) -> None:
    jobs, ranking = analyse(truths)
    by_name = {each.name: each for each in truths}
    for job in jobs:
        truth = by_name[job["job_name"]]
        assert job["evidence"] == "sufficient", (truth, job["why"])
        assert job["core_s_per_record"] == pytest.approx(truth.cost, rel=0.01)
        assert job["in_rate"] == pytest.approx(truth.rate, rel=0.01)
        assert job["state_bytes"] == 2000
    for row in ranking:
        assert row.rank is not None, row.against
        assert row.score == pytest.approx(by_name[row.job_name].score, rel=0.02, abs=1e-6)
    scores = [by_name[row.job_name].score for row in ranking]
    assert scores == sorted(scores, reverse=True)


@pytest.mark.parametrize("engine", ENGINES)
def test_whether_a_job_keeps_state_is_not_guessed(engine: str) -> None:
    """A small state of a program may be windows: only a plan shows that there are none."""
    (job,), (row,) = analyse([Truth("a", engine, 0.001, 100, 0.5)])
    assert job["stateful"] is (False if engine == "flink" else None)
    assert ("it is unknown whether it keeps state" in row.against) is (engine != "flink")
    (declared,), _ = analyse([Truth("a", engine, 0.001, 100, 0.5, stateful=True)])
    assert declared["stateful"] is True
