"""Backups: what is read equals what was written, and every fault is named."""

from __future__ import annotations

import gzip
import json
import tempfile
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from speck.clock import SystemClock
from speck.errors import StoreError, StoreFullError
from speck.model.values import JsonObject
from speck.store import backup as backup_module
from speck.store.backup import HeaderReader, read_backup, restore_backup, write_backup
from speck.store.leveldb import VERSION, Store
from speck.store.record_types import TABLES
from speck.store.tables import INSTALLATION, LOCATION, RESTORED
from tests.memory_fog import site_body

NOW = SystemClock().now()
OWN: JsonObject = {"uuid": "u", "generation": 7, "at": "2026-01-01T00:00:00Z"}
CHANGE: JsonObject = {
    "id": "1",
    "composition": "c",
    "job_name": None,
    "revision": 1,
    "cause": "apply",
    "by": None,
    "drop_queues": False,
    "drain_limit_s": None,
    "leave": [],
    "left_stopped": [],
    "started": "2026-01-01T00:00:00Z",
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    opened = Store.create(path, {INSTALLATION: OWN})
    yield opened
    opened.close()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "backup.gz"


def save(store: Store, file: Path) -> bytes:
    content = b"".join(write_backup(store, NOW))
    file.write_bytes(content)
    return content


def lines_of(content: bytes) -> list[bytes]:
    return gzip.decompress(content).splitlines(keepends=True)


def everything(store: Store) -> dict[str, JsonObject]:
    return {key: record for key, record in store.scan("") if not key.startswith("meta/")}


def test_a_store_in_use_can_be_restored_elsewhere(store: Store, path: Path, file: Path) -> None:
    store.write({f"n/{number}": {"text": "ü\n", "n": number} for number in range(300)})
    save(store, file)
    store.write({"n/0": None, "n/1": {"later": True}, "n/300": {}})
    restored = path.with_name("restored")
    saved = restore_backup(restored, file, NOW)
    assert len(saved.records) == 302
    assert saved.tables == {"meta": 2, "n": 300}
    assert saved.header["installation"] == "u"
    copy = Store.open(restored)
    assert everything(copy) == {f"n/{n}": {"text": "ü\n", "n": n} for n in range(300)}
    own = copy.get(INSTALLATION)
    assert own is not None
    assert own["generation"] > 7
    assert copy.get(RESTORED) is not None
    copy.close()


def test_changes_under_way_are_named(store: Store, file: Path) -> None:
    store.write(
        {
            "change/1": {**CHANGE, "state": "running"},
            "change/2": {**CHANGE, "id": "2", "state": "done"},
            "change/3": {**CHANGE, "id": "3", "state": "blocked"},
        }
    )
    content = save(store, file)
    assert [change["id"] for change in read_backup(file).under_way] == ["1", "3"]
    reader = HeaderReader()
    for at in range(0, len(content), 7):
        reader.add(content[at : at + 7])
    assert reader.header == read_backup(file).header


@pytest.mark.parametrize("version", [1, VERSION - 1, VERSION + 1])
def test_a_backup_of_another_version_is_refused_as_its_store_and_leaves_nothing(
    store: Store, path: Path, file: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    with monkeypatch.context() as other:
        other.setattr(backup_module, "VERSION", version)
        save(store, file)
    with pytest.raises(StoreError) as restored:
        restore_backup(path.with_name("restored"), file, NOW)
    assert set(path.parent.iterdir()) == {file, path}
    store.write({"meta/store": {"version": version}})
    store.close()
    with pytest.raises(StoreError) as opened:
        Store.open(path)
    (_, why), (_, same) = (str(each.value).split(": ", 1) for each in (restored, opened))
    assert why == same
    assert f"it has version {version}" in why


@pytest.mark.parametrize("key", [noun + "/a" for noun in TABLES] + [RESTORED, LOCATION])
def test_a_record_of_any_table_that_the_service_could_not_read_is_named(
    store: Store, file: Path, key: str
) -> None:
    store.write({key: {"zzz": 1}})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            backup_module, "_describe", lambda *_: {"kind": "speck-backup", "version": VERSION}
        )
        save(store, file)
    with pytest.raises(StoreError, match=f"the record {key} cannot be read: .*no such field: zzz"):
        read_backup(file)


def test_a_missing_backup_is_named(path: Path, file: Path) -> None:
    with pytest.raises(StoreError, match=f"cannot restore {file}: no such file"):
        restore_backup(path, file, NOW)


def test_a_backup_is_not_restored_over_a_store(store: Store, path: Path, file: Path) -> None:
    save(store, file)
    before = dict(store.scan(""))
    with pytest.raises(StoreError, match="that folder is not empty"):
        restore_backup(path, file, NOW)
    assert dict(store.scan("")) == before


@pytest.mark.parametrize(
    "content",
    [b"no gzip", b"{}", gzip.compress(b"7\n7\n", mtime=0), gzip.compress(b"[]\n7\n", mtime=0)],
)
def test_another_file_is_refused(content: bytes, file: Path) -> None:
    file.write_bytes(content)
    with pytest.raises(StoreError, match=r"it is damaged or incomplete: .*; take another backup"):
        read_backup(file)


def test_another_kind_of_json_is_refused(file: Path) -> None:
    file.write_bytes(gzip.compress(b'{"kind":"other"}\n{}\n'))
    with pytest.raises(StoreError, match="it is no speck backup, or its beginning is damaged"):
        read_backup(file)


Damage = Callable[[list[bytes]], list[bytes]]


def replace_in(line: int, old: bytes, new: bytes) -> Damage:
    return lambda lines: [
        each.replace(old, new) if number == line else each for number, each in enumerate(lines)
    ]


@pytest.mark.parametrize(
    ("damage", "fault"),
    [
        (lambda lines: lines[:-1], "the end is missing"),
        (lambda lines: lines[:4], "the end is missing"),
        (lambda lines: [*lines, lines[2]], "there is something after the end"),
        (lambda lines: lines[:3] + lines[4:], "the tables hold"),
        (lambda lines: [lines[0], lines[1], lines[3], lines[2], *lines[4:]], "over all lines is"),
        (replace_in(0, b'"u"', b'"w"'), "over all lines is wrong"),
        (replace_in(0, b'"version":%d' % VERSION, b'"version":"%d"' % VERSION), "holds no version"),
        (replace_in(4, b'"n":1', b'"n":2'), "line 5, after the record n/0: the checksum of the"),
        (replace_in(4, b"}", b""), "line 5, after the record n/0: it is no JSON"),
        (replace_in(4, b'"key"', b'"kez"'), "it is no record"),
        (lambda lines: [lines[0], b"[" * 100_000 + b"\n", *lines[2:]], "line 2: it is no JSON"),
        (replace_in(0, b'"under_way":[]', b'"under_way":7'), "holds no list of changes"),
    ],
)
def test_a_fault_is_named(store: Store, file: Path, damage: Damage, fault: str) -> None:
    store.write({f"n/{number}": {"n": number} for number in range(5)})
    lines = lines_of(save(store, file))
    file.write_bytes(gzip.compress(b"".join(damage(lines))))
    with pytest.raises(StoreError, match=fault):
        read_backup(file)


def test_a_record_that_the_service_could_not_read_is_named(store: Store, file: Path) -> None:
    store.write({"site/edge-a": {"name": "edge-a"}})
    save(store, file)
    with pytest.raises(StoreError, match="the record site/edge-a cannot be read"):
        read_backup(file)


LONG_LINES = {
    "a text": (b'{"kind": "', b"a", 60 << 20, b'"}\n'),
    "a line without an end": (b'{"kind": "', b"a", 63 << 20, b""),
    "values": (b'{"kind": [', b"{},", 20 << 20, b"{}]}\n"),
    "line feeds": (b"", b"\n", 60 << 20, b""),
}
"""How each begins, what it repeats and how often, and how it ends."""


@pytest.mark.parametrize(("head", "piece", "times", "tail"), LONG_LINES.values(), ids=LONG_LINES)
def test_a_small_file_of_a_long_line_is_read_in_linear_time_and_little_memory(
    file: Path, head: bytes, piece: bytes, times: int, tail: bytes
) -> None:
    file.write_bytes(gzip.compress(head + piece * times + tail, 1))
    before = time.process_time()
    tracemalloc.start()
    try:
        with pytest.raises(StoreError, match="cannot restore"):
            read_backup(file)
        assert tracemalloc.get_traced_memory()[1] < 400 << 20
    finally:
        tracemalloc.stop()
    assert time.process_time() - before < 8.0


def test_a_header_without_an_end_is_given_up() -> None:
    reader = HeaderReader()
    packed = gzip.compress(b"{" + b" " * (60 << 20), 9)
    tracemalloc.start()
    try:
        for at in range(0, len(packed), 4096):
            reader.add(packed[at : at + 4096])
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    assert reader.header == {}


def test_two_backups_in_one_file_are_refused(store: Store, file: Path) -> None:
    content = save(store, file)
    file.write_bytes(content + content)
    with pytest.raises(StoreError, match="there is something after the end"):
        read_backup(file)


def make_backup(folder: Path) -> bytes:
    """A backup of a store with records that look like real ones."""
    records: dict[str, JsonObject] = {INSTALLATION: OWN}
    records |= {f"n/{n:04d}": {"text": json.dumps(site_body("e")) * n} for n in range(40)}
    store = Store.create(folder / "store", records)
    try:
        return b"".join(write_backup(store, NOW))
    finally:
        store.close()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_backup(tmp_path_factory.mktemp("whole"))


@settings(max_examples=400)
@given(data=st.data())
def test_a_flipped_bit_or_a_cut_is_never_taken_for_the_backup(
    whole: bytes, data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "backup.gz"
        file.write_bytes(whole)
        expected = read_backup(file)
        content = bytearray(whole)
        if data.draw(st.booleans(), "cut"):
            del content[data.draw(st.integers(0, len(whole) - 1), "length") :]
        for _ in range(data.draw(st.integers(0, 2), "flips")):
            if content:
                at = data.draw(st.integers(0, len(content) - 1), "at")
                content[at] ^= 1 << data.draw(st.integers(0, 7), "bit")
        file.write_bytes(content)
        try:
            assert read_backup(file) == expected
        except StoreError as error:
            assert str(error).startswith(f"cannot restore {file}: it ")
        else:  # only what gzip ignores may differ: its time, its flags, the system's name
            assert len(content) == len(whole)
            assert content[10:] == whole[10:]


def test_a_store_that_has_no_room_is_not_begun(
    store: Store, file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write({"site/a": site_body("a"), "n/b": {"text": "x" * 1000}})
    save(store, file)
    before = sorted(tmp_path.iterdir())
    monkeypatch.setattr(backup_module, "measure_room", lambda folder: (1000, 0))
    with pytest.raises(StoreFullError, match=r"1000 are free on its disk.*nothing was written"):
        restore_backup(tmp_path / "new" / "store", file, NOW)
    assert sorted(tmp_path.iterdir()) == before
    monkeypatch.setattr(backup_module, "measure_room", lambda folder: (100_000, 0))
    restore_backup(tmp_path / "new" / "store", file, NOW)
