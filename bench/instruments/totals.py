"""The counting for jobs that give totals by key from time to time, and not a record for each one
that comes: engines that work in batches do so."""

from __future__ import annotations

import json

from bench.instruments.checker import Tally

KEYS = 16
"""The keys of `bench.instruments.feed`: record `n` has the key `k<n % 16>`."""


def rank(number: int) -> int:
    """How many records of its key there are up to a record, itself among them."""
    return number // KEYS if number % KEYS == 0 else number // KEYS + 1


class TotalsTally(Tally):
    """Judges records `{"n", "k", "count"}`: so many records of key `k` have come so far, and the
    last of them is number `n`. All came once if `count` is the rank of `n`; otherwise the record is
    `miscounted`. A total that comes again, or is older than one before, is `repeated`. What is
    counted stands for the numbers: `distinct` is the sum of the newest totals."""

    def __init__(self) -> None:
        super().__init__()
        self._totals: dict[str, int] = {}

    def hear(self, stamp: str | None, payload: bytes, now: float) -> None:
        if not self.stamps.take(stamp):
            self.dropped += 1
            return
        try:
            record = json.loads(payload)
            own, key, count = int(record["n"]), str(record["k"]), int(record["count"])
        except (ValueError, KeyError, TypeError):
            self.stray += 1
            return
        if key != f"k{own % KEYS}":
            self.stray += 1
            return
        before = self._totals.get(key, 0)
        if count <= before:
            self.repeated += 1
            return
        self.miscounted += count != rank(own)
        self._totals[key] = count
        self.distinct += count - before
        self.highest = max(self.highest, own)
        self._pause(now)

    def missing(self, published: int) -> list[int]:
        """The last numbers of each key that no total holds."""
        lost = []
        for number in range(published, 0, -1):
            if rank(number) > self._totals.get(f"k{number % KEYS}", 0):
                lost.append(number)
        return sorted(lost)

    def _count_above(self, published: int, lost: int) -> int:
        return max(0, self.distinct - (published - lost))
