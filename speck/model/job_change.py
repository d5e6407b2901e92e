"""What a user sees a plan do to a job."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """What a user sees happen to a job."""

    ADD = "add"
    UPDATE = "update"
    MOVE = "move"
    REMOVE = "remove"
    UNCHANGED = "unchanged"


@dataclass(frozen=True, slots=True)
class JobChange:
    """One job's action; `source` and `target` are site names (API: `from` and `to`)."""

    job_name: str
    action: Action
    reason: str
    source: str | None
    target: str | None
