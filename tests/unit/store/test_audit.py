"""The audit log: a chain of lines that shows tampering, and takes bounded room."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from speck.clock import SystemClock
from speck.errors import InvalidError
from speck.store import audit, audit_log
from speck.store.audit import Audit, Entry
from speck.store.audit_log import list_files, read_entries, read_newest, verify
from tests.unit.store.audit_lines import CHANGED, Usage, record


class SteppingClock(SystemClock):
    """Its monotonic time is set by the test."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def lines_of(folder: Path) -> list[bytes]:
    return [line for file in list_files(folder) for line in file.read_bytes().splitlines(True)]


def test_a_line_says_who_asked_for_what_from_where_and_how_it_ended(tmp_path: Path) -> None:
    log = Audit(tmp_path / "audit", SystemClock())
    detail = {"change": "c1"}
    log.record(Entry("POST", "/compositions/a", 202, token="ana", address="::1", detail=detail))
    log.record(Entry("DELETE", "/jobs/b", 403, token="ben", address="10.0.0.1"))
    log.close()
    first, second = read_entries(tmp_path / "audit")
    assert first | {"at": ""} == {
        "n": 1,
        "at": "",
        "token": "ana",
        "address": "::1",
        "verb": "POST",
        "object": "/compositions/a",
        "outcome": 202,
        "change": "c1",
        "previous": "0" * 64,
    }
    assert (second["n"], second["outcome"], second["token"]) == (2, 403, "ben")
    assert verify(tmp_path / "audit").faults == ()
    (file,) = list_files(tmp_path / "audit")
    assert file.stat().st_mode & 0o077 == 0


def test_the_chain_goes_on_over_files_and_restarts(tmp_path: Path) -> None:
    for _ in range(3):
        record(tmp_path, 5, file_bytes=600)
    assert len(list_files(tmp_path)) > 3
    verdict = verify(tmp_path)
    assert (verdict.lines, verdict.first, verdict.faults) == (15, 1, ())
    assert [entry["n"] for entry in read_entries(tmp_path)] == list(range(1, 16))
    assert [entry["n"] for entry in read_entries(tmp_path, after=12)] == [13, 14, 15]
    assert [entry["n"] for entry in read_newest(tmp_path, 4)] == [12, 13, 14, 15]


def test_the_oldest_files_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (audit, audit_log):
        monkeypatch.setattr(module, "FILES", 2)
    record(tmp_path, 10, file_bytes=1)
    assert len(list_files(tmp_path)) == 2
    verdict = verify(tmp_path)
    assert (verdict.lines, verdict.first, verdict.faults) == (2, 9, ())


def _change(lines: list[bytes]) -> None:
    lines[2] = lines[2].replace(b"ana", b"eve")


def _remove(lines: list[bytes]) -> None:
    del lines[2]


def _swap(lines: list[bytes]) -> None:
    lines[2], lines[3] = lines[3], lines[2]


def _insert(lines: list[bytes]) -> None:
    lines.insert(2, lines[1])


def _spoil(lines: list[bytes]) -> None:
    lines[2] = b"nothing\n"


def _begin_late(lines: list[bytes]) -> None:
    lines[0] = lines[0].replace(b"0" * 64, b"1" * 64)


def _cut_off_the_oldest(lines: list[bytes]) -> None:
    del lines[:2]


def _spoil_deeply(lines: list[bytes]) -> None:
    lines[2] = b"[" * 100_000 + b"\n"


def _leave_one_without_number(lines: list[bytes]) -> None:
    lines[:] = [b'{"n":"one","previous":"none"}\n']


@pytest.mark.parametrize(
    "tamper",
    [
        _change,
        _remove,
        _swap,
        _insert,
        _spoil,
        _begin_late,
        _cut_off_the_oldest,
        _spoil_deeply,
        _leave_one_without_number,
    ],
)
def test_verify_finds_what_was_tampered_with(tmp_path: Path, tamper: Any) -> None:
    record(tmp_path, 5)
    (file,) = list_files(tmp_path)
    lines = lines_of(tmp_path)
    tamper(lines)
    file.write_bytes(b"".join(lines))
    assert verify(tmp_path).faults


def test_verify_finds_that_the_oldest_files_were_removed(tmp_path: Path) -> None:
    record(tmp_path, 10, file_bytes=600)
    list_files(tmp_path)[0].unlink()
    (fault,) = verify(tmp_path).faults
    assert fault == "00000002.jsonl: the files before it are missing, though 64 are kept"


def test_a_hash_that_was_noted_shows_that_the_newest_lines_were_cut_off(tmp_path: Path) -> None:
    record(tmp_path, 5)
    noted = verify(tmp_path).last_hash
    record(tmp_path, 2)
    assert verify(tmp_path, noted).faults == ()
    (file,) = list_files(tmp_path)
    file.write_bytes(b"".join(lines_of(tmp_path)[:4]))
    assert verify(tmp_path).faults == (), "the chain alone cannot show it"
    assert "lines were cut off" in verify(tmp_path, noted).faults[0]


def test_there_is_nothing_to_verify_without_a_log(tmp_path: Path) -> None:
    with pytest.raises(InvalidError, match="there is none in"):
        verify(tmp_path)


def test_half_a_line_of_a_power_failure_is_removed_and_counted(tmp_path: Path) -> None:
    record(tmp_path, 3)
    (file,) = list_files(tmp_path)
    with file.open("ab") as out:
        out.write(b'{"n":4,"at"')
    record(tmp_path, 1)
    *_, last = read_entries(tmp_path)
    assert (last["n"], last["missing"]) == (4, 1)
    assert verify(tmp_path).faults == ()


def test_a_last_line_that_somebody_spoilt_does_not_end_the_log(tmp_path: Path) -> None:
    record(tmp_path, 3)
    (file,) = list_files(tmp_path)
    with file.open("ab") as out:
        out.write(b"\xff nonsense\n")
    record(tmp_path, 1)
    assert [entry["n"] for entry in read_newest(tmp_path, 9)] == [1, 2, 3, 5]
    assert verify(tmp_path).faults[0] == "00000001.jsonl, line 4: is no line of an audit log"


def test_a_full_disk_stops_nothing_and_lines_not_written_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = Audit(tmp_path / "audit", SystemClock())
    log.record(CHANGED)
    full = Usage(1 << 40, 1 << 40, 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    for _ in range(3):
        log.record(CHANGED)
    assert caplog.text.count("cannot write the audit log") == 1
    monkeypatch.undo()
    log.record(CHANGED)
    log.close()
    assert [entry.get("missing") for entry in read_entries(tmp_path / "audit")] == [None, 3]
    assert verify(tmp_path / "audit").faults == ()


def test_a_write_that_the_disk_takes_half_leaves_a_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Audit(tmp_path, SystemClock())
    log.record(CHANGED)
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, line: write(descriptor, line[:20]))
    log.record(CHANGED)
    monkeypatch.undo()
    log.record(CHANGED)
    log.close()
    assert [entry.get("missing") for entry in read_entries(tmp_path)] == [None, 1]
    assert verify(tmp_path).faults == ()


def test_a_flood_without_tokens_is_counted_and_not_written_line_by_line(tmp_path: Path) -> None:
    clock = SteppingClock()
    log = Audit(tmp_path, clock)
    for _ in range(1000):
        log.record(Entry("GET", "/jobs", 401, address="10.0.0.66"))
    log.record(Entry("GET", "/jobs", 401, address="10.0.0.7"))
    log.record(CHANGED)
    assert len(list(read_entries(tmp_path))) == audit.UNAUTHORIZED + 2
    clock.seconds = audit.WINDOW_S
    log.record(CHANGED)
    log.close()
    counted = [entry for entry in read_entries(tmp_path) if "count" in entry]
    assert [(entry["address"], entry["count"]) for entry in counted] == [("10.0.0.66", 995)]
    assert verify(tmp_path).faults == ()


def test_a_flood_of_a_token_or_of_many_addresses_is_bounded_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_SOURCES", 10)
    log = Audit(tmp_path, SteppingClock())
    for number in range(100):
        log.record(Entry("GET", "/jobs", 401, address=f"10.0.0.{number}"))
        log.record(Entry("DELETE", "/jobs/x", 403, token="ben", address="10.0.0.1"))
    log.close()
    entries = list(read_entries(tmp_path))
    one_by_one = [entry for entry in entries if "count" not in entry]
    assert len([entry for entry in one_by_one if entry["token"] == "ben"]) == audit.REFUSALS
    assert len([entry for entry in one_by_one if entry["token"] is None]) < 20
    assert sum(entry.get("count", 1) for entry in entries) == 200


def test_what_is_appended_meanwhile_does_not_disturb_a_reader(tmp_path: Path) -> None:
    record(tmp_path, 2)
    (file,) = list_files(tmp_path)
    with file.open("ab") as out:
        out.write(b'{"n":3,')
    assert [entry["n"] for entry in read_entries(tmp_path)] == [1, 2]
    assert json.loads(lines_of(tmp_path)[0])["n"] == 1
