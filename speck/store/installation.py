"""What the store knows of itself: its installation, where it is served, and whether it is
`restored`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Installation:
    """A speck with its store: a UUID made at the first start, at `at` (RFC 3339), and a
    `generation` that a restore raises."""

    uuid: str
    generation: int
    at: str


@dataclass(frozen=True, slots=True)
class RestoredState:
    """When (RFC 3339) and why the store may be older than what runs: it was restored, copied or
    rolled back."""

    at: str
    reason: str
