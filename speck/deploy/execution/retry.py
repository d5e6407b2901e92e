"""Decides whether and when a failed step is tried again: by the type of its error, only here.

A permanent error, or a fault in speck, is final. While a site does not answer, the step is retried
without limit. A site that answers with a transient error has `retry_for_s` to recover. The pauses
double from `retry_first_s` to `retry_most_s`.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from dataclasses import dataclass

from speck.deploy.execution.bounds import Bounds
from speck.errors import TransientError, UnreachableError


@dataclass(frozen=True, slots=True)
class Retry:
    """The next try of a step: at `at` (monotonic), the `number`-th since its last success."""

    at: float
    number: int


class Retries:
    """The steps that await another try. Times are monotonic seconds, passed in."""

    def __init__(self, bounds: Bounds):
        self._bounds = bounds
        self._timers: list[tuple[float, int, int]] = []
        self._tick = itertools.count()  # keeps the order of steps that are due at the same time
        self._failing: dict[int, float] = {}
        self._well_since: dict[int, float] = {}
        self._tries: Counter[int] = Counter()

    def __len__(self) -> int:
        return len(self._timers)

    def schedule(self, step_id: int, error: BaseException, now: float) -> Retry | None:
        """Schedule another try of a failed step; None when it is given up."""
        well_since = self._well_since.pop(step_id, now)
        if now - well_since > self._bounds.retry_for_s:
            self._failing.pop(step_id, None)
            self._tries.pop(step_id, None)
        if not isinstance(error, TransientError) or not self._has_time_left(step_id, error, now):
            return None
        pause_s = self._bounds.retry_first_s * 2.0 ** min(self._tries[step_id], 10)
        self._tries[step_id] += 1
        retry = Retry(now + min(pause_s, self._bounds.retry_most_s), self._tries[step_id])
        heapq.heappush(self._timers, (retry.at, next(self._tick), step_id))
        return retry

    def record_success(self, step_id: int, now: float) -> None:
        """A call of a step has succeeded, though the step has not ended. If that lasts for
        `retry_for_s`, the step has all its time again."""
        self._well_since.setdefault(step_id, now)

    def next_at(self) -> float | None:
        """When (monotonic) the next step is due; None when none awaits another try."""
        return self._timers[0][0] if self._timers else None

    def take_due(self, now: float) -> list[int]:
        """The steps whose time has come, in that order."""
        due = []
        while self._timers and self._timers[0][0] <= now:
            due.append(heapq.heappop(self._timers)[2])
        return due

    def give_up(self) -> set[int]:
        """Drop all retries; returns the steps that were waiting for one."""
        step_ids = {step_id for _, _, step_id in self._timers}
        self._timers.clear()
        return step_ids

    def _has_time_left(self, step_id: int, error: TransientError, now: float) -> bool:
        if isinstance(error, UnreachableError):
            self._failing.pop(step_id, None)
            return True
        first = self._failing.setdefault(step_id, now)
        return now - first < self._bounds.retry_for_s
