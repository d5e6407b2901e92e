"""Events: what happened, for people."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from speck.model.shown import Shown

_ABOUT = Shown(left_out=True)


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened at `at` (RFC 3339), and what it is about. `by` is the token that
    asked for it."""

    id: int
    at: str
    kind: str
    message: str
    site: Annotated[str | None, _ABOUT] = None
    job_name: Annotated[str | None, _ABOUT] = None
    composition: Annotated[str | None, _ABOUT] = None
    change: Annotated[str | None, _ABOUT] = None
    by: Annotated[str | None, Shown("who asked for it", left_out=True)] = None
