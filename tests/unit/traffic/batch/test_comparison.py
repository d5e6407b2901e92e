"""Online results against what the archive says."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from speck.errors import InvalidError
from traffic.batch.comparison import LateWindow, WindowComparison, compare_windows
from traffic.batch.results import WindowPart

WINDOWS = [0, 60_000, 120_000, 180_000]
PARTS = [
    part
    for start in WINDOWS
    for part in (WindowPart(start, "A", "car", 2, 20.0), WindowPart(start, "B", "bus", 1, 40.0))
]


def online(start: int, cars: int = 2, buses: int = 1, mean: float | None = None) -> dict[str, Any]:
    """What merge says of a window with so many cars of 10 m/s at A and buses of 40 m/s at B."""
    count = cars + buses
    return {
        "window_start_ms": start,
        "window_ms": 60_000,
        "count": count,
        "mean_speed_mps": (10.0 * cars + 40.0 * buses) / count if mean is None else mean,
        "sites": {k: n for k, n in (("A", cars), ("B", buses)) if n},
        "types": {k: n for k, n in (("car", cars), ("bus", buses)) if n},
        "revision": 0,
    }


def compare(
    records: Sequence[dict[str, Any]], *late: WindowPart, parts: Sequence[WindowPart] = PARTS
) -> WindowComparison:
    def sum_late(starts: Sequence[int]) -> Iterator[WindowPart]:
        yield from (part for part in late if part.start_ms in starts)

    return compare_windows(parts, records, sum_late)


def test_equal_windows_agree() -> None:
    comparison = compare([online(start) for start in WINDOWS])
    assert comparison == WindowComparison(60_000, equal=4, outside=0)
    assert comparison.agrees


def test_windows_beyond_the_online_results_are_not_compared() -> None:
    comparison = compare([online(60_000), online(120_000)])
    assert (comparison.equal, comparison.outside, comparison.agrees) == (2, 2, True)


def test_what_came_too_late_is_shown_apart() -> None:
    records = [online(0), online(60_000, cars=1), online(180_000)]
    late = WindowPart(60_000, "A", "car", 1, 10.0)
    whole = (WindowPart(120_000, "A", "car", 2, 20.0), WindowPart(120_000, "B", "bus", 1, 40.0))
    comparison = compare(records, late, *whole)
    assert comparison.late == (LateWindow(60_000, 3, 2), LateWindow(120_000, 3, 0))
    assert (comparison.equal, comparison.agrees) == (2, True)
    # some of what may have been late was not
    comparison = compare(records, WindowPart(60_000, "A", "car", 2, 20.0), *whole)
    assert comparison.agrees
    # nothing was
    comparison = compare(records)
    assert (comparison.different, comparison.missing) == ((60_000,), (120_000,))
    assert not comparison.agrees


@pytest.mark.parametrize(
    ("record", "late"),
    [
        (online(60_000, cars=0), WindowPart(60_000, "A", "car", 1, 10.0)),  # one more lacks
        (online(60_000, buses=0), WindowPart(60_000, "A", "car", 1, 10.0)),  # another one lacks
        (online(60_000, cars=1, mean=11.0), WindowPart(60_000, "A", "car", 1, 10.0)),
        (online(60_000, cars=3), WindowPart(60_000, "A", "car", 1, 10.0)),
        (online(60_000, cars=1, buses=2), WindowPart(60_000, "A", "car", 1, 10.0)),
        (online(60_000, mean=11.0), WindowPart(60_000, "A", "car", 1, 10.0)),
    ],
)
def test_what_is_late_explains_nothing_else(record: dict[str, Any], late: WindowPart) -> None:
    comparison = compare([online(0), record, online(120_000)], late)
    assert comparison.different == (60_000,)
    assert (comparison.late, comparison.equal, comparison.agrees) == ((), 2, False)


def test_a_result_without_detections_is_extra() -> None:
    parts = [part for part in PARTS if part.start_ms != 60_000]
    comparison = compare([online(0), online(60_000), online(120_000)], parts=parts)
    assert (comparison.extra, comparison.equal, comparison.agrees) == ((60_000,), 2, False)


def test_windows_of_several_lengths_are_refused() -> None:
    with pytest.raises(InvalidError, match=r"several lengths \(30000 ms, 60000 ms\)"):
        compare([online(0), online(30_000) | {"window_ms": 30_000}])
