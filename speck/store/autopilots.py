"""Autopilots in the store: settings and memory of each, and the log of its decisions."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

from speck.model.shown import Shown
from speck.placement.autopilot import Memory, Settings
from speck.store.tables import Batch, Tables

KEPT = 200
"""How many entries of a composition's log are kept."""


@dataclass(frozen=True, slots=True)
class MoveCheck:
    """A move whose outcome is to be reported: bytes between sites per second `before` it, and as
    `predicted` for the `placement` of a `revision`; `at` are epoch seconds."""

    placement: str
    revision: int
    before: float | None
    predicted: float
    at: float


@dataclass(frozen=True, slots=True)
class AutopilotRecord:
    """The autopilot of a composition. `due` is when (epoch seconds) its next analysis is; it waits
    for the one with the id `analysis`."""

    settings: Settings = field(default_factory=Settings)
    memory: Memory = field(default_factory=Memory)
    due: float | None = None
    analysis: str | None = None
    check: MoveCheck | None = None


LogKind = Literal["settings", "wait", "act", "outcome", "trouble"]


@dataclass(frozen=True, slots=True)
class LogEntry:
    """What an autopilot did, or why not, at `at` (RFC 3339)."""

    at: str
    kind: LogKind
    message: str
    analysis: Annotated[str | None, Shown(left_out=True)] = None
    placement: Annotated[str | None, Shown(left_out=True)] = None
    change: Annotated[str | None, Shown(left_out=True)] = None
    by: Annotated[str | None, Shown("name of the token that requested it", left_out=True)] = None


@dataclass(frozen=True, slots=True)
class AutopilotLog:
    entries: tuple[LogEntry, ...]


class AutopilotRecords:
    """All autopilots. `pilot/<composition>`, `pilotlog/<composition>`."""

    def __init__(self, tables: Tables):
        self._autopilots = tables.table("pilot", AutopilotRecord)
        self._logs = tables.table("pilotlog", AutopilotLog)

    def compositions(self) -> list[str]:
        """The compositions that have one, whether it is on or off."""
        return [composition for composition, _ in self._autopilots.scan()]

    def get(self, composition: str) -> AutopilotRecord:
        """That of a composition; one that is off if none was ever switched on."""
        return self._autopilots.get(composition) or AutopilotRecord()

    def put(self, composition: str, autopilot: AutopilotRecord) -> Batch:
        return self._autopilots.put(autopilot, composition)

    def drop(self, composition: str) -> Batch:
        """Delete it with its log."""
        return {**self._autopilots.drop(composition), **self._logs.drop(composition)}

    def log(self, composition: str) -> tuple[LogEntry, ...]:
        """The log of its decisions, newest last."""
        log = self._logs.get(composition)
        return log.entries if log is not None else ()

    def add_to_log(self, composition: str, entry: LogEntry) -> Batch:
        entries = (*self.log(composition), entry)[-KEPT:]
        return self._logs.put(AutopilotLog(entries), composition)
