"""Compares the global statistics that were computed online with those of the archive. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from speck.errors import InvalidError
from traffic.batch.results import WindowPart, join_parts
from traffic.reference import GlobalStat, compare_global

LATENESS_MS = 600_000
"""How long `merge` corrects a window, unless its `--lateness` says otherwise."""

_NONE: Mapping[str, Any] = {"count": 0, "sites": {}, "types": {}}


@dataclass(frozen=True, slots=True)
class LateWindow:
    """A window that is equal but for detections that came too late for the online result."""

    start_ms: int
    archived: int
    online: int


@dataclass(frozen=True)
class WindowComparison:
    """`equal` windows, and the starts of others, in ms: `late` lack nothing but late detections
    online; `missing` have no online result, `extra` no detections in the archive, and `different`
    differ otherwise. `outside` counts windows before the first or behind the last online result,
    which are not compared."""

    window_ms: int
    equal: int
    outside: int
    late: tuple[LateWindow, ...] = ()
    missing: tuple[int, ...] = ()
    extra: tuple[int, ...] = ()
    different: tuple[int, ...] = ()

    @property
    def agrees(self) -> bool:
        """Whether nothing differs but what came too late."""
        return not (self.missing or self.extra or self.different)


def find_window_ms(online: Sequence[Mapping[str, Any]]) -> int:
    """The length of the windows. Raises InvalidError if they have several."""
    lengths = sorted({record["window_ms"] for record in online})
    if len(lengths) > 1:
        listed = ", ".join(f"{length} ms" for length in lengths)
        raise InvalidError(
            f"cannot compare windows of several lengths ({listed}): choose days on which merge had"
            " one, with --since and --until"
        )
    return int(lengths[0])


def compare_windows(
    archived: Iterable[WindowPart],
    online: Sequence[Mapping[str, Any]],
    sum_late: Callable[[Sequence[int]], Iterable[WindowPart]],
) -> WindowComparison:
    """Compare the newest online results (at least one) with the sums of the archive. `sum_late`
    gives what may have come too late of some windows, by their starts. Raises InvalidError for
    windows of several lengths."""
    window_ms = find_window_ms(online)
    newest = {record["window_start_ms"]: record for record in online}
    every = join_parts(archived)
    expected = {start: it for start, it in every.items() if min(newest) <= start <= max(newest)}
    comparison = compare_global(expected, online)
    unequal = [int(str(start)) for start in (*comparison.missing, *comparison.different)]
    short = sorted(
        start for start in unequal if newest.get(start, _NONE)["count"] < expected[start].count
    )
    may_be_late = join_parts(sum_late(short)) if short else {}
    late = [
        LateWindow(start, expected[start].count, newest.get(start, _NONE)["count"])
        for start in short
        if start in may_be_late
        and _explains(may_be_late[start], expected[start], newest.get(start, _NONE))
    ]
    explained = {window.start_ms for window in late}
    return WindowComparison(
        window_ms,
        equal=len(expected) - len(unequal),
        outside=len(every) - len(expected),
        late=tuple(late),
        missing=_list_other(comparison.missing, explained),
        extra=_list_other(comparison.extra, explained),
        different=_list_other(comparison.different, explained),
    )


def _list_other(starts: Iterable[Hashable], explained: Set[int]) -> tuple[int, ...]:
    return tuple(sorted({int(str(start)) for start in starts} - explained))


def _explains(late: GlobalStat, archived: GlobalStat, online: Mapping[str, Any]) -> bool:
    """Whether some of the late detections, left out, make the online result."""
    lacks = archived.count - online["count"]
    if lacks == late.count and online["count"] > 0:  # all of them: the rest is known
        rest = archived.count * archived.mean_speed_mps - late.count * late.mean_speed_mps
        if not math.isclose(rest / online["count"], online["mean_speed_mps"], rel_tol=1e-6):
            return False
    return (
        lacks <= late.count
        and _lacks_at_most(late.sites, archived.sites, online["sites"])
        and _lacks_at_most(late.types, archived.types, online["types"])
    )


def _lacks_at_most(
    late: Mapping[str, int], archived: Mapping[str, int], online: Mapping[str, int]
) -> bool:
    return all(
        0 <= archived.get(key, 0) - online.get(key, 0) <= late.get(key, 0)
        for key in archived.keys() | online.keys()
    )
