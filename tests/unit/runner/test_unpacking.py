"""Archives of programs: what they hold lands in their folder, or nothing does."""

from __future__ import annotations

import gzip
import io
import os
import random
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from binders.process.artifacts import judge_program
from speck.binding import Artifact, ArtifactKind
from speck.errors import PermanentError
from speck.runner.unpacking import unpack_tar

File = tuple[str, str]


def pack(archive: Path, *members: tarfile.TarInfo, mode: str = "w") -> Path:
    with tarfile.open(archive, mode) as tar:  # type: ignore[call-overload]
        for member in members:
            tar.addfile(member, io.BytesIO(b"x" * member.size))
    return archive


def member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", mode: int = 0o755
) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.mode = kind, link, mode
    info.size = 3 if kind == tarfile.REGTYPE else 0
    return info


def test_what_is_unpacked_can_be_run_by_any_user_whatever_the_umask(tmp_path: Path) -> None:
    members = (
        *(member("lib", tarfile.DIRTYPE, mode=0o700), member("lib/a.so", mode=0o4600)),
        *(member("bin/job"), member("bin/same", tarfile.LNKTYPE, "bin/job")),
        *(member("lib/a.so.1", tarfile.SYMTYPE, "a.so"), member("bin/job", mode=0o700)),
    )
    archive = pack(tmp_path / "job.tar", *members)
    before = os.umask(0o077)
    try:
        unpack_tar(archive, tmp_path / "program")
    finally:
        os.umask(before)
    program = tmp_path / "program"
    names = ("", "lib", "bin", "bin/job", "lib/a.so", "bin/same")
    modes = [(program / name).stat().st_mode & 0o7777 for name in names]
    assert modes == [0o755, 0o755, 0o755, 0o755, 0o644, 0o755]
    assert os.readlink(program / "lib/a.so.1") == "a.so"
    assert (program / "bin/job").stat().st_nlink == 1, "the later one counts"


@pytest.mark.parametrize(
    "members",
    [
        [member("../out")],
        [member("/out")],
        [member("a/../../out")],
        [member("a", tarfile.SYMTYPE, "/etc")],
        [member("a", tarfile.SYMTYPE, "..")],
        [member("b/c"), member("a", tarfile.LNKTYPE, "../outside")],
        [member("a", tarfile.SYMTYPE, "b"), member("b", tarfile.DIRTYPE), member("a/out")],
        [
            *(member("u/v", tarfile.DIRTYPE), member("u/v/w", tarfile.SYMTYPE, "../..")),
            *(member("z", tarfile.SYMTYPE, "u/v/w/.."), member("z/out", tarfile.SYMTYPE, "x")),
        ],
        [member("a", tarfile.FIFOTYPE)],
        [member("a", tarfile.CHRTYPE)],
    ],
)
def test_nothing_reaches_out_of_the_folder(tmp_path: Path, members: list[tarfile.TarInfo]) -> None:
    (tmp_path / "outside").write_text("kept")
    archive = pack(tmp_path / "evil.tar", *members)
    before = {path.name for path in tmp_path.iterdir()}
    with pytest.raises(PermanentError, match="the archive cannot be unpacked"):
        unpack_tar(archive, tmp_path / "program")
    assert {path.name for path in tmp_path.iterdir()} == {*before, "program"}
    assert (tmp_path / "outside").stat().st_nlink == 1


@pytest.mark.parametrize("packing", ["gz", "xz", "bz2"])
def test_a_damaged_archive_is_refused_wherever_it_is_damaged(tmp_path: Path, packing: str) -> None:
    content, files = pack_files(tmp_path / "whole.tar", packing)
    for at in range(0, len(content), len(content) // 60):
        turned = bytes(b ^ 0xFF for b in content[at : at + 9])
        for n, damage in enumerate((turned, b"\xff" * 200, b"\xff" * len(content))):
            damaged = tmp_path / f"{at}-{n}.tar"
            damaged.write_bytes(content[:at] + damage + content[at + len(damage) :])
            artifact = Artifact("0" * 64, damaged, ArtifactKind.ARCHIVE)
            judge_program(artifact, "bin/job")
            program = tmp_path / f"program-{at}-{n}"
            try:
                unpack_tar(damaged, program)
            except PermanentError as error:
                assert str(error).startswith("the archive cannot be unpacked: ")
            else:  # in what holds the time, the system, or the packer's name
                assert {p.name: p.read_bytes() for p in (program / "bin").iterdir()} == files


@pytest.mark.parametrize("packing", ["", "gz", "xz", "bz2"])
def test_an_archive_that_was_cut_off_is_refused_wherever_it_ends(
    tmp_path: Path, packing: str
) -> None:
    content, _ = pack_files(tmp_path / "whole.tar", packing)
    last = len(content) if packing else len(content.rstrip(b"\0"))
    for at in (*range(512, last, 512), *range(0, last, last // 30), last - 1):
        cut = tmp_path / f"{at}.tar"
        cut.write_bytes(content[:at])
        with pytest.raises(PermanentError, match="the archive cannot be unpacked: "):
            unpack_tar(cut, tmp_path / f"program-{at}")


def test_a_member_that_is_no_header_is_no_end(tmp_path: Path) -> None:
    """Its file is whole: of what follows tarfile says that nothing does."""
    archive = pack(tmp_path / "job.tar", member("bin/job"), member("bin/other"))
    content = bytearray(archive.read_bytes())
    content[2 * 512 + 10] ^= 1  # in the name of the second one
    archive.write_bytes(content)
    with pytest.raises(PermanentError, match="it is damaged or cut off: bad checksum"):
        unpack_tar(archive, tmp_path / "program")


def pack_files(archive: Path, packing: str) -> tuple[bytes, dict[str, bytes]]:
    """The bytes of an archive of noise and of text, which other damage passes, and its files."""
    text = "".join(f"line {n % 7} of {n}\n" for n in range(2000)).encode()
    files = {"job": random.Random(1).randbytes(20_000), "text": text}
    with tarfile.open(archive, f"w:{packing}") as tar:  # type: ignore[call-overload]
        for name, content in files.items():
            info = member(f"bin/{name}")
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return archive.read_bytes(), files


def header(kind: bytes, size: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo("././@PaxHeader")
    info.type, info.size = kind, size
    return info


def pack_zeros(archive: Path, *members: tarfile.TarInfo) -> Path:
    """A packed archive whose members hold zeros: of a megabyte there is a kilobyte."""
    with tarfile.open(archive, "w:gz") as tar:
        for each in members:
            with Path("/dev/zero").open("rb") as zeros:
                tar.addfile(each, zeros)
    return archive


@pytest.mark.parametrize(
    ("headers", "fault"),
    [
        ([(tarfile.XHDTYPE, 8 << 20)], "the pax header of 'bin/job' has 8388608 bytes"),
        ([(tarfile.XGLTYPE, 8 << 20)], "the global pax header of 'bin/job' has 8388608 bytes"),
        ([(tarfile.GNUTYPE_LONGNAME, 8 << 20)], "the name of 'bin/job' has 8388608 bytes"),
        ([(tarfile.GNUTYPE_LONGLINK, 2 << 20)], "the name of the link of 'bin/job' has 2097152"),
        ([(tarfile.XHDTYPE, 1 << 40)], "the pax header of '././@PaxHeader' has 1099511627776"),
        ([(tarfile.XGLTYPE, 33 << 10)] * 2, "and global ones before have more than 65536 bytes"),
        (
            [(tarfile.XHDTYPE, 10)] * 2000,
            "the pax header of '././@PaxHeader' comes after 16 others",
        ),
        ([(tarfile.GNUTYPE_SPARSE, 0)], "'././@PaxHeader' is sparse; pack the archive without"),
    ],
)
def test_a_header_that_would_be_read_into_memory_whole_is_refused(
    tmp_path: Path, headers: list[tuple[bytes, int]], fault: str
) -> None:
    """The service judges archives of anybody who may upload; a runner has 64 MB."""
    archive = tmp_path / "bomb.tar"
    cut = [header(kind, size) for kind, size in headers if size < 1 << 30]
    pack_zeros(archive, *cut, member("bin/job"))
    if not cut:
        archive.write_bytes(header(*headers[0]).tobuf(tarfile.GNU_FORMAT))
    artifact = Artifact("0" * 64, archive, ArtifactKind.ARCHIVE)
    tracemalloc.start()
    judgement = judge_program(artifact, "bin/job")
    with pytest.raises(PermanentError) as caught:
        unpack_tar(archive, tmp_path / "program")
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (judgement.fault or "").startswith("the archive cannot be read: ")
    assert fault in (judgement.fault or "")
    assert fault in str(caught.value)
    assert most < 4 << 20


def test_headers_have_a_limit_together(tmp_path: Path) -> None:
    members = (each for at in range(17) for each in (long_header(), member(f"{at}")))
    archive = pack_zeros(tmp_path / "bomb.tar", *members)
    judgement = judge_program(Artifact("0" * 64, archive, ArtifactKind.ARCHIVE), "1")
    assert judgement.fault == (
        "the archive cannot be read: the pax header of '16' and those before have more than"
        " 16777216 bytes together"
    )


def long_header() -> tarfile.TarInfo:
    return header(tarfile.XHDTYPE, 1 << 20)


def test_too_many_members_are_refused(tmp_path: Path) -> None:
    archive = tmp_path / "many.tar"
    archive.write_bytes(gzip.compress(member("lib", tarfile.DIRTYPE).tobuf() * 20_001, 1))
    judgement = judge_program(Artifact("0" * 64, archive, ArtifactKind.ARCHIVE), "1")
    assert judgement.fault == (
        "the archive cannot be read: it holds over 20000 files or 1073741824 bytes"
    )


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_are_taken_in_any_format(tmp_path: Path, form: int) -> None:
    name = f"{'deep/' * 60}jöb"
    with tarfile.open(tmp_path / "job.tar", "w", format=form, pax_headers={"comment": "x"}) as tar:
        for each in (member("first"), member(name)):
            tar.addfile(each, io.BytesIO(b"x" * each.size))
    artifact = Artifact("0" * 64, tmp_path / "job.tar", ArtifactKind.ARCHIVE)
    assert judge_program(artifact, name).fault is None
    unpack_tar(artifact.file, tmp_path / "program")
    assert (tmp_path / "program" / name).read_bytes() == b"xxx"


def test_a_zip_archive_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "job.pyz").write_bytes(b"PK\x03\x04")
    unpack_tar(tmp_path / "job.pyz", tmp_path / "program")
    assert not (tmp_path / "program").exists()
