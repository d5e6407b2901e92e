"""The end of the audit log's chain, and acts without a line: what the store keeps of them."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from speck.clock import SystemClock
from speck.store import audit
from speck.store.audit import Audit, Entry
from speck.store.audit_intents import Intents
from speck.store.audit_log import Seal, hash_line, list_files, read_entries, read_newest, verify
from tests.unit.store.audit_lines import CHANGED, Usage, record
from tests.waiting import wait_for


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
