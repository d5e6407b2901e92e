"""The status of a fog's sites and processes, for display."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process; `rss_mb` is its resident memory in MB."""

    what: str
    pid: int | None
    running: bool
    rss_mb: float


@dataclass(frozen=True, slots=True)
class SiteStatus:
    """One site; slots are None while its engine does not answer. `speed` is the maximum of cores
    that its engine may use, None for all."""

    name: str
    tier: str
    engine: str
    broker: str
    processes: tuple[ProcessStatus, ...]
    slots_total: int | None
    slots_free: int | None
    speed: float | None = None

    @property
    def up(self) -> bool:
        """Whether all its processes run and the engine answers."""
        return self.slots_total is not None and all(entry.running for entry in self.processes)

    @property
    def rss_mb(self) -> float:
        return sum(entry.rss_mb for entry in self.processes)
