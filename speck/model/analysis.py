"""Analyses: what was measured over a window, and what follows from it."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Annotated, Any

from speck.model.analysis_result import AnalysisResult
from speck.model.shown import Shown


class AnalysisState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        return self is not AnalysisState.RUNNING


@dataclass(frozen=True, slots=True)
class AnalysisHead:
    """An analysis without its result. Times are RFC 3339."""

    id: str
    state: AnalysisState
    composition: Annotated[str | None, Shown("null: of all jobs")]
    started: str
    ended: str | None
    error: str | None
    master: Annotated[str, Shown("the Spark master that it runs on")]
    warm: Annotated[
        bool | None, Shown("whether a running Spark application took it; null until it has begun")
    ] = None


@dataclass(frozen=True, slots=True)
class Progress:
    """The step that is under way, how many are done, and of how many."""

    step: str
    done: int
    of: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Analysis(AnalysisHead):
    """An analysis with its result once there is one, and how far it has got while it runs."""

    result: Annotated[AnalysisResult | None, Shown(hidden=True)] = None
    progress: Annotated[Progress | None, Shown(left_out=True)] = None
    waits_for: Annotated[str | None, Shown("the analysis that runs before it", left_out=True)] = (
        None
    )

    @classmethod
    def of(cls, head: AnalysisHead, result: AnalysisResult | None, **more: Any) -> Analysis:
        known = {each.name: getattr(head, each.name) for each in fields(AnalysisHead)}
        return cls(**known, result=result, **more)
