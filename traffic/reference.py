"""The expected results of the traffic application, computed in plain Python over a whole trace.

This shares no code with the edge jobs. `make demo` compares the published results with these; a
lost or repeated detection shows as a different count.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, TypeVar

from speck.fog.trace import Detection, Row, site_of

WINDOW_MS = 60_000


@dataclass(frozen=True, slots=True)
class LocalStat:
    """The statistics of one sensor in one window; occupancy is a share of the window, 0 to 1."""

    count: int
    mean_speed_mps: float
    occupancy: float


@dataclass(frozen=True, slots=True)
class GlobalStat:
    """The statistics of all sites in one window."""

    count: int
    mean_speed_mps: float
    sites: Mapping[str, int]
    types: Mapping[str, int]


LocalKey = tuple[str, str, int]  # site, sensor, start of the window in ms


def count_valid(rows: Iterable[Row], copies: int = 1) -> int:
    """How many detections must arrive when the rows are replayed in `copies` copies."""
    return copies * sum(row.valid for row in rows)


def _valid(rows: Iterable[Row]) -> Iterator[tuple[str, Detection]]:
    for row in rows:
        if row.detection is not None and row.detection.possible:
            yield site_of(row.stream), row.detection


def compute_local(
    rows: Iterable[Row], copies: int = 1, window_ms: int = WINDOW_MS
) -> dict[LocalKey, LocalStat]:
    """The expected final results of all LocalStats jobs, by site, sensor and window.

    Occupancy is the sum of length / speed, the times for which vehicles cover the sensor, divided
    by the window's length, at most 1.
    """
    groups: dict[LocalKey, list[Detection]] = defaultdict(list)
    for site, detection in _valid(rows):
        groups[site, detection.sensor, detection.time_ms // window_ms * window_ms].append(detection)
    return {
        key: LocalStat(
            count=copies * len(group),
            mean_speed_mps=math.fsum(detection.speed_mps for detection in group) / len(group),
            occupancy=min(
                1.0,
                copies
                * math.fsum(1000 * detection.length_m / detection.speed_mps for detection in group)
                / window_ms,
            ),
        )
        for key, group in groups.items()
    }


HourKey = tuple[str, str, int, int]  # site, sensor, weekday (0: Monday), hour of the day


def compute_hours(rows: Sequence[Row]) -> dict[HourKey, LocalStat]:
    """The statistics of each sensor in each hour (UTC) of each weekday, over a whole trace.

    Occupancy is the share of the minutes in which any sensor of the site has a detection.
    """
    groups: dict[HourKey, list[Detection]] = defaultdict(list)
    minutes: dict[tuple[str, int, int], set[int]] = defaultdict(set)
    for site, detection in _valid(rows):
        at = datetime.fromtimestamp(detection.time_ms // 1000, UTC)
        groups[site, detection.sensor, at.weekday(), at.hour].append(detection)
        minutes[site, at.weekday(), at.hour].add(detection.time_ms // 60_000)
    return {
        (site, sensor, weekday, hour): LocalStat(
            count=len(group),
            mean_speed_mps=math.fsum(detection.speed_mps for detection in group) / len(group),
            occupancy=min(
                1.0,
                math.fsum(1000 * detection.length_m / detection.speed_mps for detection in group)
                / (60_000 * len(minutes[site, weekday, hour])),
            ),
        )
        for (site, sensor, weekday, hour), group in groups.items()
    }


def compute_global(
    rows: Iterable[Row], copies: int = 1, window_ms: int = WINDOW_MS
) -> dict[int, GlobalStat]:
    """The expected final results of Merge, by the start of the window in ms."""
    groups: dict[int, list[tuple[str, Detection]]] = defaultdict(list)
    for site, detection in _valid(rows):
        groups[detection.time_ms // window_ms * window_ms].append((site, detection))
    return {
        start: GlobalStat(
            count=copies * len(group),
            mean_speed_mps=math.fsum(detection.speed_mps for _, detection in group) / len(group),
            sites=_times(copies, Counter(site for site, _ in group)),
            types=_times(copies, Counter(detection.type for _, detection in group)),
        )
        for start, group in groups.items()
    }


def _times(copies: int, counts: Counter[str]) -> dict[str, int]:
    return {key: copies * count for key, count in sorted(counts.items())}


@dataclass(frozen=True)
class Comparison:
    """A comparison of expected and received results.

    `published` and `delivered` count detections. `lost` and `repeated` sum up by how much the
    counts are below or above the expected ones. `missing`, `extra` and `different` hold the keys.
    """

    published: int
    delivered: int
    lost: int
    repeated: int
    missing: tuple[Hashable, ...] = field(default=())
    extra: tuple[Hashable, ...] = field(default=())
    different: tuple[Hashable, ...] = field(default=())

    @property
    def equal(self) -> bool:
        """Whether no result is missing, extra or different."""
        return not (self.missing or self.extra or self.different)

    def __str__(self) -> str:
        if self.equal:
            return f"equal: {self.delivered} detections, none lost, none repeated"
        return (
            f"not equal: {self.published} expected, {self.delivered} delivered, {self.lost} lost,"
            f" {self.repeated} repeated; results: {len(self.missing)} missing,"
            f" {len(self.extra)} extra, {len(self.different)} different"
        )


def compare_local(
    expected: Mapping[LocalKey, LocalStat], records: Iterable[Mapping[str, Any]]
) -> Comparison:
    """Compare the records of the `traffic/<site>/local` topics of all sites together."""
    newest = _newest(records, lambda it: (it["site"], it["sensor"], it["window_start_ms"]))
    received = {
        key: LocalStat(it["count"], it["mean_speed_mps"], it["occupancy"])
        for key, it in newest.items()
    }

    def same(a: LocalStat, b: LocalStat) -> bool:
        return (
            a.count == b.count
            and _close(a.mean_speed_mps, b.mean_speed_mps)
            and _close(a.occupancy, b.occupancy)
        )

    return _compare(expected, received, same)


def compare_global(
    expected: Mapping[int, GlobalStat], records: Iterable[Mapping[str, Any]]
) -> Comparison:
    """Compare the records of the `traffic/global` topic."""
    newest = _newest(records, lambda it: it["window_start_ms"])
    received = {
        key: GlobalStat(it["count"], it["mean_speed_mps"], it["sites"], it["types"])
        for key, it in newest.items()
    }

    def same(a: GlobalStat, b: GlobalStat) -> bool:
        return (
            a.count == b.count
            and _close(a.mean_speed_mps, b.mean_speed_mps)
            and dict(a.sites) == dict(b.sites)
            and dict(a.types) == dict(b.types)
        )

    return _compare(expected, received, same)


def _close(a: float, b: float) -> bool:
    """Whether two sums are equal, apart from rounding in another order of addition."""
    return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)


def _newest(
    records: Iterable[Mapping[str, Any]], key_of: Callable[[Mapping[str, Any]], Any]
) -> dict[Any, Mapping[str, Any]]:
    """The highest revision of each result; among equal revisions, the last one received."""
    newest: dict[Any, Mapping[str, Any]] = {}
    for record in records:
        best = newest.get(key_of(record))
        if best is None or record.get("revision", 0) >= best.get("revision", 0):
            newest[key_of(record)] = record
    return newest


Key = TypeVar("Key", bound=Hashable)
Stat = TypeVar("Stat", LocalStat, GlobalStat)


def _compare(
    expected: Mapping[Key, Stat], received: Mapping[Key, Stat], same: Callable[[Stat, Stat], bool]
) -> Comparison:
    both = [key for key in expected if key in received]
    missing = [key for key in expected if key not in received]
    extra = [key for key in received if key not in expected]
    surplus = [received[key].count - expected[key].count for key in both]
    return Comparison(
        published=sum(stat.count for stat in expected.values()),
        delivered=sum(stat.count for stat in received.values()),
        lost=sum(-n for n in surplus if n < 0) + sum(expected[key].count for key in missing),
        repeated=sum(n for n in surplus if n > 0) + sum(received[key].count for key in extra),
        missing=tuple(sorted(missing)),  # type: ignore[type-var]
        extra=tuple(sorted(extra)),  # type: ignore[type-var]
        different=tuple(key for key in both if not same(expected[key], received[key])),
    )
