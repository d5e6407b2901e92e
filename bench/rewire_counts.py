"""What is counted while a composition is rewired, and what deviates from what is promised."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from bench.experiment import percentile
from bench.instruments.checker import Checker, Tally
from bench.page.rewire import list_promised
from bench.taps import Taps
from bench.wirings import Place
from speck.model.values import JsonObject

_PLANS_SHOWN = 3


@dataclass(slots=True)
class Change:
    """One rewiring: `first` says for each output which number was the first that was not out
    when it began."""

    number: int
    wiring: str
    first: dict[str, int]
    plan: str = ""
    state: str = ""
    took_s: float = 0.0
    gap_s: float = 0.0
    killed: str = ""

    def __str__(self) -> str:
        killed = f", killed: {self.killed}" if self.killed else ""
        return (
            f"change {self.number} {self.state} in {self.took_s:.1f} s, silent for"
            f" {self.gap_s:.2f} s{killed}: {self.wiring}"
        )


class EndTally(Tally):
    """Also keeps which numbers came twice, and during which change (`during`)."""

    def __init__(self) -> None:
        super().__init__()
        self.during = 0
        self.came_again: list[tuple[int, int]] = []
        self.dropped_again: list[tuple[int, int]] = []

    def hear(self, stamp: str | None, payload: bytes, now: float) -> None:
        dropped, repeated = self.dropped, self.repeated
        super().hear(stamp, payload, now)
        if (self.dropped, self.repeated) == (dropped, repeated):
            return
        repeats = self.came_again if self.repeated > repeated else self.dropped_again
        repeats.append((int(json.loads(payload)["n"]), self.during))


class Output(Checker):
    """One end of the composition."""

    def __init__(self, broker: str, run: str, place: Place, topic: str, reader: str = "") -> None:
        self.tally = EndTally()
        self.name = place[1]
        super().__init__(broker, topic, f"{run}-{place[1]}{reader}", self.tally)


def spread(values: Sequence[float]) -> JsonObject:
    """Median, 95th percentile and the most, in seconds; null of nothing."""
    cuts = {"p50": 0.5, "p95": 0.95, "max": 1.0}
    values_by_share = {name: percentile(values, share) for name, share in cuts.items()}
    rounded = {name: value and round(value, 3) for name, value in values_by_share.items()}
    return {**rounded, "of": len(values)}


def under_way_in(number: int, firsts: Sequence[int]) -> int:
    """The change in which a record was under way: `firsts` is for each change which number was the
    first that was not out when it began. 0: it was out before any."""
    return bisect_right(firsts, number)


def blame_changes(
    changes: Sequence[Change], ends: Sequence[Output], published: int, taps: Taps | None
) -> list[str]:
    """The lost and repeated records, by change, and the plans of the first of these changes."""
    lines, guilty = [], set()
    for end in ends:
        firsts = [change.first[end.name] for change in changes]
        again = {"repeated": end.tally.came_again, "repeated outside": end.tally.dropped_again}
        groups: dict[tuple[str, int, int], list[int]] = defaultdict(list)
        for number in end.missing(published):
            groups["lost", under_way_in(number, firsts), -1].append(number)
        for what, records in again.items():
            for number, during in records:
                groups[what, under_way_in(number, firsts), during].append(number)
        for (what, began, during), numbers in sorted(groups.items()):
            came = f", came in change {during}" if during >= 0 else ""
            lines.append(
                f"{end.name}: {len(numbers)} {what} ({min(numbers)} to {max(numbers)}), under way"
                f" in change {began}{came}"
            )
            guilty |= {began, during}
    places: Counter[tuple[int, str]] = taps.stamps.places if taps else Counter()
    for (during, link), count in sorted(places.items()):
        lines.append(f"{link}: {count} published twice under one stamp in change {during}")
        guilty.add(during)
    suspects = [change for change in changes if change.number in guilty][:_PLANS_SHOWN]
    return [*lines, *(f"{change}\n{change.plan}\n" for change in suspects)]


def faults_of(result: JsonObject, change_count: int) -> list[str]:
    """The deviations of a result from the expectations."""
    faults = [f"{key}: {result[key]}" for key in list_promised(result) if result[key]]
    short = result["changes"] < change_count
    return [*faults, *([f"{result['changes']} of {change_count} changes"] if short else [])]
