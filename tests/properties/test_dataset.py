"""Whatever is appended, flushed, compacted and killed, each row is read exactly once."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speck.metrics.dataset.files import Partition
from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.maintenance import maintain
from speck.metrics.dataset.reading import read
from speck.metrics.dataset.remote import open_s3
from speck.metrics.dataset.schema import TASKS
from speck.metrics.dataset.storage import Storage
from speck.metrics.dataset.writer import Writer
from tests.dataset_rows import NOON, DiedError, HandClock, task
from tests.examples import costly
from tests.s3_server import s3_server
from tests.storages import make_mortal

DAY = 86_400
KEYS = st.lists(
    st.tuples(st.sampled_from([0, 0, 1, 2]), st.integers(0, 5), st.sampled_from("aab")),
    min_size=1,
    max_size=5,
)
APPEND = st.tuples(st.just("append"), KEYS)
WRITE = st.tuples(st.just("write"), KEYS)
TEND = st.tuples(st.just("maintain"), st.sampled_from([30, 30, 30, 2, 3, 4]))
DEATH = st.sampled_from([None, None, None, *itertools.product(range(1, 7), (False, True))])
STEPS = st.lists(st.tuples(APPEND | WRITE | WRITE | TEND | TEND, DEATH), min_size=4, max_size=14)

Key = tuple[int, int, str]


def row(key: Key) -> dict:
    day, second, composition = key
    return task(day * DAY + second, composition=composition, records_in=day * 10 + second)


def count_rows(storage: Storage) -> Counter[Key]:
    rows = read(storage, TASKS).to_pylist()
    assert all(row["records_in"] == (at := row["at"] - NOON).days * 10 + at.seconds for row in rows)
    return Counter(
        ((row["at"] - NOON).days, (row["at"] - NOON).seconds, row["composition"]) for row in rows
    )


class Model:
    """`sure`: in files. `waiting`: the writer has them, or files have. `maybe`: they waited, or
    their day was about to go, when the process died."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.clock = HandClock(NOON + timedelta(days=2))
        self.sure: set[Key] = set()
        self.waiting: set[Key] = set()
        self.maybe: set[Key] = set()
        self.start()

    def start(self) -> None:
        self.writer = Writer(self.storage, roll_rows=3, clock=self.clock)
        self.maybe |= self.waiting
        self.waiting = set()

    def append(self, keys: list[Key], storage: Storage) -> None:
        self.waiting |= set(keys)
        self.writer.storage = storage
        self.writer.append(TASKS, [row(key) for key in keys])

    def write(self, keys: list[Key], storage: Storage) -> None:
        self.append(keys, storage)
        self.writer.flush()
        self.sure |= self.waiting
        self.waiting = set()

    def maintain(self, days: int, storage: Storage) -> None:
        """Two days after the last row: day n, which ended at n + 1, is n + 3 days old at least."""
        old_days = {day for day in range(3) if 4 - (day + 1) + 0.5 >= days}
        due = {key for key in self.sure | self.waiting if key[0] in old_days}
        self.sure -= due
        self.waiting -= due
        self.maybe |= due
        maintain(storage, self.clock.now() + timedelta(days=2), days)
        for day in old_days:
            folder = Partition((NOON + timedelta(days=day)).date()).folder(TASKS)
            assert not storage.list_files(folder)


def check_steps(storage: Storage, steps: list) -> None:
    model = Model(storage)
    for (what, argument), death in steps:
        place = make_mortal(storage, death[0], half=death[1]) if death else storage
        try:
            getattr(model, what)(argument, place)
        except DiedError:
            model.start()
        rows = count_rows(storage)
        assert set(rows.values()) <= {1}
        assert model.sure <= set(rows) <= model.sure | model.waiting | model.maybe
    model.write([], storage)
    assert model.sure <= set(count_rows(storage)) <= model.sure | model.maybe


@costly()
@given(STEPS)
def test_each_row_is_read_once_whatever_dies_when(steps: list) -> None:
    # in memory: the disk's own time is no part of this
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        check_steps(LocalStorage(Path(folder) / "metrics"), steps)


@pytest.mark.long
def test_each_row_is_read_once_from_s3_whatever_dies_when(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = itertools.count()

    @settings(max_examples=4, deadline=None)
    @given(STEPS)
    def check(steps: list) -> None:
        check_steps(open_s3(f"s3a://metrics/{next(numbers)}", tmp_path), steps)

    with s3_server() as env:
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        check()
