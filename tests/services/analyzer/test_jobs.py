"""What is told of jobs that are counted well and badly: one dataset, a job for each case.

Every even job takes 100 records a second and is busy for 0.2 s of each: 2 ms a record.
"""

from __future__ import annotations

import math

import pytest
from pyspark.sql import SparkSession

from speck.analyzer.reading import Span
from speck.analyzer.run import FEW_ROWS, analyse, configured
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.schema import ALONE, TASKS
from speck.model.shown import render
from speck.model.values import JsonObject
from tests.samples_by_hand import (
    EVERY_S,
    LOOKS,
    SPAN_S,
    Row,
    at,
    dataset,
    plan,
    running,
    site,
    task,
    write,
)

SPAN = Span(at(0), at(SPAN_S))


def _restarted() -> list[Row]:
    """Its engine restarts it in the middle: all counters restart."""
    before = running("restarted", looks=31)
    after = running("restarted", looks=29, begin=320.0, restarts=1)
    return before + after


def _stale() -> list[Row]:
    """Every other time the engine repeats its last report."""
    rows = running("stale")
    for number in range(1, LOOKS, 2):
        rows[number] = {**rows[number - 1], "at": rows[number]["at"]}
    return rows


def _parallel(name: str = "parallel", looks: int = LOOKS) -> list[Row]:
    """A source that hands on to two subtasks of a keyed sink."""
    source = running(
        name,
        "edge-b",
        looks=looks,
        busy=0.1,
        selectivity=1.0,
        vertex="v0",
        is_sink=False,
        bytes_out=0,
    )
    sinks = [
        running(
            name,
            "edge-b",
            looks=looks,
            rate=50.0,
            busy=0.4,
            vertex="v1",
            subtask=number,
            subtasks=2,
            is_source=False,
        )
        for number in (0, 1)
    ]
    return source + sinks[0] + sinks[1]


def _silent(name: str, **nothing: object) -> list[Row]:
    return [{**row, **nothing} for row in running(name)]


def _fell_behind() -> list[Row]:
    reader = {"job_name": "left", "client_id": "left"}
    return [{**row, **reader} for row in _lagging()[:30]] + _lagging()


def _lagging() -> list[Row]:
    return [
        {
            "at": at(look * EVERY_S),
            "composition": "c",
            "broker_site": "edge-a",
            "topic": "backlog-in",
            "role": "reader",
            "client_id": "backlog",
            "job_name": "backlog",
            "engine_site": "edge-a",
            "messages": round(100 * look * EVERY_S),
            "lag": round(50 * look * EVERY_S),
        }
        for look in range(LOOKS)
    ]


@pytest.fixture(scope="module")
def analysis(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> JsonObject:
    root = tmp_path_factory.mktemp("metrics")
    gap = [row for row in running("gap") if not at(195) < row["at"] < at(305)]
    tasks = [
        *running("even"),
        *running("twice"),
        *_restarted(),
        *gap,
        *_stale(),
        *_parallel(),
        *_silent("unheard", busy_ms=math.nan, idle_ms=None),
        *running("lazy", rate=1.0, busy=0.001),
        *running("blocked", rate=343.0, busy=0.002, back=0.998),
        *running("stuck", rate=343.0, busy=0.0, back=1.0),
        *running("moved", "cloud", looks=31, busy=0.4),
        *running("moved", "edge-a", begin=310.0, looks=30, attempt=2),
        *running("fresh", looks=58),
        *running("fresh", begin=580.0, looks=3, attempt=2, busy=0.01),
        *running("rebuilt", looks=31, busy=0.4),
        *running("rebuilt", begin=310.0, looks=30, attempt=2, rate=1.0, busy=0.001),
        *running("caught-up", looks=21),
        *running("caught-up", begin=300.0, looks=31, rate=400 / 3, busy=0.8 / 3, attempt=2),
        *running("just-back", looks=21),
        *running("just-back", begin=520.0, looks=2, rate=400.0, attempt=2),
        *running("crowded", host_cpu=0.9),
        *running("slow", "edge-slow", busy=0.8),
        *running("choked", "edge-quota", busy=0.96),
        *running("shared", cpu=0.14),
        *running("waits", busy=0.5, cpu=0.1),
        *running("mostly-waits", busy=0.5, cpu=0.02),
        *running("held-back", "edge-bursts", busy=0.1, cpu=0.025),
        *running("backlog"),
        *[{**row, "composition": ALONE} for row in running("alone")],
        *running("stopped", "edge-left", busy=0.9, looks=50),
        task(0, "seen-once", busy_ms=5.0),
        *_parallel("young", looks=3),
    ]
    sites = [
        *site("edge-a", cores=64.0),
        *site("edge-b"),
        *site("edge-slow", core_speed=0.25, cores=2.0, cpu=0.8),
        *site("edge-quota", cores=0.25, cpu=0.24),
        *site("edge-bursts", cores=0.25, cpu=0.05),
        *site("edge-left"),
        *site("cloud", cores=64.0),
    ]
    keyed = {"vertex": "v1", "ship_strategies": ["HASH"]}
    plans = [plan("even"), plan("parallel", "edge-b"), plan("parallel", "edge-b", **keyed)]
    dataset(root, tasks, plans, sites, _fell_behind())
    write(root, TASKS, running("twice"), part=2)
    with configured(spark, FEW_ROWS):
        return render(analyse(spark, LocalStorage(root), SPAN))


def job(analysis: JsonObject, name: str) -> JsonObject:
    (row,) = [job for job in analysis["jobs"] if job["job_name"] == name]
    return dict(row)


@pytest.mark.parametrize(
    "name", ["even", "twice", "restarted", "gap", "stale", "moved", "fresh", "crowded", "alone"]
)
def test_the_cost_is_right_whatever_became_of_the_rows(analysis: JsonObject, name: str) -> None:
    row = job(analysis, name)
    assert row["evidence"] == "sufficient", row["why"]
    assert row["in_rate"] == pytest.approx(100)
    assert row["core_s_per_record"] == pytest.approx(0.002)
    assert row["selectivity"] == pytest.approx(0.5)
    assert row["true_processing_rate"] == pytest.approx(500)
    assert row["true_output_rate"] == pytest.approx(250)
    assert row["utilisation"] == pytest.approx(0.2)


def test_what_a_job_catches_up_with_after_an_outage_is_not_its_rate(analysis: JsonObject) -> None:
    """100 records/s for 200 s, none for 100 s, then those that had waited, too."""
    row = job(analysis, "caught-up")
    assert row["covered"] == pytest.approx(500 / 600)
    assert row["rate_evidence"] == "sufficient"
    assert row["in_rate"] == pytest.approx(100, rel=0.01)
    assert row["out_rate"] == pytest.approx(50, rel=0.01)
    assert row["core_s_per_record"] == pytest.approx(0.002)  # of the incarnation that runs
    assert row["true_processing_rate"] == pytest.approx(500, rel=0.01)


def test_rates_of_two_samples_are_no_evidence(analysis: JsonObject) -> None:
    """Its newest incarnation was seen twice; the older one was not seen for most of the time."""
    row = job(analysis, "just-back")
    assert (row["rate_evidence"], row["evidence"]) == ("insufficient", "insufficient")
    assert row["rate_why"] == [
        "1 usable pairs of samples",
        "measured for 40 % of the time since it was first seen",
    ]


def test_flink_placements_rate_is_records_sent_by_busy_time(analysis: JsonObject) -> None:
    """Whatever core a job had: 50 records/s in 0.96 s of each, and ours by CPU time beside it."""
    even, choked = job(analysis, "even"), job(analysis, "choked")
    assert even["trueOutputProcessingRate"] == pytest.approx(50 / 0.2)
    assert even["tasks"] == [
        {"vertex": "v0", "subtask": 0, "trueOutputProcessingRate": pytest.approx(250)}
    ]
    assert choked["trueOutputProcessingRate"] == pytest.approx(50 / 0.96)
    assert choked["true_output_rate"] == pytest.approx(0.5 * 0.25 / 0.0024)
    parallel = job(analysis, "parallel")
    # the source hands on 100 records/s in 0.1 s of each, either sink 25 in 0.4 s
    rates = [task["trueOutputProcessingRate"] for task in parallel["tasks"]]
    assert [(task["vertex"], task["subtask"]) for task in parallel["tasks"]] == [
        ("v0", 0),
        ("v1", 0),
        ("v1", 1),
    ]
    assert rates == [pytest.approx(1000), pytest.approx(62.5), pytest.approx(62.5)]
    assert parallel["trueOutputProcessingRate"] == pytest.approx(50 / 0.9)
    for name in ("lazy", "unheard", "seen-once"):
        assert job(analysis, name)["trueOutputProcessingRate"] is None, name
        assert job(analysis, name)["tasks"][0]["trueOutputProcessingRate"] is None


def test_faults_are_counted(analysis: JsonObject) -> None:
    counted = analysis["samples"]
    assert counted["duplicates"] == LOOKS
    assert counted["resets"] == 1
    assert counted["gaps"] == 1
    assert counted["nan"] == LOOKS
    assert counted["contended"] == LOOKS - 1


def test_time_is_what_the_subtask_spent(analysis: JsonObject) -> None:
    assert job(analysis, "gap")["seconds"] == pytest.approx(600)
    assert job(analysis, "stale")["seconds"] == pytest.approx(600)
    assert job(analysis, "restarted")["seconds"] == pytest.approx(580)
    assert job(analysis, "restarted")["restarts"] == 1


def test_a_job_is_what_its_newest_incarnation_is_where_it_is_now(analysis: JsonObject) -> None:
    assert job(analysis, "moved")["site"] == "edge-a"
    assert job(analysis, "moved")["seconds"] == pytest.approx(290)
    assert job(analysis, "alone")["composition"] is None


def test_a_job_of_several_tasks_is_held_by_the_slowest_and_by_its_site(
    analysis: JsonObject,
) -> None:
    row = job(analysis, "parallel")
    assert (row["in_rate"], row["out_rate"]) == (pytest.approx(100), pytest.approx(50))
    assert row["core_s_per_record"] == pytest.approx(0.009)
    # Its slowest task would take 250/s, two cores do 2 / 0.009.
    assert row["true_processing_rate"] == pytest.approx(2 / 0.009)
    assert row["utilisation"] == pytest.approx(0.4)
    assert (row["subtasks"], row["stateful"]) == (2, True)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("unheard", "busy time is not reported"),
        ("lazy", "busy for 0.60 s, less than 1 s"),
        ("rebuilt", "busy for 0.29 s, less than 1 s"),  # whatever it was like before
        ("blocked", "back-pressured for 100 % of the time"),
        ("stuck", "busy for 0.00 s, less than 1 s"),
        ("seen-once", "0 usable pairs of samples"),
        ("young", "2 usable pairs of samples"),
    ],
)
def test_what_the_evidence_does_not_carry_is_no_number(
    analysis: JsonObject, name: str, why: str
) -> None:
    row = job(analysis, name)
    assert row["evidence"] == "insufficient"
    assert why in row["why"]
    assert row["core_s_per_record"] is row["reference_core_s_per_record"] is None
    if name != "unheard":
        assert row["true_processing_rate"] is None
        assert not row["lower_bound"]


def test_without_busy_time_the_observed_rate_is_a_lower_bound(analysis: JsonObject) -> None:
    row = job(analysis, "unheard")
    assert row["true_processing_rate"] == pytest.approx(100)
    assert row["lower_bound"]


def test_a_contended_machine_is_told(analysis: JsonObject) -> None:
    row = job(analysis, "crowded")
    assert row["contended"] == pytest.approx(1)
    assert row["confidence"] == "low"
    assert "the machine was overloaded all the time" in row["why"]


def test_the_reference_cost_is_of_a_core_as_fast_as_the_clouds(analysis: JsonObject) -> None:
    row = job(analysis, "slow")
    assert row["core_s_per_record"] == pytest.approx(0.008)
    assert row["reference_core_s_per_record"] == pytest.approx(0.002)
    assert row["true_processing_rate"] == pytest.approx(1 / 0.008)


def test_waiting_for_a_quota_is_no_work(analysis: JsonObject) -> None:
    """Busy for 9.6 ms a record by wall time, of which a core was had for a quarter."""
    row = job(analysis, "choked")
    assert row["core_s_per_record"] == pytest.approx(0.0024)
    assert row["true_processing_rate"] == pytest.approx(0.25 / 0.0024)


@pytest.mark.parametrize(
    ("name", "cost", "rate"),
    [
        ("shared", 0.0014, 1 / 0.0014),  # others had its core for 30 % of its busy time
        ("waits", 0.001, 1 / 0.005),  # 4 of 5 ms it waits for no core: it will wait at full use
        ("held-back", 0.00025, 0.25 / 0.00025),  # by a quota, though its site is hardly used
    ],
)
def test_the_cost_is_cpu_time_where_that_is_told(
    analysis: JsonObject, name: str, cost: float, rate: float
) -> None:
    row = job(analysis, name)
    assert row["core_s_per_record"] == pytest.approx(cost)
    assert row["true_processing_rate"] == pytest.approx(rate)


def test_cpu_time_is_not_compared_with_busy_time(analysis: JsonObject) -> None:
    """Neither in the part of the window where the first row lies, which tells no difference."""
    row = job(analysis, "mostly-waits")
    assert row["evidence"] == "sufficient", row["why"]
    assert row["core_s_per_record"] == pytest.approx(0.0002)


def test_a_source_with_a_backlog_is_no_faster_than_it_was_seen(analysis: JsonObject) -> None:
    row = job(analysis, "backlog")
    assert row["true_processing_rate"] == pytest.approx(100)
    assert any("backlog" in why for why in row["why"])
    (bottleneck,) = [b for b in analysis["bottlenecks"] if b["kind"] == "link"]
    assert bottleneck["name"] == "edge-a/backlog-in"
    assert bottleneck["value"] == pytest.approx(50)


def test_bottlenecks_are_named(analysis: JsonObject) -> None:
    bottlenecks = {(each["kind"], each["name"]) for each in analysis["bottlenecks"]}
    assert ("job", "choked") in bottlenecks
    assert ("job", "stuck") in bottlenecks
    assert ("job", "even") not in bottlenecks
    assert ("site", "edge-quota") in bottlenecks


def test_whether_a_job_keeps_state_is_told_by_its_plan(analysis: JsonObject) -> None:
    assert job(analysis, "even")["stateful"] is None  # no checkpoint was seen
    assert job(analysis, "even")["source"] == {"site": "edge-a", "topic": "even-in"}


def test_a_job_that_does_not_run_any_more_takes_no_capacity(analysis: JsonObject) -> None:
    stopped = job(analysis, "stopped")
    assert (stopped["ended"], stopped["evidence"]) == (True, "sufficient")
    assert "is no longer running" in stopped["why"]
    for name in ("even", "fresh", "moved", "gap", "stale", "restarted"):
        assert job(analysis, name)["ended"] is False, name
    loads = {site["name"]: site["load"] for site in analysis["sites"]}
    assert (loads["edge-left"], loads["edge-slow"] > 0) == (0.0, True)
    assert not any(each["name"] in ("stopped", "edge-left") for each in analysis["bottlenecks"])
    (rank,) = [each for each in analysis["ranking"] if each["job_name"] == "stopped"]
    assert rank["against"][0] == "is no longer running"


def test_an_end_of_a_link_that_is_told_no_more_is_gone(analysis: JsonObject) -> None:
    readers = [reader["job_name"] for link in analysis["links"] for reader in link["readers"]]
    assert "backlog" in readers
    assert "left" not in readers
