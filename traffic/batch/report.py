"""What `speck batch traffic` reports, as data. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date

from speck.model.values import JsonObject
from traffic.batch.comparison import LATENESS_MS, WindowComparison
from traffic.batch.results import Congestion, Hour, HourKey, rank_congested

WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Query:
    """Which days (UTC, both included; None: all) of an archive to read, the time zone of weekdays
    and hours, and how late a detection may be for an online result, in ms."""

    first: date | None = None
    last: date | None = None
    timezone: str = "UTC"
    lateness_ms: int = LATENESS_MS


@dataclass(frozen=True)
class Report:
    """`detections`, each counted once; how many archived records could not be read; the sums by
    sensor, weekday and hour; and the comparison with the online results, if there are any."""

    detections: int
    unreadable: int
    hours: Mapping[HourKey, Hour]
    comparison: WindowComparison | None

    def list_congested(self, top: int) -> list[Congestion]:
        return rank_congested(self.hours)[:top]


def to_json(report: Report, top: int) -> JsonObject:
    """The report, with the `top` most congested sensors; docs/archives.md describes the fields."""
    return {
        "detections": report.detections,
        "unreadable": report.unreadable,
        "sensors": [_name(key) | _describe(report.hours[key]) for key in sorted(report.hours)],
        "most_congested": [
            {"site": each.site, "sensor": each.sensor}
            | _describe(each.total)
            | {"busiest": _name_hour(each.busiest) | _describe(report.hours[each.busiest])}
            for each in report.list_congested(top)
        ],
        "comparison": None if report.comparison is None else _compare(report.comparison),
    }


def _name(key: HourKey) -> JsonObject:
    return {"site": key.site, "sensor": key.sensor} | _name_hour(key)


def _name_hour(key: HourKey) -> JsonObject:
    return {"weekday": WEEKDAYS[key.weekday], "hour": key.hour}


def _describe(hour: Hour) -> JsonObject:
    return {
        "count": hour.count,
        "mean_speed_mps": round(hour.mean_speed_mps, 6),
        "occupancy": round(hour.occupancy, 6),
    }


def _compare(comparison: WindowComparison) -> JsonObject:
    return {"agrees": comparison.agrees} | asdict(comparison)
