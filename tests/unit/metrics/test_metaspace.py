"""Engines whose metaspace fills up are reported, once, and so is their end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from speck.clock import SystemClock
from speck.metrics.metaspace import MetaspaceWatch
from speck.model.measurement import EngineMeasures
from speck.store.records import Records

MIB = 1 << 20


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    records = Records.open(tmp_path / "store", SystemClock())
    yield records
    records.store.close()


def used(megabytes: int | None, limit: int | None = 200) -> EngineMeasures:
    return EngineMeasures(
        {},
        metaspace_used_bytes=None if megabytes is None else megabytes * MIB,
        metaspace_max_bytes=None if limit is None else limit * MIB,
    )


def run(records: Records, *measures: EngineMeasures, site: str = "edge-a") -> list[str]:
    """The messages of the events, without their advice."""
    watch = MetaspaceWatch(records)
    for each in measures:
        watch.record(site, each)
    return [str(event.message).partition("):")[0] for event in records.events.after()]


def test_it_is_reported_once_while_it_is_full(records: Records) -> None:
    (message,) = run(records, *map(used, (100, 159, 160, 170, 150, 165)))
    assert message == "the metaspace of the engine of edge-a is 80% full (of 200 MiB"


def test_it_is_reported_again_after_it_was_calm(records: Records) -> None:
    assert len(run(records, *map(used, (180, 130, 180)))) == 2


def test_the_cause_of_a_restart_is_named(records: Records) -> None:
    _, message = run(records, *map(used, (120, 190, 60, 70)))
    assert message.startswith(
        "the engine of edge-a was restarted: its JVM ran out of metaspace, as far as can be seen"
        " (190 of 200 MiB were in use before"
    )


def test_a_restart_with_room_left_has_another_cause(records: Records) -> None:
    assert run(records, *map(used, (120, 60))) == []


def test_polls_that_say_nothing_change_nothing(records: Records) -> None:
    assert run(records, used(None), used(190, None), used(190, 0), used(10)) == []
    assert len(run(records, used(190), used(None), used(60))) == 2
