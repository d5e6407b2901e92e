"""Forgetting by force: from the store alone, for what cannot be removed otherwise"""

from __future__ import annotations

from flask import Response

from speck.api import shapes
from speck.api.access import caller
from speck.api.context import service
from speck.api.requests import Query, flag
from speck.api.routes import Routes, answer

_FORCE = flag("force", "forget; without it, 409 names what would be left behind")

routes = Routes("forgetting", "Removal from the store alone, without engines and brokers")


@routes.post("/jobs/<job_name>/forget", query=[_FORCE], answers={200: shapes.ForgottenShape})
def forget_job(job_name: str, query: Query) -> Response:
    """Forget a job: what runs of it goes on, and a change under way is ended first. A job of a
    composition stays in its description."""
    return answer(service().forgetting.job(job_name, force=query["force"], by=caller().actor))


@routes.post("/compositions/<name>/forget", query=[_FORCE], answers={200: shapes.ForgottenShape})
def forget_composition(name: str, query: Query) -> Response:
    """Forget a composition and all its jobs: what runs of it goes on, and a change under way is
    ended first."""
    return answer(service().forgetting.composition(name, force=query["force"], by=caller().actor))


@routes.post("/sites/<name>/forget", query=[_FORCE], answers={200: shapes.ForgottenShape})
def forget_site(name: str, query: Query) -> Response:
    """Forget a site, the jobs at its engine and the sessions at its broker, for one that is lost;
    changes under way that need it are ended first."""
    return answer(service().forgetting.site(name, force=query["force"], by=caller().actor))
