"""Analyses in the store. Their results are files beside it."""

from __future__ import annotations

from speck.model.analysis import AnalysisHead
from speck.store.tables import Batch, Tables


class AnalysisRecords:
    """The analyses that are kept. `analysis/<id>`."""

    def __init__(self, tables: Tables):
        self._analyses = tables.table("analysis", AnalysisHead)

    def get(self, analysis_id: str) -> AnalysisHead | None:
        return self._analyses.get(analysis_id)

    def newest_first(self) -> list[AnalysisHead]:
        """All, newest first (ids begin with the time)."""
        return list(self._analyses.values())[::-1]

    def put(self, analysis: AnalysisHead) -> Batch:
        return self._analyses.put(analysis, analysis.id)

    def drop(self, analysis_id: str) -> Batch:
        return self._analyses.drop(analysis_id)
