"""/advice: an analysis, its ranking and the placement that follows, in one answer"""

from __future__ import annotations

from flask import Response

from speck.api import shapes
from speck.api.access import name_object, reach
from speck.api.context import is_over, occupying, service, waiting
from speck.api.hidden import show_analysis, show_placement
from speck.api.requests import Query, load_body, wait
from speck.api.routes import Routes, answer
from speck.model.analysis import Analysis
from speck.model.shown import render
from speck.model.values import JsonObject
from speck.placement.record import PlacementRecord
from speck.placement.sentences import LEGEND, explain, summarise
from speck.service.advisor import AdviceRequest

routes = Routes("advice", "What to do about the placement of a composition, and why")

_REQUEST = shapes.AdviceRequestShape()
_HEAD = ("id", "state", "composition", "started", "ended", "warm", "window", "samples")
"""What is shown of the analysis that advice goes by."""


@routes.post(
    "/advice",
    body=shapes.AdviceRequestShape,
    query=[wait()],
    answers={200: shapes.AdviceShape, 202: shapes.AdviceShape},
)
def advise(query: Query) -> Response:
    """Analyse, rank the jobs, and propose a placement with its effect and its cost; this changes
    nothing. 202 while the analysis runs: ask again with its id."""
    wanted = AdviceRequest(**load_body(_REQUEST))
    name_object(f"/advice?composition={wanted.composition}")
    allowed = reach()
    allowed.require_composition(wanted.composition)
    allowed.require_all_sites("compute a placement")
    if wanted.analysis is not None:
        allowed.require_analysis(wanted.analysis)
    advisor = service().advisor
    with waiting(query["wait"]) as seconds:
        analysis = advisor.begin(wanted, alone=allowed.limited)
        service().analyses.wait(analysis, seconds, is_over)
    with occupying(f"advise on {wanted.composition}"):
        advice = advisor.advise(wanted, analysis)
    if advice.placement is None:
        return answer({"analysis": _head(advice.analysis)}, 202, f"/analyses/{analysis}")
    return answer(
        _show(advice.analysis, advice.placement), 200, f"/placements/{advice.placement.id}"
    )


def _head(analysis: Analysis) -> JsonObject:
    shown = show_analysis(analysis)
    return {name: shown[name] for name in _HEAD if name in shown}


def _show(analysis: Analysis, placement: PlacementRecord) -> JsonObject:
    shown = show_placement(placement)
    ranking = analysis.result.ranking if analysis.result is not None else ()
    return {
        "composition": placement.composition,
        "analysis": _head(analysis),
        "ranking": render([row for row in ranking if row.composition == placement.composition]),
        "why": explain(shown),
        "summary": summarise(shown),
        "legend": LEGEND,
        "placement": shown,
    }
