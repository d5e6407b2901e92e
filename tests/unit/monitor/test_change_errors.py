"""The errors of changes that are over are read once, and the oldest are given up first."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import pytest

from speck.monitor import change_errors
from speck.monitor.change_errors import ChangeErrors


@dataclass
class FakeState:
    over: bool = True


@dataclass
class FakeHead:
    state: FakeState = field(default_factory=FakeState)


class FakeChanges:
    def __init__(self) -> None:
        self.reads: Counter[str] = Counter()

    def head(self, change_id: str) -> FakeHead:
        return FakeHead()

    def operations(self, change_id: str) -> list[Any]:
        self.reads[change_id] += 1
        return []


@dataclass
class FakeRecords:
    changes: FakeChanges = field(default_factory=FakeChanges)


def test_one_more_change_than_are_kept_costs_one_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not one of each, at every list of all jobs."""
    monkeypatch.setattr(change_errors, "_CHANGES_KEPT", 3)
    records: Any = FakeRecords()
    errors = ChangeErrors(records)
    for name in ("a", "b", "c", "a", "d", "a", "c", "d"):
        errors.of(None, name)
    assert records.changes.reads == {"a": 1, "b": 1, "c": 1, "d": 1}
