"""Jobs, compositions, placements and analyses as users see them.

Viewers are not shown the arguments of jobs, which may hold keys.
"""

from __future__ import annotations

from speck.api.access import caller, reach
from speck.model.analysis import Analysis
from speck.model.composition import CompositionDescription
from speck.model.job import JobDescription
from speck.model.shown import render
from speck.model.token import Role
from speck.model.values import JsonObject
from speck.placement.record import PlacementRecord
from speck.service.composition_views import CompositionView
from speck.service.status import JobView, SiteView
from speck.spec.schema import dump_composition, dump_job
from speck.spec.site_schema import dump_site

HIDDEN = "(hidden)"


def show_job(job: JobView) -> JsonObject:
    """A job as users see it."""
    return {**show_description_of(job.description), **render(job)}


def show_description_of(job: JobDescription) -> JsonObject:
    """A job as it was described, with `args: ["(hidden)"]` for a viewer if it has any."""
    described = dump_job(job)
    return {**described, "args": [HIDDEN]} if job.args and _hides() else described


def show_composition(composition: CompositionView) -> JsonObject:
    """A composition as users see it."""
    head, desired = composition.head, show_description(composition.desired)
    name = desired.pop("name")
    return {
        "name": name,
        "desired": {"revision": head.revision, "inputs": [], "outputs": [], **desired},
        "deployed": {
            "revision": head.deployed_revision,
            "jobs": render(composition.deployed),
        },
        "jobs": list(map(show_job, composition.jobs)),
        "requirements": render(composition.requirements),
    }


def show_description(description: CompositionDescription) -> JsonObject:
    """A composition as it was applied."""
    return dump_composition(description, show_description_of)


def show_site(site: SiteView) -> JsonObject:
    """A site as users see it."""
    return {**dump_site(site.site), **render(site)}


def show_placement(placement: PlacementRecord) -> JsonObject:
    """A placement as users see it, its jobs as `show_job` shows them, and then without its YAML."""
    hides = _hides() and any(job.args for job in placement.description.jobs)
    return {
        **render(placement.head),
        **render(placement.manner),
        **render(placement.comparison),
        "scales": render(placement.scales),
        "description": show_description(placement.description),
        "yaml": HIDDEN if hides else placement.yaml,
    }


def show_analysis(analysis: Analysis) -> JsonObject:
    """An analysis as the caller may see it, with its result."""
    shown = reach().show_analysis(analysis)
    return {**render(shown), **(render(shown.result) if shown.result is not None else {})}


def _hides() -> bool:
    return caller().role is Role.VIEWER
