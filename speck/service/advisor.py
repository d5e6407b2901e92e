"""Advice: an analysis, the ranking, and the placement that follows, in one answer."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from speck.errors import ConflictError
from speck.model.analysis import Analysis, AnalysisHead, AnalysisState
from speck.placement.names import DEFAULT_POLICY
from speck.placement.record import PlacementRecord
from speck.service.analysis_runs import AnalysisRequest
from speck.service.placements import Placements


@dataclass(frozen=True, slots=True)
class AdviceRequest:
    """Advice on a composition: by this `analysis`, or a new one of the last `window_s` seconds."""

    composition: str
    policy: str = DEFAULT_POLICY
    analysis: str | None = None
    window_s: float = 600.0
    limits: Mapping[str, float] | None = None
    scale: bool = False


@dataclass(frozen=True, slots=True)
class AdviceOutcome:
    """The analysis that advice goes by, and the placement that follows; None while it runs."""

    analysis: Analysis
    placement: PlacementRecord | None = None


class Advisor:
    """Gives advice; it changes nothing."""

    def __init__(
        self,
        placements: Placements,
        start: Callable[[AnalysisRequest], AnalysisHead],
    ):
        self._placements = placements
        self._start = start

    def begin(self, request: AdviceRequest, *, alone: bool = False) -> str:
        """The id of the analysis that the advice goes by; one of all jobs is started if none is
        named (`alone`: of the composition's only). Raises what an analysis raises."""
        if request.analysis is not None:
            return request.analysis
        subject = request.composition if alone else None
        return self._start(AnalysisRequest(subject, request.window_s)).id

    def advise(self, request: AdviceRequest, analysis_id: str) -> AdviceOutcome:
        """The advice, without a placement while the analysis runs.

        Raises NotFoundError, InvalidError; ConflictError if the analysis failed.
        """
        analysis = self._placements.analyses.get(analysis_id)
        if not analysis.state.over:
            return AdviceOutcome(analysis)
        if analysis.state is AnalysisState.FAILED:
            raise ConflictError(str(analysis.error))
        placement = self._placements.make(
            request.composition, request.policy, analysis_id, request.limits, scale=request.scale
        )
        return AdviceOutcome(analysis, placement)
