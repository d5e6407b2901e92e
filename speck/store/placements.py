"""Placements in the store: the newest ones."""

from __future__ import annotations

from speck.placement.record import PlacementRecord
from speck.store.tables import Batch, Tables

KEPT = 100
"""How many placements are kept."""


class PlacementRecords:
    """The placements that are kept. `placement/<id>`."""

    def __init__(self, tables: Tables):
        self._placements = tables.table("placement", PlacementRecord)

    def get(self, placement_id: str) -> PlacementRecord | None:
        return self._placements.get(placement_id)

    def newest_first(self) -> list[PlacementRecord]:
        """All, newest first (ids begin with the time)."""
        return list(self._placements.values())[::-1]

    def add(self, placement: PlacementRecord) -> Batch:
        """Store a new one, and delete the oldest if there are too many."""
        ids = [placement_id for placement_id, _ in self._placements.scan()]
        oldest = ids[: max(0, len(ids) - KEPT + 1)]
        dropped: Batch = {self._placements.key(each): None for each in oldest}
        return dropped | self._placements.put(placement, placement.id)
