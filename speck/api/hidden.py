"""What viewers are not shown: the arguments of jobs, which may hold keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from speck.api.access import caller
from speck.model.values import JsonObject
from speck.service.tokens import Role

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


def show_placement(placement: JsonObject) -> JsonObject:
    """A placement, its jobs as `show_job` shows them, and then without its YAML."""
    description = placement["description"]
    if not _hides() or not any(job.get("args") for job in description["jobs"]):
        return placement
    jobs = list(show_jobs(description["jobs"]))
    return {**placement, "description": {**description, "jobs": jobs}, "yaml": HIDDEN}


def _hides() -> bool:
    return caller().role is Role.VIEWER
