"""/analyses: the cost and benefit of jobs, and which jobs belong at edges"""

from __future__ import annotations

from typing import Any

from flask import Response
from marshmallow import ValidationError

from speck.api import shapes
from speck.api.access import name_object, reach
from speck.api.context import service
from speck.api.hidden import show_analysis
from speck.api.requests import Query, optional_object, paging, text
from speck.api.routes import Routes, answer, listing
from speck.errors import ForbiddenError, InvalidError
from speck.service.analysis_runs import AnalysisRequest
from speck.spec.documents import problems_of

routes = Routes("analyses", "Analyses of the collected metrics")

_REQUEST = shapes.AnalysisRequestShape()


@routes.get(
    "/analyses",
    query=[
        text("composition", "only those of this composition"),
        text("state", "only those in this state", shapes.ANALYSIS_STATES),
        *paging("id", 1000),
    ],
    answers={200: shapes.ANALYSES},
)
def list_analyses(query: Query) -> Response:
    """Analyses without their results, newest first."""
    has_analysis = reach().has_analysis_of
    analyses = filter(has_analysis, service().analyses.all(query["composition"], query["state"]))
    return listing("analyses", analyses, "id", query, newest_first=True)


@routes.post(
    "/analyses",
    body=shapes.AnalysisRequestShape,
    body_required=False,
    answers={202: shapes.AnalysisHeadShape},
)
def analyse() -> Response:
    """Start an analysis of the collected metrics; it changes nothing."""
    wanted = AnalysisRequest(**_load_request())
    name_object(f"/analyses?composition={wanted.composition or ''}")
    if reach().limited:
        if wanted.composition is None:
            raise ForbiddenError(
                "cannot analyse all jobs with a token that is limited in its scopes: name a"
                " composition"
            )
        reach().require_composition(wanted.composition)
    started = service().analyses.start(wanted)
    return answer(started, 202, f"/analyses/{started.id}")


def _load_request() -> dict[str, Any]:
    try:
        parameters: dict[str, Any] = _REQUEST.load(optional_object("analysis"))
    except ValidationError as error:
        problems = problems_of(error.messages)
        raise InvalidError(f"cannot read the request: {problems[0]}", problems) from error
    return parameters


@routes.get("/analyses/<analysis_id>", answers={200: shapes.AnalysisShape})
def get_analysis(analysis_id: str) -> Response:
    """An analysis, with its results once it is done."""
    return answer(show_analysis(service().analyses.get(analysis_id)))


@routes.delete("/analyses/<analysis_id>", answers={200: shapes.AnalysisShape})
def cancel_analysis(analysis_id: str) -> Response:
    """Cancel a running analysis; one that has ended stays as it is."""
    return answer(show_analysis(service().analyses.cancel(analysis_id)))
