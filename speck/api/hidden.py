"""What viewers are not shown: the arguments of jobs, which may hold keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from speck.api.access import caller, reach
from speck.model.analysis import Analysis
from speck.model.shown import render
from speck.model.token import Role
from speck.model.values import JsonObject
from speck.placement.record import PlacementRecord
from speck.spec.schema import dump_composition

HIDDEN = "(hidden)"


def show_job(job: JsonObject) -> JsonObject:
    """A job, with `args: ["(hidden)"]` for a viewer if it has any."""
    return {**job, "args": [HIDDEN]} if job.get("args") and _hides() else job


def show_jobs(jobs: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """Jobs as `show_job` shows them."""
    return map(show_job, jobs)


def show_composition(composition: JsonObject) -> JsonObject:
    """A composition as GET /compositions/<name> returns it, its jobs as `show_job` shows them."""
    desired = composition["desired"]
    return {
        **composition,
        "desired": {**desired, "jobs": list(show_jobs(desired["jobs"]))},
        "jobs": list(show_jobs(composition["jobs"])),
    }


def show_description(description: JsonObject) -> JsonObject:
    """A composition as it was applied, its jobs as `show_job` shows them."""
    return {**description, "jobs": list(show_jobs(description["jobs"]))}


def show_placement(placement: PlacementRecord) -> JsonObject:
    """A placement as users see it, its jobs as `show_job` shows them, and then without its YAML."""
    hides = _hides() and any(job.args for job in placement.description.jobs)
    return {
        **render(placement.head),
        **render(placement.manner),
        **render(placement.comparison),
        "scales": render(placement.scales),
        "description": show_description(dump_composition(placement.description)),
        "yaml": HIDDEN if hides else placement.yaml,
    }


def show_analysis(analysis: Analysis) -> JsonObject:
    """An analysis as the caller may see it, with its result."""
    shown = reach().show_analysis(analysis)
    return {**render(shown), **shown.tables}


def _hides() -> bool:
    return caller().role is Role.VIEWER
