"""Analyses as the analyzer gives them, with figures that a test chooses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from speck.model.values import JsonObject


def describe_measured(
    name: str, site: str, rate: float | None = 100.0, composition: str = "c", **more: Any
) -> JsonObject:
    """A job that was measured well: 1 ms of work a record, all records passed on, 100 bytes."""
    selectivity = more.get("selectivity", 1.0)
    return {
        "job_name": name,
        "composition": composition,
        "site": site,
        "evidence": "sufficient",
        "why": [],
        "rate_evidence": "sufficient",
        "rate_why": [],
        "seconds": 600.0,
        "samples": 120,
        "in_rate": rate,
        "out_rate": None if rate is None or selectivity is None else rate * selectivity,
        "selectivity": selectivity,
        "core_s_per_record": 0.001,
        "reference_core_s_per_record": 0.001,
        "reference_cores": None if rate is None else 0.001 * rate,
        "true_processing_rate": 1000.0,
        "true_output_rate": 1000.0,
        "utilisation": 0.1,
        "back_pressured": 0.0,
        "lower_bound": False,
        "contended": 0.0,
        "bytes_in_per_record": 100.0,
        "bytes_out_per_record": 100.0,
        "restarts": 0,
        "stateful": False,
        "state_bytes": 1000,
        "checkpoint_s": 0.1,
        "subtasks": 1,
        "pinned": False,
        "source": {"site": site, "topic": f"{name}-in"},
        "sink": {"site": site, "topic": f"{name}-out"},
        **more,
    }


def describe_unmeasured(name: str, site: str, composition: str = "c") -> JsonObject:
    """A job of which too little is known."""
    nothing = dict.fromkeys(
        (
            "in_rate",
            "out_rate",
            "selectivity",
            "core_s_per_record",
            "reference_core_s_per_record",
            "reference_cores",
            "bytes_in_per_record",
            "bytes_out_per_record",
            "contended",
        )
    )
    job = describe_measured(name, site, composition=composition)
    why = ["busy for 0.2 s only"]
    weak = {"evidence": "insufficient", "why": why, "rate_evidence": "insufficient"}
    return {**job, **nothing, **weak, "rate_why": why}


def site_told(name: str, **more: Any) -> JsonObject:
    """A calibrated site of 2 cores as fast as the reference's."""
    return {
        "name": name,
        "tier": "cloud" if name.startswith("cloud") else "edge",
        "cores": 2.0,
        "core_speed": 1.0,
        "slots_total": 16,
        "slots_free": 16,
        "host_cpu": 0.2,
        "cpu": 0.1,
        "uplink_mbps": None,
        **more,
    }


def analysis(
    jobs: Iterable[JsonObject],
    sites: Iterable[str] = ("cloud", "edge-a", "edge-b"),
    links: Iterable[JsonObject] = (),
    **more: Any,
) -> JsonObject:
    """An analysis that is done."""
    return {
        "id": "a1",
        "state": "done",
        "composition": "c",
        "started": "2026-01-31T12:10:00.000Z",
        "ended": "2026-01-31T12:10:20.000Z",
        "error": None,
        "master": "local[*]",
        "warm": True,
        "window": {
            "from": "2026-01-31T12:00:00.000Z",
            "to": "2026-01-31T12:10:00.000Z",
            "seconds": 600.0,
        },
        "samples": dict.fromkeys(("rows", "duplicates", "resets", "gaps", "nan", "contended"), 0),
        "jobs": list(jobs),
        "links": list(links),
        "sites": [site_told(name) for name in sites],
        "ranking": [],
        "bottlenecks": [],
        **more,
    }


class Given:
    """Analyses that were made by hand, for `speck.service.placements`."""

    def __init__(self, *analyses: JsonObject):
        self.analyses = list(analyses)

    def get(self, analysis_id: str) -> JsonObject:
        return next(each for each in self.analyses if each["id"] == analysis_id)

    def newest(self, composition: str) -> JsonObject | None:
        fit = [each for each in self.analyses if each["composition"] in (None, composition)]
        return fit[-1] if fit else None
