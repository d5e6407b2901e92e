"""Zip archives that describe themselves in several ways, and what a JVM and we read of them."""

from __future__ import annotations

import hashlib
import io
import struct
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from binders.flink.artifacts import _CLASSES, class_fault
from speck.binding import Artifact
from speck.model.engines import ArtifactKind
from speck.spec.artifacts import artifact_fault
from speck.spec.zip_directory import MAX_ENTRIES, read_names

LOCATOR, END64 = b"PK\x06\x07", b"PK\x06\x06"


def entry(name: bytes = b"a/B.class", extra: bytes = b"", comment: bytes = b"") -> bytes:
    lengths = len(name), len(extra), len(comment)
    fixed = struct.pack("<4s6H3L5H2L", b"PK\x01\x02", *[0] * 9, *lengths, 0, 0, 0, 0)
    return fixed + name + extra + comment


def end(entries: int, length: int, offset: int, comment: bytes = b"") -> bytes:
    counts = min(entries, 0xFFFF)
    return (
        struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, counts, counts, length, offset, len(comment))
        + comment
    )


def end64(entries: int, length: int, offset: int) -> bytes:
    return struct.pack("<4sQ2H2L4Q", END64, 44, 45, 45, 0, 0, entries, entries, length, offset)


def locator(offset: int) -> bytes:
    return struct.pack("<4sLQL", LOCATOR, 0, offset, 1)


def with_decoy_record() -> bytes:
    """The locator names a record of one entry; the one directly before it names very many."""
    names = entry(b"") * (MAX_ENTRIES + 50_000)
    decoy = end64(1, 46, 0)
    large = end64(MAX_ENTRIES + 50_000, len(names), len(decoy))
    head = b"PK" + decoy[2:]
    return head + names + large + locator(0) + end(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF)


def with_low_count(count: int = 1) -> bytes:
    names = entry(b"") * (MAX_ENTRIES + 50_000)
    return names + end(count, len(names), 0)


def normal(comment: bytes = b"") -> bytes:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        archive.writestr("a/B.class", b"x")
        archive.writestr("META-INF/x.class", b"")
        archive.comment = comment
    return content.getvalue()


def locator_elsewhere() -> bytes:
    names = entry()
    record = end64(1, len(names), 0)
    return names + record + locator(7) + end(1, len(names), 0)


def short_record_differs() -> bytes:
    names = entry() * 2
    record = end64(2, len(names), 0)
    return names + record + locator(len(names)) + end(1, len(names), 0)


HOSTILE: dict[str, Callable[[], bytes]] = {
    "a decoy zip64 record": with_decoy_record,
    "a directory with more entries than are named": with_low_count,
    "no entry is named": lambda: with_low_count(0),
    "a locator of another place": locator_elsewhere,
    "two records that differ": short_record_differs,
    "zip64 with a huge count": lambda: (
        entry() + end64(1 << 60, 55, 0) + locator(55) + end(0xFFFF, 55, 0)
    ),
    "zip64 with a huge directory": lambda: (
        entry() + end64(1, 1 << 60, 0) + locator(55) + end(1, 0xFFFFFFFF, 0)
    ),
    "zip64 record of another version": lambda: (
        entry() + end64(1, 55, 0).replace(b"\x2c", b"\x2d", 1) + locator(55) + end(1, 55, 0)
    ),
    "a locator and nothing before it": lambda: b"PK" + locator(0) + end(0, 0, 0),
    "a cut end record in the comment": lambda: normal(b"PK\x05\x06"),
    "a comment that is too short": lambda: normal(b"comment")[:-1],
    "something behind the end": lambda: normal() + b"x",
    "an end record alone, of many": lambda: end(5, 0, 0),
    "a directory that is too short": lambda: entry() + end(2, 55, 0),
    "a directory that is too long": lambda: entry() * 2 + end(1, 110, 0),
    "an entry that reaches beyond": lambda: entry(b"x" * 100)[:60] + end(1, 60, 0),
    "an offset behind the directory": lambda: entry() + end(1, 55, 1),
    "one of several disks": lambda: (
        entry() + struct.pack("<4s4H2LH", b"PK\x05\x06", 1, 0, 1, 2, 55, 0, 0)
    ),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_an_archive_that_is_ambiguous_or_too_large_is_refused(tmp_path: Path, name: str) -> None:
    content = HOSTILE[name]()
    if not content.startswith(b"PK"):
        content = b"PK" + content
    file = tmp_path / "a.jar"
    file.write_bytes(content)
    tracemalloc.start()
    try:
        assert artifact_fault(file) is not None
        fault = class_fault(
            Artifact(hashlib.sha256(content).hexdigest(), file, ArtifactKind.JAR), "a.B"
        )
        assert fault is not None
        assert fault.startswith("the file is no jar: ")
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


GOOD: dict[str, Callable[[], bytes]] = {
    "as the library writes it": normal,
    "with a comment": lambda: normal(b"a comment"),
    "behind a shell script": lambda: b"PK #!/bin/sh\nexec java -jar $0\n" + normal(),
    "behind another archive": lambda: normal() + b"PK\x05\x06" + normal(),
    "zip64": lambda: entry() + end64(1, 55, 0) + locator(55) + end(0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF),
    "zip64 behind a script": lambda: (
        b"PK script" + entry() + end64(1, 55, 0) + locator(55) + end(1, 55, 0)
    ),
    "with extra fields": lambda: (
        entry(extra=b"e" * 9, comment=b"c" * 7) * 2 + end(2, 2 * (55 + 16), 0)
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_usual_archives_are_read(tmp_path: Path, name: str) -> None:
    content = GOOD[name]()
    file = tmp_path / "a.jar"
    file.write_bytes(content)
    assert artifact_fault(file) is None
    jar = Artifact(hashlib.sha256(content).hexdigest(), file, ArtifactKind.JAR)
    assert class_fault(jar, "a.B") is None
    assert "holds no class a.C" in str(class_fault(jar, "a.C"))


def test_an_end_record_in_the_comment_is_the_end_as_it_is_for_a_jvm(tmp_path: Path) -> None:
    file = tmp_path / "a.jar"
    file.write_bytes(normal(end(0, 0, 0)))
    assert artifact_fault(file) == "it is an empty archive"


def test_an_empty_archive_is_no_artifact(tmp_path: Path) -> None:
    file = tmp_path / "a.jar"
    zipfile.ZipFile(file, "w").close()
    assert artifact_fault(file) == "it is an empty archive"


NAMES = st.lists(st.from_regex(r"[a-zA-Z0-9é/_$.-]{1,40}", fullmatch=True), unique=True)


@given(NAMES, st.binary(max_size=50), st.binary(max_size=50))
@settings(max_examples=60)
def test_it_reads_what_the_library_reads_or_refuses(
    tmp_path_factory: pytest.TempPathFactory, names: list[str], before: bytes, comment: bytes
) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name in names:
            archive.writestr(name, b"")
        archive.comment = comment
    file = tmp_path_factory.mktemp("zip") / "a.zip"
    file.write_bytes(before + content.getvalue())
    if b"PK\x05\x06" in comment:
        return
    assert [name.decode() for name in read_names(file)] == names


@given(st.integers(0, 10_000), st.binary(max_size=4))
@settings(max_examples=200)
def test_a_damaged_archive_is_refused_or_read(
    tmp_path_factory: pytest.TempPathFactory, at: int, patch: bytes
) -> None:
    content = bytearray(entry() * 3 + end64(3, 165, 0) + locator(165) + end(3, 165, 0))
    at %= len(content)
    content[at : at + len(patch)] = patch
    file = tmp_path_factory.mktemp("zip") / "a.zip"
    file.write_bytes(content)
    try:
        assert len(list(read_names(file))) <= 3
    except ValueError as error:
        assert str(error)


def test_classes_are_remembered_within_a_number_of_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = b"".join(entry(b"p/C%06d.class" % number) for number in range(20_000))
    for number in range(20):
        file = tmp_path / f"{number}.jar"
        file.write_bytes(names + end(20_000, len(names), 0))
        sha256 = hashlib.sha256(f"remembered {number}".encode()).hexdigest()
        assert class_fault(Artifact(sha256, file, ArtifactKind.JAR), "p.C000007") is None
    assert _CLASSES.bytes <= 32 << 20

    def read(file: Path) -> None:
        raise AssertionError("read again")

    monkeypatch.setattr("binders.flink.artifacts.read_names", read)
    assert class_fault(Artifact(sha256, file, ArtifactKind.JAR), "p.C000007") is None
