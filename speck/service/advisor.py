"""Advice: an analysis, the ranking, and the placement that follows, in one answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from speck.errors import ConflictError
from speck.model.values import JsonObject
from speck.placement.names import DEFAULT_POLICY
from speck.placement.sentences import LEGEND, explain, summarise
from speck.service.analyses import AnalysisRequest
from speck.service.answer import Answer
from speck.service.placements import Placements

_HEAD = ("id", "state", "composition", "started", "ended", "warm", "window", "samples")


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """Advice on a composition: by this `analysis`, or a new one of the last `window_s` seconds."""

    composition: str
    policy: str = DEFAULT_POLICY
    analysis: str | None = None
    window_s: float = 600.0
    limits: Mapping[str, float] | None = None
    scale: bool = False


class Advisor:
    """Gives advice; it changes nothing."""

    def __init__(
        self,
        placements: Placements,
        start: Callable[[AnalysisRequest], Answer],
    ):
        self._placements = placements
        self._start = start

    def begin(self, request: AdviceRequest, *, alone: bool = False) -> str:
        """The id of the analysis that the advice goes by; one of all jobs is started if none is
        named (`alone`: of the composition's only). Raises what an analysis raises."""
        if request.analysis is not None:
            return request.analysis
        subject = request.composition if alone else None
        started = self._start(AnalysisRequest(subject, request.window_s)).body
        return str(started["id"])

    def advise(self, request: AdviceRequest, analysis_id: str) -> Answer:
        """The advice; 202 with the analysis while that runs.

        Raises NotFoundError, InvalidError; ConflictError if the analysis failed.
        """
        analysis = self._placements.analyses.get(analysis_id)
        if analysis["state"] == "running":
            return Answer(202, {"analysis": _head(analysis)}, f"/analyses/{analysis_id}")
        if analysis["state"] == "failed":
            raise ConflictError(str(analysis["error"]))
        placement = self._placements.make(
            request.composition, request.policy, analysis_id, request.limits, scale=request.scale
        ).body
        return Answer(200, _render(analysis, placement), f"/placements/{placement['id']}")


def _head(analysis: JsonObject) -> JsonObject:
    return {name: analysis[name] for name in _HEAD if name in analysis}


def _render(analysis: JsonObject, placement: JsonObject) -> JsonObject:
    composition = placement["composition"]
    return {
        "composition": composition,
        "analysis": _head(analysis),
        "ranking": [row for row in analysis["ranking"] if row["composition"] == composition],
        "why": explain(placement),
        "summary": summarise(placement),
        "legend": LEGEND,
        "placement": placement,
    }
