"""Analyses as the analyzer gives them, with figures that a test chooses."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from speck.model.analysis import Analysis, AnalysisHead, AnalysisState
from speck.model.analysis_result import AnalysisResult
from speck.model.composition import CompositionDescription
from speck.model.shown import hints_of, render, shown_fields
from speck.model.values import JsonObject
from speck.placement.move_costs import Silences
from speck.placement.record import Comparison, Gain, Manner, PlacementRecord, ProposedSide, Side
from speck.store.codec import from_shown


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


_HEAD = {each.name for each in fields(AnalysisHead)}


def as_analysis(body: JsonObject) -> Analysis:
    """An analysis as the service gives it, of one as users see it."""
    head = {name: body.get(name) for name in _HEAD}
    state = AnalysisState(body.get("state", "done"))
    return Analysis(**{**head, "state": state}, result=as_result(body))


def as_result(body: JsonObject) -> AnalysisResult:
    """The result of an analysis as users see it. What is not said of a row is not known."""
    tables = {name: table for name, table in body.items() if name in shown_fields(AnalysisResult)}
    return from_shown(_complete(tables, AnalysisResult), AnalysisResult)


def _complete(data: Any, of: Any) -> Any:
    """Rows with all their columns."""
    if get_origin(of) is Annotated or get_origin(of) is UnionType:
        return _complete(data, get_args(of)[0])
    if isinstance(data, list) and get_origin(of) is tuple:
        return [_complete(each, get_args(of)[0]) for each in data]
    if not isinstance(data, dict) or not is_dataclass(of):
        return data
    hints = hints_of(of)
    names = {each.name or name: name for name, each in shown_fields(of).items()}
    empty: dict[str, Any] = {"damaged_files": [], "why": [], "rate_why": [], "against": []}
    empty |= {"source": {}, "sink": {}, "bottlenecks": [], "producers": [], "readers": []}
    all_columns = {key: empty.get(key) for key in names} | data
    return {
        key: _complete(value, hints[names[key]]) if key in names else value
        for key, value in all_columns.items()
    }


def show_analysis(analysis: Analysis) -> JsonObject:
    """An analysis as users see it."""
    return {**render(analysis), **render(analysis.result)}


def show_placement(placement: PlacementRecord) -> JsonObject:
    """A placement as users see it, without its description."""
    return {
        **render(placement.head),
        **render(placement.manner),
        **render(placement.comparison),
        "scales": render(placement.scales),
        "yaml": placement.yaml,
    }


def predict(
    description: CompositionDescription | None = None,
    rates: tuple[float | None, float | None] = (None, None),
    **more: Any,
) -> PlacementRecord:
    """A placement that changes nothing but the highest rate: today's, and the proposed one."""
    described = description or CompositionDescription("c", ())
    empty: dict[str, str] = {}
    figures: dict[str, Any] = {
        "sites": empty,
        "links": empty,
        "utilisation": empty,
        "cores": empty,
        "memory_bytes": empty,
        "wan_bytes_per_s": 0.0,
        "in_rate": 0.0,
        "latency_ms": 5.0,
        "held_by": None,
        "violations": (),
    }
    nothing: dict[str, Any] = dict.fromkeys(
        ("rewired", "restarted", "dropped", "jobs", "notes", "unmeasured", "violations"), ()
    )
    comparison = Comparison(
        gain=Gain(0.0, -0.1, 0.0, 0.0, None),
        today=Side(**figures, max_rate=rates[0]),
        proposed=ProposedSide(**figures, max_rate=rates[1], moves=()),
        memory_available_bytes={},
        horizon_s=3600.0,
        silences=Silences(),
        evidence={},
        repeats=None,
        doubts={},
        optimal=True,
        gap=None,
        **nothing,
    )
    manner = Manner(described.name, "milp", scale=False, all_moves=False, move_unmeasured=False)
    named: dict[str, Any] = {"id": "p1", "at": "", "revision": 1, "analysis": "a1", "yaml": ""}
    return PlacementRecord(
        **{**named, **more},
        manner=manner,
        comparison=comparison,
        scales=(),
        description=described,
    )


class Given:
    """Analyses that were made by hand, for `speck.service.placements`."""

    def __init__(self, *analyses: JsonObject):
        self.analyses = list(analyses)

    def get(self, analysis_id: str) -> Analysis:
        return as_analysis(next(each for each in self.analyses if each["id"] == analysis_id))

    def newest(self, composition: str) -> Analysis | None:
        fit = [each for each in self.analyses if each["composition"] in (None, composition)]
        return as_analysis(fit[-1]) if fit else None

    def newest_fault(self, _: str) -> str | None:
        return None
