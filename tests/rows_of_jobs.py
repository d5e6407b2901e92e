"""Rows of the analyzer's JOBS and sites, with figures that a test chooses, and their ranking."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from speck.analyzer.data_origins import DataOrigins
from speck.analyzer.links import join_links
from speck.analyzer.ranking import rank_jobs
from speck.analyzer.result import INTERNAL, add_loads
from speck.model.shown import render
from speck.model.values import JsonObject


def job(name: str, saved: float = 1000.0, cost: float | None = 0.001, **more: Any) -> JsonObject:
    """A job at the cloud fed from edge-a, 100 records/s of 50 bytes."""
    row: JsonObject = {
        "job_name": name,
        "composition": "c",
        "site": "cloud",
        "ended": False,
        "evidence": "sufficient",
        "why": [],
        "rate_evidence": "sufficient",
        "rate_why": [],
        "confidence": "high",
        "seconds": 600.0,
        "in_rate": 100.0,
        "out_rate": 100.0,
        "reference_core_s_per_record": cost,
        "bytes_in_rate": 5000.0,
        "bytes_out_rate": 5000.0 - saved,
        "stateful": False,
        "state_why": "declared",
        "state_bytes": None,
        "subtasks": 1,
        "pinned": False,
        "source_site": "edge-a",
        "source_topic": f"{name}-in",
        "source_is_input": False,
        "sink_site": "cloud",
        "sink_topic": f"{name}-out",
        **more,
    }
    for way in ("in", "out"):
        rate, size = row[f"{way}_rate"], row[f"bytes_{way}_rate"]
        row.setdefault(f"bytes_{way}_per_record", size / rate if rate and size else None)
    return row


def show(row: JsonObject) -> JsonObject:
    """A row of JOBS as far as it goes, as an analysis shows it."""
    ends = {e: {"site": row[f"{e}_site"], "topic": row[f"{e}_topic"]} for e in ("source", "sink")}
    return {name: value for name, value in row.items() if name not in INTERNAL} | ends


def site(name: str, **more: Any) -> JsonObject:
    """Four cores of half the reference's speed."""
    tier = "cloud" if name == "cloud" else "edge"
    return {"site": name, "tier": tier, "cores": 4.0, "core_speed": 0.5, "slots_free": 2, **more}


def rank(
    jobs: Sequence[JsonObject],
    sites: Sequence[JsonObject] | None = None,
    plans: Sequence[JsonObject] = (),
    ends: Sequence[JsonObject] = (),
) -> list[JsonObject]:
    """The ranking of these jobs; a site has the `load` that its jobs have unless it is given."""
    places = sites or [site("edge-a"), site("cloud")]
    loads = {each["site"]: each["load"] for each in places if "load" in each}
    loaded = [{**each, **_load_of(each, loads)} for each in add_loads(places, jobs)]
    origins = DataOrigins(jobs, join_links(jobs, ends), plans)
    return list(map(render, rank_jobs(jobs, loaded, origins)))


def _load_of(place: JsonObject, loads: dict[str, float]) -> JsonObject:
    return {"load": loads.get(place["site"], place["load"])}
