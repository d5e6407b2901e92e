"""Warms a JVM up: analyses of a few samples that are made here load and compile what the first real
one needs."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speck.analyzer.request import AnalyzerRequest, answer
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.schema import LINKS, PLANS, SITES, TASKS
from speck.metrics.dataset.writer import Writer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROUNDS = 12
"""After so many analyses another one makes the next hardly faster."""
_POLLS, _EVERY_S = 6, 10.0
_JOBS, _SITES = ("a", "b"), ("edge", "cloud")
_SCOPE = {"composition": "warm-up"}


def analyse_samples(spark: SparkSession, is_awaited: Callable[[], bool]) -> None:
    """Analyse samples until the JVM is warm, or somebody waits for it."""
    with tempfile.TemporaryDirectory(prefix="speck-warm-up-") as folder:
        storage = LocalStorage(Path(folder, "metrics"))
        _write_samples(storage)
        for _ in range(ROUNDS):
            if is_awaited():
                return
            answer(spark, AnalyzerRequest(storage, Path(folder, "analysis.json")))


def _write_samples(storage: LocalStorage) -> None:
    writer = Writer(storage)
    since = datetime.now(UTC) - timedelta(seconds=_POLLS * _EVERY_S)
    for poll in range(_POLLS):
        at = {"at": since + timedelta(seconds=poll * _EVERY_S)}
        writer.append(TASKS, [{**at, **row} for row in _list_tasks(poll * _EVERY_S)])
        writer.append(SITES, [{**at, **row} for row in _list_sites(poll * _EVERY_S)])
        writer.append(LINKS, [{**at, **row} for row in _list_ends(poll * _EVERY_S)])
    writer.append(PLANS, [{"at": since, **row} for row in _list_plans()])
    writer.close()


def _list_tasks(seconds: float) -> Iterator[dict[str, Any]]:
    for job in _JOBS:
        yield {
            **_SCOPE,
            "job_name": job,
            "site": _SITES[0],
            "engine_job_id": job,
            "attempt": 1,
            "vertex": "v",
            "subtask": 0,
            "subtasks": 1,
            "is_source": True,
            "is_sink": True,
            "busy_ms": 300 * seconds,
            "idle_ms": 700 * seconds,
            "back_pressured_ms": 0.0,
            "cpu_ms": 200 * seconds,
            "restarts": 0,
            "host_cpu": 0.5,
            "records_in": round(100 * seconds),
            "records_out": round(50 * seconds),
            "bytes_in": round(9000 * seconds),
            "bytes_out": round(4000 * seconds),
            "checkpoint_bytes": 1000,
            "checkpoint_ms": 5,
        }


def _list_sites(seconds: float) -> Iterator[dict[str, Any]]:
    for site, tier in zip(_SITES, ("edge", "cloud"), strict=True):
        yield {
            "site": site,
            "tier": tier,
            "slots_total": 2,
            "slots_free": 1,
            "cores": 2.0,
            "cpu_ms": 300 * seconds,
            "host_cpu": 0.5,
            "host_cores": 2,
            "heap_used_bytes": 50_000_000,
            "heap_max_bytes": 200_000_000,
        }


def _list_ends(seconds: float) -> Iterator[dict[str, Any]]:
    for job in _JOBS:
        end = {**_SCOPE, "client_id": job, "job_name": job, "engine_site": _SITES[0], "epoch": 1}
        read = {"role": "reader", "topic": f"{job}-in", "messages": round(100 * seconds), "lag": 0}
        sent = {"role": "producer", "topic": f"{job}-out", "messages": round(50 * seconds)}
        yield {**end, **read, "broker_site": _SITES[0]}
        yield {**end, **sent, "broker_site": _SITES[1]}


def _list_plans() -> Iterator[dict[str, Any]]:
    for job in _JOBS:
        yield {
            **_SCOPE,
            "job_name": job,
            "site": _SITES[0],
            "engine_job_id": job,
            "vertex": "v",
            "description": "Source -> Sink",
            "parallelism": 1,
            "ship_strategies": ["FORWARD"],
            "source_site": _SITES[0],
            "source_topic": f"{job}-in",
            "sink_site": _SITES[1],
            "sink_topic": f"{job}-out",
            "pinned": False,
        }
