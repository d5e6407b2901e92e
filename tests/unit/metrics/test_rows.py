"""What engines and brokers tell as rows of the dataset."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from speck.metrics.dataset.rows import partition_rows
from speck.metrics.dataset.schema import BROKERS, LINKS, PLANS, SITES, TASKS
from speck.metrics.rows import (
    Ends,
    Samples,
    discount_first_lag,
    make_broker_row,
    make_link_rows,
    make_plan_rows,
    make_site_row,
    make_task_rows,
    update_samples,
)
from speck.model.composition import composition_of_one
from speck.model.incarnation import Incarnation, Session
from speck.model.link import Link
from speck.model.measurement import (
    BrokerMeasures,
    EngineMeasures,
    Host,
    JobMeasure,
    PlanNode,
    TaskMeasure,
)
from speck.model.observation import BrokerView, Sent, Taken
from speck.model.site import Broker, Engine, Site, Tier
from tests.calibrating import calibration
from tests.sample_job import make_job

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
LATER = AT + timedelta(seconds=5)
EDGE, CLOUD = "edge", "cloud"
A = make_job("A", Link(EDGE, "in"), Link(CLOUD, "mid"), pinned=True)
B = replace(A, job_name="B", site="cloud", source=Link(CLOUD, "mid"), sink=Link(CLOUD, "out"))
B = replace(B, pinned=False)
DEPLOYED = {
    ("c", "A"): Incarnation(A, 2, "a" * 32),
    (composition_of_one("B"), "B"): Incarnation(B, 1, "b" * 32),
}
READER = "speck-01234567-B-" + "x" * 8
HOST = Host(0.25, 4)


def task(**fields: Any) -> TaskMeasure:
    defaults = {"busy_ms": 100.0, "idle_ms": 900.0, "back_pressured_ms": 0.0, "records_in": 10}
    return TaskMeasure("v", "source -> sink", 0, 1, True, True, **{**defaults, **fields})


def measures(*tasks: TaskMeasure, job: str = "a" * 32, **fields: Any) -> EngineMeasures:
    return EngineMeasures({job: JobMeasure(job, tasks, restarts=0, **fields)}, 8, 7)


def rows_at(at: datetime, samples: Samples) -> list[dict[str, Any]]:
    return make_task_rows(at, samples, DEPLOYED, HOST)


def test_a_task_s_row_holds_what_was_told_and_null_what_was_not() -> None:
    engine_measures = measures(
        task(records_out=5, bytes_in=700, cpu_ms=77.5), checkpoint_id=3, checkpoint_bytes=99
    )
    (row,) = rows_at(AT, update_samples(AT, engine_measures, {}))
    assert row == {
        "at": AT, "composition": "c", "job_name": "A", "site": "edge", "engine_job_id": "a" * 32,
        "attempt": 2, "vertex": "v", "subtask": 0, "subtasks": 1, "is_source": True,
        "is_sink": True, "busy_ms": 100.0, "idle_ms": 900.0, "back_pressured_ms": 0.0,
        "cpu_ms": 77.5, "records_in": 10, "records_out": 5, "bytes_in": 700, "bytes_out": None,
        "restarts": 0,
        "checkpoint_id": 3, "checkpoint_bytes": 99, "checkpoint_ms": None, "host_cpu": 0.25,
    }  # fmt: skip


def test_jobs_posted_alone_have_a_partition_of_their_own() -> None:
    (row,) = rows_at(AT, update_samples(AT, measures(task(), job="b" * 32), {}))
    assert (row["composition"], row["job_name"]) == ("_alone", "B")


def test_an_answer_from_the_engine_s_cache_makes_no_row() -> None:
    first = update_samples(AT, measures(task()), {})
    stale = update_samples(LATER, measures(task()), first)
    assert rows_at(LATER, stale) == []
    assert stale == first
    fresh = update_samples(LATER, measures(task(idle_ms=5900.0)), stale)
    assert [row["idle_ms"] for row in rows_at(LATER, fresh)] == [5900.0]
    ((older, newer),) = fresh.values()
    assert older is not None
    assert (older.at, newer.at) == (AT, LATER)


@pytest.mark.parametrize("more_ms", [-3.0, 0.0, 6.0])
def test_what_is_told_twice_of_one_moment_makes_no_row(more_ms: float) -> None:
    """Between the two, rates would be anything; what came meanwhile is in the next look's."""
    first = update_samples(AT, measures(task()), {})
    again = measures(task(busy_ms=100.0 + more_ms, records_in=11))
    assert update_samples(LATER, again, first) == first
    restarted = JobMeasure("a" * 32, again.jobs["a" * 32].tasks, restarts=1)
    new = update_samples(LATER, EngineMeasures({"a" * 32: restarted}, 8, 7), first)
    assert [row["records_in"] for row in rows_at(LATER, new)] == [11]


def test_a_task_that_tells_no_times_and_takes_nothing_is_idle_not_stale() -> None:
    engine_measures = measures(task(busy_ms=None, idle_ms=None, back_pressured_ms=None))
    samples = update_samples(LATER, engine_measures, update_samples(AT, engine_measures, {}))
    assert [row["records_in"] for row in rows_at(LATER, samples)] == [10]


def test_a_job_that_did_not_answer_leaves_a_gap_and_no_zero() -> None:
    first = update_samples(AT, measures(task()), {})
    silent = update_samples(LATER, EngineMeasures({}, 8, 7), first)
    assert (silent, rows_at(LATER, silent)) == ({}, [])


def test_a_restart_of_the_tasks_is_told_as_it_is() -> None:
    """The counters fall: whoever makes differences of them has to see that."""
    first = update_samples(AT, measures(task(records_in=1000)), {})
    update = update_samples(LATER, measures(task(busy_ms=1.0, idle_ms=2.0, records_in=3)), first)
    assert [row["records_in"] for row in rows_at(LATER, update)] == [3]


def test_jobs_that_speck_did_not_deploy_make_no_rows() -> None:
    assert rows_at(AT, update_samples(AT, measures(task(), job="f" * 32), {})) == []


def test_cores_and_pace_are_the_calibrated_ones_when_there_are_any() -> None:
    site = Site("edge", Tier.EDGE, Engine("flink", "http://e:1"), Broker("mqtt", EDGE), 10.0)
    engine_measures = EngineMeasures({}, 8, 7, cores=4.0, cpu_ms=12.0, memory_bytes=5)
    row = make_site_row(AT, site, engine_measures, HOST, None)
    assert (row["cores"], row["core_speed"], row["host_cpu"], row["host_cores"]) == (
        4.0,
        None,
        0.25,
        4,
    )
    row = make_site_row(AT, site, engine_measures, Host(), calibration(0.25, 0.9))
    assert (row["cores"], row["core_speed"], row["host_cpu"], row["host_cores"]) == (
        0.25,
        0.9,
        None,
        None,
    )


def ends(*sessions: tuple[str, Session]) -> Ends:
    return Ends("0123456789", DEPLOYED, sessions)


def link_ends(site: str, view: BrokerView, known_ends: Ends) -> list[tuple[Any, ...]]:
    return [
        (row["role"], row["job_name"], row["topic"], row["epoch"], row["messages"], row["lag"])
        for row in make_link_rows(AT, site, view, known_ends)
    ]


def test_both_ends_of_a_link_are_told_where_its_broker_is() -> None:
    known_ends = ends()
    (sink,) = known_ends.sinks[A.sink]
    silent = BrokerView({}, {})
    (reader,) = [
        row["client_id"]
        for row in make_link_rows(AT, "cloud", silent, known_ends)
        if row["role"] == "reader"
    ]
    view = BrokerView(
        taken={reader: Taken(1, {"01234567-A": {7: 30}}, messages=30)},
        sent={sink: Sent("01234567-A", 7, 42)},
    )
    assert link_ends("cloud", view, known_ends) == [
        ("producer", "A", "mid", 7, 42, None),
        ("producer", "B", "out", None, None, None),
        ("reader", "B", "mid", None, 30, 12),
    ]
    assert link_ends("edge", silent, known_ends) == [("reader", "A", "in", None, None, None)]


def test_the_lag_of_a_new_reader_begins_when_it_is_first_seen() -> None:
    known_ends = ends()
    (sink,) = known_ends.sinks[A.sink]
    (reader,) = [
        row["client_id"]
        for row in make_link_rows(AT, "cloud", BrokerView({}, {}), known_ends)
        if row["role"] == "reader"
    ]

    def lag(sent: int, taken: dict[str, dict[int, int]], before: dict[str, int]) -> int:
        view = BrokerView({reader: Taken(1, taken)}, {sink: Sent("01234567-A", 7, sent)})
        rows, after = discount_first_lag(
            make_link_rows(AT, "cloud", view, known_ends), view, before
        )
        assert after == ({} if taken else {reader: 600})
        (value,) = [row["lag"] for row in rows if row["role"] == "reader"]
        assert isinstance(value, int)
        return value

    assert lag(600, {}, {}) == 0
    assert lag(642, {}, {reader: 600}) == 42
    assert lag(642, {"01234567-A": {7: 630}}, {reader: 600}) == 12


def test_readers_outside_speck_are_told_too() -> None:
    session = Session("outside", Link(CLOUD, "out"), "cloud", None)
    view = BrokerView({"outside": Taken(1, {}, messages=9)}, {})
    rows = make_link_rows(AT, "cloud", view, ends(("c", session)))
    outside = [row for row in rows if row["client_id"] == "outside"]
    assert [(row["job_name"], row["engine_site"], row["messages"]) for row in outside] == [
        (None, None, 9)
    ]


def test_a_plan_shows_how_records_are_shipped() -> None:
    nodes = (PlanNode("2", "window", 1, (("1", "HASH"),)), PlanNode("1", "source", 2))
    first, second = make_plan_rows(AT, "c", DEPLOYED["c", "A"], nodes, pinned=True)
    assert first["ship_strategies"] == ["HASH"]
    assert second["ship_strategies"] == []
    assert (first["source_site"], first["sink_site"], first["pinned"]) == ("edge", "cloud", True)


def test_all_rows_are_as_the_dataset_wants_them() -> None:
    site = Site("edge", Tier.EDGE, Engine("flink", "http://e:1"), Broker("mqtt", EDGE))
    samples = update_samples(AT, measures(task()), {})
    assert partition_rows(TASKS, rows_at(AT, samples))
    assert partition_rows(LINKS, make_link_rows(AT, "cloud", BrokerView({}, {}), ends()))
    assert partition_rows(
        PLANS, make_plan_rows(AT, "c", DEPLOYED["c", "A"], (PlanNode("1", "x", 1),))
    )
    assert partition_rows(SITES, [make_site_row(AT, site, EngineMeasures({}), Host(), None)])
    assert partition_rows(BROKERS, [make_broker_row(AT, "edge", BrokerMeasures())])
