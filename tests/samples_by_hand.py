"""Small datasets for tests of the analyzer, whose figures can be computed by hand."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa

from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.schema import LINKS, PLANS, SITES, TASKS, Table
from speck.metrics.dataset.storage import Storage

Row = dict[str, Any]
Root = TypeVar("Root", Path, Storage)
T0 = datetime(2026, 3, 2, 12, tzinfo=UTC)
EVERY_S = 10.0
LOOKS = 61
SPAN_S = EVERY_S * (LOOKS - 1)


def at(seconds: float) -> datetime:
    return T0 + timedelta(seconds=seconds)


def engine_job_id(job_name: str, attempt: int = 1) -> str:
    return f"{job_name}-{attempt}".encode().hex().ljust(32, "0")


def task(seconds: float, job_name: str = "A", site: str = "edge-a", **more: Any) -> Row:
    """One row of TASKS: nothing reported but the task's identity."""
    attempt = more.get("attempt", 1)
    return {
        "at": at(seconds),
        "composition": "c",
        "job_name": job_name,
        "site": site,
        "engine_job_id": engine_job_id(job_name, attempt),
        "attempt": attempt,
        "vertex": "v0",
        "subtask": 0,
        "subtasks": 1,
        "is_source": True,
        "is_sink": True,
        "restarts": 0,
        "host_cpu": 0.2,
        **more,
    }


def running(
    job_name: str = "A",
    site: str = "edge-a",
    *,
    rate: float = 100.0,
    selectivity: float = 0.5,
    busy: float = 0.2,
    back: float = 0.0,
    cpu: float | None = None,
    bytes_in: float = 100.0,
    bytes_out: float = 100.0,
    looks: int = LOOKS,
    begin: float = 0.0,
    **more: Any,
) -> list[Row]:
    """Rows of a job of one subtask that works evenly. `busy`, `back`, `cpu`: shares of its time;
    bytes are of a record."""
    rows = []
    for look in range(looks):
        s = look * EVERY_S
        rows.append(
            task(
                begin + s,
                job_name,
                site,
                busy_ms=1000 * s * busy,
                back_pressured_ms=1000 * s * back,
                idle_ms=1000 * s * (1 - busy - back),
                cpu_ms=None if cpu is None else 1000 * s * cpu,
                records_in=round(s * rate),
                records_out=round(s * rate * selectivity),
                bytes_in=round(s * rate * bytes_in),
                bytes_out=round(s * rate * selectivity * bytes_out),
                **more,
            )
        )
    return rows


def plan(job_name: str = "A", site: str = "edge-a", **more: Any) -> Row:
    """One row of PLANS: a chained job from its site's broker to the cloud's."""
    return {
        "at": T0,
        "composition": "c",
        "job_name": job_name,
        "site": site,
        "engine_job_id": engine_job_id(job_name, more.pop("attempt", 1)),
        "vertex": "v0",
        "description": "Source: in -> map -> Sink: out",
        "parallelism": 1,
        "ship_strategies": [],
        "source_site": site,
        "source_topic": f"{job_name}-in",
        "sink_site": "cloud",
        "sink_topic": f"{job_name}-out",
        "pinned": False,
        **more,
    }


def site(name: str, *, looks: int = LOOKS, cpu: float = 0.3, **more: Any) -> list[Row]:
    """Rows of SITES: two cores as fast as the reference, one free slot of two."""
    tier = "cloud" if name.startswith("cloud") else "edge"
    return [
        {
            "at": at(look * EVERY_S),
            "site": name,
            "tier": tier,
            "slots_total": 2,
            "slots_free": 1,
            "cores": 2.0,
            "core_speed": 1.0,
            "cpu_ms": 1000 * cpu * look * EVERY_S,
            "host_cpu": 0.2,
            "host_cores": 2,
            "uplink_mbps": 10.0,
            **more,
        }
        for look in range(looks)
    ]


def write(
    place: Path | Storage, table: Table, rows: Iterable[Mapping[str, Any]], part: int = 1
) -> None:
    """Rows as one file in each of their partitions."""
    storage = LocalStorage(place) if isinstance(place, Path) else place
    by_folder: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        folder = f"{table.name}/day={row['at']:%Y-%m-%d}"
        if "composition" in table.partitions:
            folder += f"/composition={row['composition']}"
        by_folder.setdefault(folder, []).append(row)
    for folder, folder_rows in by_folder.items():
        columns = pa.Table.from_pylist(folder_rows, table.schema)
        storage.put(f"{folder}/part-{part}-0.parquet", columns, {})


def dataset(
    root: Root,
    tasks: Iterable[Row],
    plans: Iterable[Row] = (),
    sites: Iterable[Row] = (),
    links: Iterable[Row] = (),
) -> Root:
    """A whole dataset in a folder or a storage."""
    for table, rows in ((TASKS, tasks), (PLANS, plans), (SITES, sites), (LINKS, links)):
        write(root, table, rows)
    return root
