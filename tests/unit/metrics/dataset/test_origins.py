"""Fingerprints of ten minutes: new rows change them, compaction does not."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path

from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.maintenance import maintain
from speck.metrics.dataset.origins import UNIT_S, UNITS, fingerprint_units
from speck.metrics.dataset.schema import TASKS
from speck.metrics.dataset.writer import Writer
from tests.dataset_rows import NOON, HandClock, list_paths, task

NOON_UNIT = int(NOON.timestamp()) // UNIT_S
_NUMBERS = itertools.count()  # the names of two files are never the same
LATER = NOON + timedelta(days=2)


def append(root: Path, *seconds: float, composition: str = "c") -> None:
    """One more file."""
    writer = Writer(LocalStorage(root), clock=HandClock(NOON + timedelta(seconds=next(_NUMBERS))))
    writer.append(TASKS, [task(second, composition=composition) for second in seconds])
    writer.close()


def prints(root: Path) -> Mapping[int, str]:
    return fingerprint_units(LocalStorage(root), TASKS, NOON, NOON + timedelta(hours=1))


def test_only_the_units_of_a_new_file_change(tmp_path: Path) -> None:
    append(tmp_path, 0, 599, 1300)
    before = prints(tmp_path)
    append(tmp_path, 650, composition="other")
    append(tmp_path, 1200)

    after = prints(tmp_path)

    assert sorted(before) == [NOON_UNIT, NOON_UNIT + 1, NOON_UNIT + 2]
    assert after[NOON_UNIT] == before[NOON_UNIT]
    assert after[NOON_UNIT + 1] != before[NOON_UNIT + 1]
    assert after[NOON_UNIT + 2] != before[NOON_UNIT + 2]


def test_compaction_changes_none(tmp_path: Path) -> None:
    for second in (0, 300, 900):
        append(tmp_path, second, second + 5)
    before = prints(tmp_path)

    assert maintain(LocalStorage(tmp_path), LATER, 0).merged == 3
    assert prints(tmp_path) == before

    append(tmp_path, 310)
    later = prints(tmp_path)
    assert maintain(LocalStorage(tmp_path), LATER, 0).merged == 2
    assert prints(tmp_path) == later
    assert later[NOON_UNIT] != before[NOON_UNIT]
    assert later[NOON_UNIT + 1] == before[NOON_UNIT + 1]


def test_a_damaged_file_has_no_part_in_it(tmp_path: Path) -> None:
    append(tmp_path, 0)
    before = prints(tmp_path)
    append(tmp_path, 1)
    list_paths(tmp_path, TASKS)[-1].write_bytes(b"PAR1 cut off")

    assert prints(tmp_path) == before


def test_maintenance_drops_replaced_and_old_sums(tmp_path: Path) -> None:
    append(tmp_path, 0)
    folder = tmp_path / UNITS / TASKS.name / "10min"
    folder.mkdir(parents=True)
    prints = ((NOON_UNIT, 1), (NOON_UNIT, 2), (NOON_UNIT + 300, 3))
    names = [f"{unit}-{number:016x}.parquet" for unit, number in prints]
    for second, name in enumerate(names):
        (folder / name).touch()
        os.utime(folder / name, (second, second))

    maintain(LocalStorage(tmp_path), LATER, 0)
    assert sorted(path.name for path in folder.iterdir()) == names[1:]
    maintain(LocalStorage(tmp_path), LATER, 1)
    assert [path.name for path in folder.iterdir()] == names[2:]
