"""The audit log."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from speck.clock import SystemClock
from speck.errors import InvalidError
from speck.store import audit, audit_log
from speck.store.audit import Audit, Entry
from speck.store.audit_intents import Intents
from speck.store.audit_log import Seal, hash_line, list_files, read_entries, read_newest, verify
from tests.waiting import wait_for


class SteppingClock(SystemClock):
    """Its monotonic time is set by the test."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


CHANGED = Entry("POST", "/compositions/a", 202, token="ana", address="10.0.0.1")


def lines_of(folder: Path) -> list[bytes]:
    return [line for file in list_files(folder) for line in file.read_bytes().splitlines(True)]


def record(folder: Path, count: int, *, file_bytes: int = audit.FILE_BYTES) -> None:
    log = Audit(folder, SystemClock(), file_bytes)
    for _ in range(count):
        log.record(CHANGED)
    log.close()


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


class Usage(NamedTuple):
    total: int
    used: int
    free: int


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


# -- the end of the chain -----------------------------------------------------------------


class Keeper:
    """A store that keeps the seal."""

    seal: Seal | None = None

    def load(self) -> Seal | None:
        return self.seal

    def save(self, seal: Seal) -> None:
        self.seal = seal


def record_sealed(folder: Path, keeper: Keeper, count: int, **more: Any) -> Audit:
    log = Audit(folder, SystemClock(), keeper=keeper, **more)
    for _ in range(count):
        log.record(CHANGED)
    return log


def empty(file: Path) -> None:
    file.write_bytes(b"")


def delete(file: Path) -> None:
    file.unlink()


def cut_off(file: Path) -> None:
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-1]))


def alter_last(file: Path) -> None:
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join([*lines[:-1], lines[-1].replace(b"ana", b"eve")]))


def append_forged(file: Path) -> None:
    last = file.read_bytes().splitlines(keepends=True)[-1]
    forged = {**json.loads(last), "n": json.loads(last)["n"] + 1, "token": "eve"}
    forged["previous"] = hash_line(last)
    with file.open("ab") as out:
        out.write(json.dumps(forged, separators=(",", ":")).encode() + b"\n")


def append_without_code(file: Path) -> None:
    last = file.read_bytes().splitlines(keepends=True)[-1]
    forged = {"n": json.loads(last)["n"] + 1, "token": "eve", "previous": hash_line(last)}
    with file.open("ab") as out:
        out.write(json.dumps(forged).encode() + b"\n")


TAMPERING = [empty, delete, cut_off, alter_last, append_forged, append_without_code]


@pytest.mark.parametrize("tamper", TAMPERING)
def test_the_store_closes_the_end_of_the_chain(tmp_path: Path, tamper: Any) -> None:
    folder, keeper = tmp_path / "audit", Keeper()
    record_sealed(folder, keeper, 5).close()
    assert verify(folder, seal=keeper.seal).faults == ()
    (file,) = list_files(folder)
    tamper(file)
    assert verify(folder, seal=keeper.seal).faults
    record_sealed(folder, keeper, 2).close()  # a start goes on, and hides nothing
    assert verify(folder, seal=keeper.seal).faults
    assert read_newest(folder, 2)[0]["n"] >= 6


def test_what_a_killed_process_wrote_since_its_last_sync_is_no_fault(tmp_path: Path) -> None:
    folder, keeper = tmp_path / "audit", Keeper()
    record_sealed(folder, keeper, 3).close()
    record_sealed(folder, keeper, 3)  # neither closed nor synced
    assert keeper.seal is not None and keeper.seal.n == 3
    assert verify(folder, seal=keeper.seal).faults == ()
    record_sealed(folder, keeper, 1).close()
    assert verify(folder, seal=keeper.seal).faults == ()
    assert keeper.seal.n == 7


def test_a_log_from_before_the_seal_is_continued(tmp_path: Path) -> None:
    folder, keeper = tmp_path / "audit", Keeper()
    record(folder, 3)
    record_sealed(folder, keeper, 3, file_bytes=500).close()
    assert verify(folder, seal=keeper.seal).faults == ()
    assert keeper.seal is not None and (keeper.seal.since, keeper.seal.n) == (4, 6)


def test_the_seal_is_saved_soon_after_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "SYNC_S", 0.01)
    keeper = Keeper()
    log = record_sealed(tmp_path / "audit", keeper, 3)
    wait_for(lambda: keeper.seal is not None and keeper.seal.n == 3)
    log.close()


# -- acts that were cut short -------------------------------------------------------------


def test_an_act_without_a_line_is_reported_at_the_next_start(tmp_path: Path) -> None:
    folder, clock = tmp_path / "audit", SystemClock()
    log = Audit(folder, clock)
    acts = [
        Entry("POST", f"/tokens/{n}", 0, token="ana", address="::1", detail={"request": f"r{n}"})
        for n in range(4)
    ]
    intents = [log.begin(act) for act in acts]
    log.name(intents[2], "/tokens/later-known")
    log.record(replace(acts[1], outcome=201), intents[1])
    log.record(replace(acts[3], outcome=409), intents[3])
    later = Audit(folder, clock)  # the first was killed
    later.report_unfinished()
    later.close()
    entries = list(read_entries(folder))
    assert [(e["object"], e["outcome"]) for e in entries] == [
        ("/tokens/1", 201),
        ("/tokens/3", 409),
        ("/tokens/0", "unknown"),
        ("/tokens/later-known", "unknown"),
    ]
    assert entries[2]["token"] == "ana" and entries[2]["request"] == "r0" and entries[2]["began"]
    again = Audit(folder, clock)
    again.report_unfinished()
    again.close()
    assert len(list(read_entries(folder))) == 4


def test_a_process_that_is_killed_between_line_and_slot_reports_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    act = replace(CHANGED, detail={"request": "r1"})
    log = Audit(tmp_path / "audit", SystemClock())
    log.record(act)  # of an earlier request that chose the same id
    intent = log.begin(act)
    second = log.begin(act)
    monkeypatch.setattr(Intents, "remove", lambda self, slot: None)
    log.record(act, intent)
    monkeypatch.undo()
    assert second is not None
    later = Audit(tmp_path / "audit", SystemClock())
    later.report_unfinished()
    later.close()
    assert [e["outcome"] for e in read_entries(tmp_path / "audit")] == [202, 202]


@pytest.mark.parametrize(
    "spoilt",
    [
        b'{"token":"ana","verb":"POST","request":"r1"}',
        b'{"n":"7","token":"ana","verb":"POST","request":"r1"}',
        b'{"n":null,"token":"ana","verb":"POST","request":"r1"}',
    ],
    ids=["no number", "a text", "null"],
)
def test_a_spoilt_line_hides_no_act_without_a_line(spoilt: bytes, tmp_path: Path) -> None:
    folder = tmp_path / "audit"
    log = Audit(folder, SystemClock())
    log.record(CHANGED)
    log.begin(replace(CHANGED, detail={"request": "r1"}))
    with (folder / "00000001.jsonl").open("ab") as lines:
        lines.write(spoilt + b"\n")
    later = Audit(folder, SystemClock())
    later.report_unfinished()
    later.close()
    assert [e["outcome"] for e in read_entries(folder) if e.get("outcome")] == [202, "unknown"]


def test_an_act_that_no_disk_takes_the_line_of_is_reported_at_a_later_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "audit"
    log = Audit(folder, SystemClock())
    log.record(CHANGED)
    log.begin(replace(CHANGED, detail={"request": "r1"}))
    with monkeypatch.context() as full:
        full.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 1 << 40, 1))
        second = Audit(folder, SystemClock())
        second.report_unfinished()
        second.close()
    assert [e["outcome"] for e in read_entries(folder)] == [202]
    third = Audit(folder, SystemClock())
    third.report_unfinished()
    third.close()
    assert [e["outcome"] for e in read_entries(folder)] == [202, "unknown"]


@pytest.mark.parametrize("content", [b"\xff" * 5000, b"[1]".ljust(1024) + b'{"n": 1}', b"{"])
def test_spoilt_slots_stop_no_start(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "under-way").write_bytes(content)
    log = Audit(tmp_path, SystemClock())
    log.report_unfinished()
    log.record(CHANGED)
    log.close()
    assert verify(tmp_path).faults == ()


def test_what_is_kept_for_a_later_start_outlasts_a_kill_at_any_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read() -> list[object]:
        return [fields["n"] for fields in Intents(tmp_path / "slots").read_left()]

    intents = Intents(tmp_path / "slots")
    for n in range(4):
        intents.add({"n": n})
    intents.close()
    states: list[list[object]] = []
    for name in ("pwrite", "truncate", "ftruncate"):
        original = getattr(os, name)

        def note(*args: object, original: Callable[..., int] = original) -> int:
            result = original(*args)
            states.append(read())
            return result

        monkeypatch.setattr(os, name, note)
    later = Intents(tmp_path / "slots")
    later.keep([{"n": 1}, {"n": 3}])
    assert states and all({1, 3} <= set(state) for state in states)
    assert read() == [1, 3]
    assert later.add({"n": 5}) == 2
    assert read() == [1, 3, 5]
    later.keep([])
    assert read() == []


def test_slots_are_used_again_and_a_full_disk_stops_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Audit(tmp_path, SystemClock())
    for _ in range(100):
        log.record(CHANGED, log.begin(replace(CHANGED, object="/x" * 4000)))
    assert (tmp_path / "under-way").stat().st_size == 1024

    def fail(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "pwrite", fail)
    intent = log.begin(CHANGED)
    assert intent is None
    log.record(CHANGED, intent)
    log.close()
    assert len(list(read_entries(tmp_path))) == 101
