"""Archives of programs: what they hold lands in their folder, or nothing does."""

from __future__ import annotations

import io
import os
import random
import tarfile
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
    info = member("bin/job")
    info.size = 20_000
    whole = tmp_path / "whole.tar"
    with tarfile.open(whole, f"w:{packing}") as tar:  # type: ignore[call-overload]
        tar.addfile(info, io.BytesIO(random.Random(1).randbytes(info.size)))
    content = whole.read_bytes()
    for at in range(0, len(content), len(content) // 60):
        damaged = tmp_path / f"{at}.tar"
        damaged.write_bytes(
            content[:at] + bytes(b ^ 0xFF for b in content[at : at + 9]) + content[at + 9 :]
        )
        artifact = Artifact("0" * 64, damaged, ArtifactKind.ARCHIVE)
        judge_program(artifact, "bin/job")
        try:
            unpack_tar(damaged, tmp_path / f"program-{at}")
        except PermanentError as error:
            assert str(error).startswith("the archive cannot be unpacked: ")


def test_a_zip_archive_is_left_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "job.pyz").write_bytes(b"PK\x03\x04")
    unpack_tar(tmp_path / "job.pyz", tmp_path / "program")
    assert not (tmp_path / "program").exists()
