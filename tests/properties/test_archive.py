"""Jobs store batches in an archive that is compacted, and all of them are killed at any instant:
each row of a batch is there once, whenever somebody looks."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from speck.archive.compaction import REPEATABLE, compact
from speck.archive.files import list_by_folder, list_files
from speck.metrics.dataset.local import LocalStorage
from tests.archives import KilledError, Kills, MortalDisk, MortalPlace, read_rows, store_batch
from tests.examples import costly

TODAY = date(2026, 11, 28)
FOLDERS = (
    "day=2026-11-26/site=A",
    "day=2026-11-27/site=A",
    "day=2026-11-27/site=B",
    "day=2026-11-28/site=A",
    "day=__HIVE_DEFAULT_PARTITION__/site=__HIVE_DEFAULT_PARTITION__",
)
WRITERS = ("0a", "0b")

kill = st.none() | st.integers(0, 12)
sizes = st.dictionaries(st.sampled_from(FOLDERS), st.integers(1, 2), min_size=1, max_size=3)
batches = st.tuples(st.integers(1, 9), sizes).map(lambda both: [both[1]] * both[0])
step = st.one_of(
    st.tuples(st.just("batches"), st.sampled_from(WRITERS), batches, kill),
    st.tuples(st.just("again"), st.sampled_from(WRITERS), st.integers(1, REPEATABLE), kill),
    st.tuples(st.just("compact"), st.none(), st.none(), kill),
)


class Fog:
    """Jobs that write one archive, and its administrator."""

    def __init__(self, root: Path) -> None:
        self.kills = Kills()
        self.root = root
        self.place = MortalPlace(root, self.kills)
        self.storage = LocalStorage(root, MortalDisk(self.kills))
        self.batches: dict[str, list[dict[str, list[int]]]] = {name: [] for name in WRITERS}
        self.rows = 0

    def add_batch(self, writer: str, sizes: dict[str, int]) -> None:
        batch: dict[str, list[int]] = {}
        for folder, size in sizes.items():
            batch[folder] = list(range(self.rows, self.rows + size))
            self.rows += size
        self.batches[writer].append(batch)

    def store(self, writer: str, number: int) -> None:
        rows = self.batches[writer][number]
        store_batch(self.place, self.root, writer, number, rows)

    def repeat(self, writer: str, count: int) -> None:
        """Run the last batches again, as after a failure."""
        last = len(self.batches[writer])
        for number in range(max(0, last - count), last):
            self.store(writer, number)

    def repeat_all(self) -> None:
        """At worst all jobs have failed meanwhile."""
        for writer in WRITERS:
            self.repeat(writer, REPEATABLE)

    @contextmanager
    def killed_at(self, moment: int | None, restart: Callable[[], None]) -> Iterator[None]:
        self.kills.at(moment)
        try:
            yield
        except KilledError:
            self.kills.at(None)
            self.check(complete=False)
            restart()
        self.kills.at(None)

    def check(self, *, complete: bool = True) -> None:
        rows = Counter(read_rows(self.storage))
        assert all(count == 1 for count in rows.values()), rows
        if complete:
            assert sorted(rows) == list(range(self.rows))


@given(st.lists(step, max_size=8))
@costly(1)
def test_each_row_is_there_once(steps: list[tuple[str, str, dict[str, int], int | None]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        fog = Fog(Path(folder))
        for what, writer, how, moment in steps:
            if what == "batches":
                for number, batch in enumerate(how, start=1):
                    fog.add_batch(writer, batch)
                    last = moment if number == len(how) else None
                    with fog.killed_at(last, lambda writer=writer: fog.repeat(writer, 1)):
                        fog.store(writer, len(fog.batches[writer]) - 1)
            elif what == "again":
                with fog.killed_at(moment, lambda writer=writer: fog.repeat(writer, REPEATABLE)):
                    fog.repeat(writer, how)
            elif fog.rows:
                with fog.killed_at(moment, lambda: None):
                    compact(fog.storage, TODAY)
                fog.repeat_all()
            fog.check()
        if fog.rows:
            compact(fog.storage, TODAY)
            fog.repeat_all()
            fog.check()
            check_that_readers_who_know_nothing_are_right(fog)


def test_a_kill_at_each_moment_of_a_batch_and_of_a_compaction() -> None:
    killed = 1
    for moment in range(100):
        with tempfile.TemporaryDirectory() as folder:
            fog = Fog(Path(folder))
            for _ in range(2 + REPEATABLE):
                fog.add_batch("0a", dict.fromkeys(FOLDERS[:3], 1))
                fog.store("0a", len(fog.batches["0a"]) - 1)
            before = fog.kills.count
            fog.add_batch("0a", dict.fromkeys(FOLDERS[1:], 2))
            with fog.killed_at(moment, lambda fog=fog: fog.repeat("0a", 1)):
                fog.store("0a", len(fog.batches["0a"]) - 1)
            fog.check()
            with fog.killed_at(moment, lambda: None):
                compact(fog.storage, TODAY)
            fog.repeat_all()
            fog.check()
            compact(fog.storage, TODAY)
            check_that_readers_who_know_nothing_are_right(fog)
            if fog.kills.count == before:
                killed = moment
                break
    assert killed > 20


def check_that_readers_who_know_nothing_are_right(fog: Fog) -> None:
    """After a whole run nothing is left that does not count, and few files of past days are."""
    names = [str(path.relative_to(fog.root)) for path in fog.root.rglob("*.parquet")]
    visible = [each for each in names if "/." not in f"/{each}"]
    listed = [file.path for file in list_files(fog.storage, "detections")]
    assert sorted(visible) == sorted(listed)
    for folder, files in list_by_folder(fog.storage, "detections"):
        if "2026-11-28" not in folder:
            assert len(files) <= 1 + REPEATABLE * len(WRITERS)
