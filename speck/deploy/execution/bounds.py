"""How much an execution does at once, and how patient it is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Times in seconds.

    `per_site` holds over all changes that share their `Limiter`, `workers` for each change. An
    engine is asked every `poll_s` to `poll_most_s`; every `poll_calm_s` while calls are under way
    and no other step waits for what it would answer.
    """

    workers: int = 256
    per_site: int = 16
    poll_s: float = 0.05
    poll_most_s: float = 0.2
    poll_calm_s: float = 1.0
    retry_first_s: float = 0.2
    retry_most_s: float = 5.0
    retry_for_s: float = 60.0
