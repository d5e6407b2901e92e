"""Compares two analyses figure by figure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

from speck.model.values import JsonObject

TOLERANCE = 1e-6
_SECTIONS = ("samples", "jobs", "ends", "sites")
_LAGS = ("lag", "lag_per_s", "lag_fit")
_NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
_IDENTITY = (
    *("composition", "job_name", "broker_site", "topic", "role", "client_id", "vertex", "subtask"),
    "name",
)
"""What orders the rows of a list: the first ones that they have."""


def find_differences(one: JsonObject, other: JsonObject) -> tuple[int, list[str]]:
    """How many figures were compared, and where they differ by more than `TOLERANCE`; numbers in
    sentences, which are rounded, by more than one of their last digit."""
    differences: list[str] = []
    count = 0
    for place, its, theirs in _pair(_select(one), _select(other)):
        count += 1
        if not _equal(its, theirs):
            differences.append(f"{place}: {its!r}, {theirs!r}")
    return count, differences


def _select(analysis: JsonObject) -> JsonObject:
    """The sections that are compared."""
    ends = analysis["ends"] if "ends" in analysis else list(_list_ends(analysis["links"]))
    return {name: {**analysis, "ends": ends}.get(name) for name in _SECTIONS}


def _list_ends(links: Iterable[JsonObject]) -> Iterator[JsonObject]:
    """The ends of links for which numbers were published, as DuckDB's analysis has them."""
    for link in links:
        for role in ("producer", "reader"):
            for end in link[f"{role}s"]:
                if end["client_id"] is not None:
                    place = {name: link[name] for name in ("composition", "broker_site", "topic")}
                    names = {name: end[name] for name in ("client_id", "job_name", "counted_per_s")}
                    yield {
                        **place,
                        "role": role,
                        **names,
                        **{name: end.get(name) for name in _LAGS},
                    }


def _pair(one: Any, other: Any, place: str = "") -> Iterator[tuple[str, Any, Any]]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in sorted(one.keys() | other.keys()):
            if name == "damaged_files":
                continue
            missing = "missing"
            yield from _pair(one.get(name, missing), other.get(name, missing), f"{place}/{name}")
    elif isinstance(one, list) and isinstance(other, list):
        yield f"{place}/length", len(one), len(other)
        rows = zip(_sort(one), _sort(other), strict=False)
        for number, (its, theirs) in enumerate(rows):
            yield from _pair(its, theirs, f"{place}[{number}]")
    else:
        yield place, one, other


def _sort(rows: list[Any]) -> list[Any]:
    """By identity; a list of sentences stays as it is."""
    if not all(isinstance(row, dict) for row in rows):
        return rows
    return sorted(
        rows, key=lambda row: [(row.get(n) is not None, row.get(n) or 0) for n in _IDENTITY]
    )


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, str) and isinstance(other, str) and one != other:
        if _NUMBER.sub("#", one) != _NUMBER.sub("#", other):
            return False
        numbers = zip(_NUMBER.findall(one), _NUMBER.findall(other), strict=True)
        return all(_are_close(its, theirs) for its, theirs in numbers)
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, (int, float)) and isinstance(other, (int, float)):
        return math.isclose(one, other, rel_tol=TOLERANCE, abs_tol=1e-9)
    return bool(one == other)


def _are_close(one: str, other: str) -> bool:
    last_digit = 10.0 ** -len(one.partition(".")[2])
    return math.isclose(
        float(one), float(other), rel_tol=TOLERANCE, abs_tol=last_digit * (1 + TOLERANCE)
    )
