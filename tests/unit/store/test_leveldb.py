"""The store on a real LevelDB."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import plyvel
import pytest

from speck.clock import SystemClock
from speck.errors import StoreError, StoreFullError, StoreWriteError
from speck.store import leveldb as store_module
from speck.store.backup import write_backup
from speck.store.leveldb import VERSION, Store

WRITER = """
import sys
from pathlib import Path
from speck.store.leveldb import Store

store = Store.open(Path(sys.argv[1]))
number = int(sys.argv[2])
while True:
    number += 1
    store.write({f"n/{number:09d}": {"n": number}, "newest": {"n": number}})
    print(number, flush=True)
"""
HOLDER = """
import sys
from pathlib import Path
from speck.store.leveldb import Store

store = Store.open(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""
FILLER = """
import json, resource, sys
from pathlib import Path
from speck.errors import StoreError
from speck.store.leveldb import Store

def allow(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

store = Store.open(Path(sys.argv[1]))
allow(int(sys.argv[2]))
written, said = [], []
for number in range(200):
    try:
        store.write({f"n/{number:04d}": {"text": "x" * 300}})
        written.append(number)
    except StoreError as error:
        said.append([type(error).__name__, str(error)])
        allow(resource.RLIM_INFINITY)
store.close()
print(json.dumps([written, said]))
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = Store.create(path, {"meta/installation": {"uuid": "u"}})
    yield opened
    opened.close()


def everything(store: Store) -> dict[str, object]:
    return dict(store.scan(""))


def python(program: str, *args: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program, *args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def flip_a_byte_of(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 10] ^= 1
    file.write_bytes(content)


def test_what_was_written_is_there_after_it_was_closed(store: Store, path: Path) -> None:
    store.write({"a": {"x": 1}, "b": {"ü": [True, None]}})
    store.write({"a": None, "c": {}})
    store.close()
    again = Store.open(path)
    assert again.get("a") is None
    assert again.get("b") == {"ü": [True, None]}
    assert again.get("c") == {}
    again.close()


def test_a_batch_that_cannot_be_written_leaves_nothing_of_it(store: Store) -> None:
    before = everything(store)
    with pytest.raises(TypeError):
        store.write({"a": {"x": 1}, "b": {"x": object()}})
    assert everything(store) == before


def test_scan_gives_the_keys_of_a_prefix_in_order_and_goes_on_after_one(store: Store) -> None:
    store.write({key: {"k": key} for key in ("p/2", "p/1", "p/3", "q/1", "o/9")})
    assert [key for key, _ in store.scan("p/")] == ["p/1", "p/2", "p/3"]
    assert [key for key, _ in store.scan("p/", after="p/1")] == ["p/2", "p/3"]
    assert store.last("p/") == ("p/3", {"k": "p/3"})
    assert store.last("r/") is None


def test_a_scan_is_not_disturbed_by_writes(store: Store) -> None:
    store.write({"p/1": {}, "p/2": {}})
    rows = store.scan("p/")
    next(rows)
    store.write({"p/2": None, "p/3": {}})
    assert [key for key, _ in rows] == ["p/2"]


def test_kill_9_of_a_writing_process_loses_no_synced_write(store: Store, path: Path) -> None:
    store.close()
    newest = 0
    chance = random.Random(1)
    for _ in range(20):
        writer = python(WRITER, str(path), str(newest))
        assert writer.stdout is not None
        for _ in range(chance.randint(1, 60)):
            newest = int(writer.stdout.readline())
        writer.kill()
        rest, errors = writer.communicate()
        assert errors == ""
        newest = int(rest.split()[-1]) if rest.endswith("\n") else newest
        opened = Store.open(path)
        numbers = [record["n"] for _, record in opened.scan("n/")]
        last = opened.get("newest")
        opened.close()
        assert numbers[: len(numbers)] == list(range(1, len(numbers) + 1))
        assert len(numbers) >= newest
        assert last == {"n": len(numbers)}, "half of a batch was written"
        newest = len(numbers)


@pytest.mark.parametrize("room", [1, 400, 1000, 5000, 33_000, 40_000])
def test_after_a_disk_was_full_nothing_that_was_written_is_lost(
    store: Store, path: Path, room: int
) -> None:
    """LevelDB takes writes behind one that failed in the middle; no reader finds them there."""
    store.close()
    out, errors = python(FILLER, str(path), str(room)).communicate()
    assert errors == ""
    written, refusals = json.loads(out)
    assert [kind for kind, _ in refusals] == ["StoreFullError"] * (200 - len(written))
    assert len({words for _, words in refusals}) == 1
    assert f"cannot write to the store at {path}: " in refusals[0][1]
    assert refusals[0][1].endswith("free space on that disk, then speck goes on by itself")
    again = Store.open(path)
    numbers = [int(key.split("/")[1]) for key, _ in again.scan("n/")]
    assert numbers in (written, [*written, len(written)])
    again.write({"n/9999": {}})
    again.close()


def test_whoever_holds_the_store_is_told_once_that_it_takes_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise plyvel.IOError(b"IO error: 000003.log: Input/output error")

    errors: list[StoreError] = []
    store = Store.create(tmp_path / "sick", {}, errors.append)
    store.write({"a": {"n": 1}})
    with monkeypatch.context() as sick:
        sick.setattr(store, "_put", refuse)
        with pytest.raises(StoreWriteError, match="Input/output error; check that disk"):
            store.write({"a": {"n": 2}})
    for attempt in (lambda: store.write({"a": {"n": 3}}), store.check_writable):
        with pytest.raises(StoreWriteError, match="Input/output error"):
            attempt()
    assert len(errors) == 1
    assert store.get("a") == {"n": 1}, "it can still be read"
    store.close()


def test_what_cannot_be_encoded_does_not_close_the_store(store: Store) -> None:
    with pytest.raises(TypeError):
        store.write({"a": {"x": object()}})
    store.write({"a": {}})
    store.check_writable()


def test_a_disk_with_too_little_room_is_refused_before_anything_is_begun(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Usage(NamedTuple):
        total: int
        used: int
        free: int

    room = Usage(100 * 2**20, 0, 5 * 2**20 - 1)
    monkeypatch.setattr(store_module.shutil, "disk_usage", lambda _: room)
    expected = f"{room.free} bytes are free on its disk; free at least {5 * 2**20} bytes"
    with pytest.raises(StoreFullError, match=expected):
        store.check_writable()
    store.write({"a": {}})  # what is under way may use the rest
    store.close()
    with pytest.raises(StoreFullError, match=expected):
        Store.open(path)
    room = Usage(100 * 2**20, 0, 5 * 2**20)
    Store.open(path).close()


def test_a_second_process_is_refused_with_the_reason(store: Store, path: Path) -> None:
    store.close()
    holder = python(HOLDER, str(path))
    assert holder.stdout is not None and holder.stdout.readline() == "held\n"
    with pytest.raises(StoreError) as error:
        Store.open(path)
    assert str(error.value) == (
        f"cannot open the store at {path}: another speck holds it; stop that one first"
    )
    holder.communicate("")
    Store.open(path).close()


def test_a_second_opening_in_this_process_does_not_let_others_in(store: Store, path: Path) -> None:
    with pytest.raises(StoreError, match="another speck holds it"):
        Store.open(path)
    other = python(HOLDER, str(path))
    _, output = other.communicate("")
    assert "another speck holds it" in output


def test_a_missing_current_file_is_refused_and_never_an_empty_store(
    store: Store, path: Path
) -> None:
    store.close()
    (path / "CURRENT").unlink()
    with pytest.raises(StoreError) as error:
        Store.open(path)
    assert str(error.value) == (
        f"cannot open the store at {path}: no CURRENT file there; restore a backup with"
        " `speck restore`, or name an empty folder to begin anew"
    )
    assert Store.exists(path)
    with pytest.raises(StoreError, match="that folder is not empty"):
        Store.create(path, {})


def test_a_database_without_the_first_record_is_refused(store: Store, path: Path) -> None:
    store.write({"meta/store": None})
    store.close()
    with pytest.raises(StoreError, match=r"its first record is missing; restore a backup"):
        Store.open(path)


def test_a_flipped_byte_in_the_log_is_an_error(store: Store, path: Path) -> None:
    for number in range(200):
        store.write({f"n/{number}": {"text": "x" * 50}})
    store.close()
    flip_a_byte_of(next(path.glob("*.log")))
    with pytest.raises(StoreError, match=r"^cannot open the store at .*Corruption.*restore a b"):
        Store.open(path)


def test_a_flipped_byte_in_a_table_is_an_error_not_another_value(store: Store, path: Path) -> None:
    chance = random.Random(1)
    store.write({f"n/{number:04d}": {"text": chance.randbytes(50).hex()} for number in range(500)})
    store.compact()
    store.close()
    flip_a_byte_of(next(path.glob("*.ldb")))
    with pytest.raises(
        StoreError, match=r"cannot read the store at .*checksum.*; restore a backup"
    ):
        Store.open(path)


@pytest.mark.parametrize("kind", ["CURRENT", "MANIFEST-*", "*.log", "*.ldb"])
@pytest.mark.parametrize("flips", [100, pytest.param(5000, marks=pytest.mark.long)])
def test_no_flipped_bit_in_any_file_drops_or_changes_a_record(
    store: Store, path: Path, kind: str, flips: int
) -> None:
    """LevelDB drops what follows a damaged length in its log, even with paranoid checks."""
    written = [{f"n/{n:03d}": {"text": "x" * (n * 13 % 200)}} for n in range(120)]
    for record in written[:60]:
        store.write(record)
    store.compact()
    for record in written[60:]:
        store.write(record)
    before = everything(store)
    store.close()
    file = max(path.glob(kind), key=lambda it: it.stat().st_size)
    content = file.read_bytes()
    chance = random.Random(flips)
    reports = 0
    for at in chance.choices(range(len(content)), k=flips):
        damaged = bytearray(content)
        damaged[at] ^= 1 << chance.randrange(8)
        copy = path.with_name("copy")
        shutil.copytree(path, copy)
        (copy / file.name).write_bytes(damaged)
        try:
            opened = Store.open(copy)
            assert everything(opened) == before, f"byte {at} of {file.name}"
            opened.close()
        except StoreError as error:
            reports += 1
            assert "restore a backup with `speck restore`" in str(error)
        shutil.rmtree(copy)
    assert reports > flips / 2


def test_a_closed_store_says_so(store: Store, path: Path) -> None:
    store.write({"a": {"n": 1}})
    store.close()
    store.close()
    with pytest.raises(StoreError, match="cannot read the store"):
        store.get("a")
    with pytest.raises(StoreError, match="cannot write to the store"):
        store.write({"a": {}})
    again = Store.open(path)  # its lock is free
    assert again.get("a") == {"n": 1}
    again.close()


def test_a_store_can_be_closed_under_threads_that_use_it(path: Path) -> None:
    ended: list[str] = []

    def use(store: Store) -> None:
        try:
            while True:
                store.write({"a": {}})
                list(store.scan(""))
                b"".join(write_backup(store, SystemClock().now()))
        except StoreError as error:
            ended.append(str(error))

    for number in range(10):
        store = Store.create(path.with_name(f"store-{number}"), {f"n/{n}": {} for n in range(50)})
        threads = [threading.Thread(target=use, args=(store,)) for _ in range(4)]
        for thread in threads:
            thread.start()
        store.close()
        for thread in threads:
            thread.join()
    assert len(ended) == 40


def test_a_store_of_a_newer_speck_is_refused(
    store: Store, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write({"meta/store": {"version": VERSION + 1}})
    store.close()
    with pytest.raises(StoreError) as error:
        Store.open(path)
    assert str(error.value) == (
        f"cannot use the store at {path}: it has version {VERSION + 1}, this speck knows {VERSION};"
        " use a newer speck"
    )
    monkeypatch.setattr(store_module, "VERSION", VERSION + 1)
    Store.open(path).close()


@pytest.mark.parametrize("version", range(1, VERSION))
def test_a_store_from_before_the_first_release_is_refused(
    store: Store, path: Path, version: int
) -> None:
    store.write({"meta/store": {"version": version}})
    store.close()
    with pytest.raises(StoreError) as error:
        Store.open(path)
    assert str(error.value) == (
        f"cannot use the store at {path}: it has version {version}, from before the first release,"
        " which this speck cannot read; use the speck that wrote it, or start with another"
        " SPECK_HOME"
    )


def test_a_creation_that_fails_leaves_nothing(path: Path) -> None:
    with pytest.raises(TypeError):
        Store.create(path, {"a": {"x": object()}})
    assert list(path.parent.iterdir()) == []
