"""Results of the sums over an archive. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from traffic.reference import GlobalStat


class HourKey(NamedTuple):
    """A sensor in one hour (0 to 23) of one weekday (0: Monday)."""

    site: str
    sensor: str
    weekday: int
    hour: int


@dataclass(frozen=True, slots=True)
class Hour:
    """Sums over all these hours: detections, their speeds in m/s, the time for which vehicles
    covered the sensor, and the time for which its site was observed, in ms."""

    count: int
    speeds: float
    covered_ms: float
    observed_ms: int

    @property
    def mean_speed_mps(self) -> float:
        return self.speeds / self.count

    @property
    def occupancy(self) -> float:
        """The share of the time for which vehicles covered the sensor, 0 to 1."""
        return min(1.0, self.covered_ms / self.observed_ms)


@dataclass(frozen=True, slots=True)
class Congestion:
    """A sensor over all hours in which its site was observed, and the busiest of these."""

    site: str
    sensor: str
    total: Hour
    busiest: HourKey


def rank_congested(hours: Mapping[HourKey, Hour]) -> list[Congestion]:
    """All sensors, the most congested first: by occupancy, and among equals by mean speed."""
    observed: dict[str, dict[tuple[int, int], int]] = defaultdict(dict)
    by_sensor: dict[tuple[str, str], dict[HourKey, Hour]] = defaultdict(dict)
    for key, hour in hours.items():
        observed[key.site][key.weekday, key.hour] = hour.observed_ms
        by_sensor[key.site, key.sensor][key] = hour
    ranked = [
        Congestion(
            site,
            sensor,
            Hour(
                sum(hour.count for hour in own.values()),
                sum(hour.speeds for hour in own.values()),
                sum(hour.covered_ms for hour in own.values()),
                sum(observed[site].values()),
            ),
            max(own, key=lambda key: (own[key].occupancy, key)),
        )
        for (site, sensor), own in by_sensor.items()
    ]
    return sorted(
        ranked,
        key=lambda it: (-it.total.occupancy, it.total.mean_speed_mps, it.site, it.sensor),
    )


@dataclass(frozen=True, slots=True)
class WindowPart:
    """Sums over the detections of one type of vehicle at one site in one window."""

    start_ms: int
    site: str
    type: str
    count: int
    speeds: float


def join_parts(parts: Iterable[WindowPart]) -> dict[int, GlobalStat]:
    """The statistics of each window, by its start in ms."""
    by_start: dict[int, list[WindowPart]] = defaultdict(list)
    for part in parts:
        by_start[part.start_ms].append(part)
    return {start: _join(of_window) for start, of_window in by_start.items()}


def _join(parts: list[WindowPart]) -> GlobalStat:
    sites: Counter[str] = Counter()
    types: Counter[str] = Counter()
    for part in parts:
        sites[part.site] += part.count
        types[part.type] += part.count
    count = sum(part.count for part in parts)
    speed = sum(part.speeds for part in parts) / count
    return GlobalStat(count, speed, dict(sorted(sites.items())), dict(sorted(types.items())))
