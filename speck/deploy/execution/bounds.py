"""Limits of an execution: concurrency, polls and retries."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Bounds:
    """Times in seconds.

    `per_site` holds over all changes that share their `Limiter`, `workers` for each change. An
    engine is polled every `poll_s` to `poll_most_s`. While calls are under way and no other step
    waits for a result of the poll, it is polled every `poll_calm_s`.
    """

    workers: int = 256
    per_site: int = 16
    poll_s: float = 0.03
    poll_most_s: float = 0.2
    poll_calm_s: float = 1.0
    retry_first_s: float = 0.2
    retry_most_s: float = 5.0
    retry_for_s: float = 60.0
