"""The bench's own program that counts by key does what the Java job Counting does."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

SOURCES = Path(__file__).parents[3] / "edge_jobs/python"


@pytest.fixture
def counting(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [*sys.path, str(SOURCES)])
    from bench.programs.counting import Counting

    return Counting


class FakeJob:
    """A job without links."""

    def __init__(self, folder: Path) -> None:
        from speck_link.state import State

        self.state = State(folder)
        self.table = self.state.table


def test_it_counts_by_key_and_goes_on_from_its_state(counting: Any, tmp_path: Path) -> None:
    first, job = counting(), FakeJob(tmp_path)
    first.open(job)
    records = [b'{"n":1,"k":"a"}', b'{"n":2,"k":"b"}', b'{"n":3,"k":"a"}', b"[1]", b"nonsense"]
    out = [each for record in records for each in first.process(record)]
    assert out == [
        b'{"n":1,"k":"a","count":1}',
        b'{"n":2,"k":"b","count":1}',
        b'{"n":3,"k":"a","count":2}',
    ]
    job.state.commit({}, (), ())
    job.state.close()
    second, again = counting(), FakeJob(tmp_path)
    second.open(again)
    assert list(second.process(b'{"k":"a"}')) == [b'{"k":"a","count":3}']
    again.state.close()
