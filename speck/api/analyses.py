"""/analyses: what jobs cost and give, and which should sit at edges"""

from __future__ import annotations

from typing import Any

from flask import Response, jsonify
from marshmallow import ValidationError

from speck.api import shapes
from speck.api.context import service
from speck.api.requests import Query, optional_object, paging, text
from speck.api.routes import Routes, answer, listing
from speck.errors import InvalidError
from speck.service.analyses import AnalysisRequest
from speck.spec.schema import problems_of

routes = Routes("analyses", "What was measured, worked out by the analyzer")

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
    """Analyses without what they say, newest first."""
    found = service().analyses.all(query["composition"], query["state"])
    return listing("analyses", found, "id", query, newest_first=True)


@routes.post(
    "/analyses",
    body=shapes.AnalysisRequestShape,
    body_required=False,
    answers={202: shapes.AnalysisHeadShape},
)
def analyse() -> Response:
    """Begin an analysis of what was collected; nothing is changed."""
    return answer(service().analyses.start(AnalysisRequest(**_asked())))


def _asked() -> dict[str, Any]:
    try:
        asked: dict[str, Any] = _REQUEST.load(optional_object("analysis"))
    except ValidationError as error:
        problems = problems_of(error.messages)
        raise InvalidError(f"cannot read the request: {problems[0]}", problems) from error
    return asked


@routes.get("/analyses/<analysis_id>", answers={200: shapes.AnalysisShape})
def get_analysis(analysis_id: str) -> Response:
    """An analysis, with what it says once it is done."""
    return jsonify(service().analyses.get(analysis_id))


@routes.delete("/analyses/<analysis_id>", answers={200: shapes.AnalysisShape})
def cancel_analysis(analysis_id: str) -> Response:
    """End an analysis that runs; one that is over stays as it is."""
    return jsonify(service().analyses.cancel(analysis_id))
