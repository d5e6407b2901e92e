"""State and heap by regression over samples, with the garbage that collectors leave."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from pyspark.sql import SparkSession

from speck.analyzer.memory import STATE_FACTOR
from speck.analyzer.reading import Span
from speck.analyzer.run import analyse
from speck.metrics.dataset.local import LocalStorage
from speck.model.shown import render
from speck.model.values import JsonObject
from speck.placement.instance import MEMORY_BYTES
from tests.samples_by_hand import EVERY_S, SPAN_S, Row, at, dataset, plan, running, site

MB = 1_000_000
BASE = 60 * MB


def with_state(name: str, where: str, size: Callable[[float], float]) -> list[Row]:
    """A job whose checkpoints have so many bytes after so many seconds."""
    rows = running(name, where)
    return [
        {**row, "checkpoint_bytes": round(size(number * EVERY_S)), "checkpoint_ms": 5}
        for number, row in enumerate(rows)
    ]


def with_heap(
    name: str,
    live: Callable[[float], float],
    used_slots: Callable[[float], int],
    garbage: int = 16 * MB,
    most: int = 512 * MB,
) -> list[Row]:
    """A site whose heap holds so much, and `garbage` more each 10 s that goes every 50 s."""
    rows = []
    for number, row in enumerate(site(name)):
        s = number * EVERY_S
        heap = live(s) + garbage * (number % 5)
        slots = {"slots_total": 8, "slots_free": 8 - used_slots(s)}
        rows.append({**row, **slots, "heap_used_bytes": round(heap), "heap_max_bytes": most})
    return rows


@pytest.fixture(scope="module")
def analysed(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> JsonObject:
    def grown(s: float) -> float:
        return MB + 10_000 * s

    def noisy(s: float) -> float:
        return 2 * MB + (400_000 if round(s / EVERY_S) % 12 < 6 else 0)

    jobs = [
        *with_state("grows", "edge-a", grown),
        *with_state("constant", "edge-a", lambda s: 500_000),
        *with_state("noisy", "edge-b", noisy),
        *running("silent", "edge-b"),
        *with_state("idle", "edge-c", lambda s: 1000),
    ]
    sites = [
        # 5 bytes of heap for each byte of state
        *with_heap("edge-a", lambda s: BASE + 5 * 10_000 * s, lambda s: 2),
        # a job of one subtask starts in the middle: 7 MB
        *with_heap("edge-b", lambda s: BASE + 7 * MB * (s >= 300), lambda s: 2 + (s >= 300)),
        # no collection in the whole window
        *with_heap("edge-c", lambda s: BASE + 50_000 * s, lambda s: 2, garbage=0, most=900 * MB),
        *site("cloud"),
    ]
    where = {row["job_name"]: row["site"] for row in jobs}
    plans = [plan(name, each) for name, each in where.items()]
    root = dataset(tmp_path_factory.mktemp("memory"), jobs, plans, sites)
    return render(analyse(spark, LocalStorage(root), Span(at(0), at(SPAN_S))))


def job(analysis: JsonObject, name: str) -> JsonObject:
    (found,) = [job for job in analysis["jobs"] if job["job_name"] == name]
    return dict(found)


def place(analysis: JsonObject, name: str) -> JsonObject:
    (found,) = [site for site in analysis["sites"] if site["name"] == name]
    return dict(found)


def test_the_growth_of_state_is_the_slope_of_its_checkpoints(analysed: JsonObject) -> None:
    assert job(analysed, "grows")["state_bytes_per_s"] == pytest.approx(10_000, rel=0.01)
    assert job(analysed, "constant")["state_bytes_per_s"] == 0.0
    assert job(analysed, "noisy")["state_bytes_per_s"] == 0.0  # no line fits
    assert job(analysed, "silent")["state_bytes_per_s"] is None


def test_heap_and_state_that_grow_together_give_the_heap_of_a_byte(analysed: JsonObject) -> None:
    edge = place(analysed, "edge-a")
    assert edge["heap_per_state_byte"] == pytest.approx(5.0, rel=0.1)
    assert edge["heap_bytes"] == pytest.approx(BASE + 5 * 10_000 * SPAN_S, rel=0.05)
    assert edge["heap_max_bytes"] == 512 * MB
    grows = job(analysed, "grows")
    assert grows["heap_bytes_per_s"] == pytest.approx(50_000, rel=0.1)
    assert grows["heap_bytes"] == pytest.approx(MEMORY_BYTES + 5 * 7 * MB, rel=0.1)


def test_subtasks_that_come_give_the_heap_of_one(analysed: JsonObject) -> None:
    edge = place(analysed, "edge-b")
    assert edge["heap_bytes_per_subtask"] == pytest.approx(7 * MB, rel=0.1)
    assert edge["heap_per_state_byte"] == STATE_FACTOR  # no state grows there
    assert job(analysed, "silent")["heap_bytes"] == edge["heap_bytes_per_subtask"]


def test_what_no_engine_reports_is_unknown(analysed: JsonObject) -> None:
    cloud = place(analysed, "cloud")
    assert (cloud["heap_bytes"], cloud["heap_max_bytes"]) == (None, None)


def test_garbage_that_piles_up_is_not_growth(analysed: JsonObject) -> None:
    """No collection in the whole window, and no state that grows: the least use counts."""
    assert place(analysed, "edge-c")["heap_bytes"] == BASE
    assert job(analysed, "idle")["heap_bytes_per_s"] == 0.0
