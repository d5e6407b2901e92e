"""Where a store lies, and what tells a copy of it from the original."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from speck.clock import SystemClock
from speck.store import location as location_module
from speck.store.location import HOST_ID, StoreLocation
from speck.store.records import Records
from speck.store.tables import LOCATION

HERE = StoreLocation(host="h", boot="b", folder=1, lock=2, file_system=3)
HOLDER = """
import sys
from pathlib import Path
from speck.clock import SystemClock
from speck.store.location import StoreLocation
from speck.store.records import Records

records = Records.open(Path(sys.argv[1]), SystemClock(), location=StoreLocation.of)
print(records.generation, flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize(
    ("now", "copied"),
    [
        (HERE, None),
        (replace(HERE, boot="c"), None),
        (replace(HERE, boot="c", file_system=4), None),  # numbered anew
        (replace(HERE, host=""), None),
        (replace(HERE, boot="", file_system=4), None),
        (replace(HERE, host="i"), "from another machine"),
        (replace(HERE, folder=4), "is a copy"),
        (replace(HERE, host="", lock=4), "is a copy"),
        (replace(HERE, boot="c", lock=4), "is a copy"),
        (replace(HERE, file_system=4), "is a snapshot"),
    ],
)
def test_what_is_a_copy(now: StoreLocation, copied: str | None) -> None:
    reason = now.find_copy(HERE)
    assert reason is None if copied is None else copied in str(reason)


def test_what_was_never_served_is_no_copy() -> None:
    assert HERE.find_copy(None) is None


def test_a_machine_is_known_by_its_id_or_by_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "store"
    Records.open(store, SystemClock()).store.close()
    machine = tmp_path / "machine-id"
    monkeypatch.setattr(location_module, "_MACHINE_ID", machine)
    assert StoreLocation.of(store, {}).host == ""  # as in many containers
    machine.write_text("0123\n")
    named, other = StoreLocation.of(store, {}).host, StoreLocation.of(store, {HOST_ID: "4567"}).host
    assert len({named, other, ""}) == 3
    assert "0123" not in named


def test_a_process_that_was_killed_leaves_no_copy(tmp_path: Path) -> None:
    path = tmp_path / "store"
    generations = []
    for _ in range(3):
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env=dict(os.environ),
        )
        assert process.stdout is not None
        generations.append(process.stdout.readline())
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert generations == [b"1\n"] * 3


def test_a_program_that_only_reads_the_store_takes_no_place(tmp_path: Path) -> None:
    path = tmp_path / "store"
    records = Records.open(path, SystemClock(), location=StoreLocation.of)
    served = records.store.get(LOCATION)
    records.store.close()
    subprocess.run(["cp", "-a", path, tmp_path / "copy"], check=True)
    copy = Records.open(tmp_path / "copy", SystemClock())
    assert copy.restored is None
    assert copy.store.get(LOCATION) == served
    copy.store.close()
