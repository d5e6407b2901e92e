"""Jars are found below their folders only, and named by their content."""

from __future__ import annotations

import hashlib
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from speck.errors import InvalidError, NotFoundError, SpeckError
from speck.spec.job_files import JobFile, JobFileFinder


class Later:
    """A clock by which every file of a test was written long ago."""

    def __init__(self, ahead: timedelta = timedelta(hours=1)) -> None:
        self._ahead = ahead

    def now(self) -> datetime:
        return datetime.now(UTC) + self._ahead

    def monotonic(self) -> float:
        raise NotImplementedError

    def wait(self, seconds: float) -> None:
        raise NotImplementedError

    def new_id(self) -> str:
        raise NotImplementedError


def finder(*folders: Path, clock: Later | None = None) -> JobFileFinder:
    return JobFileFinder(folders, lambda sha256: None, clock or Later())


def refusal(find: JobFileFinder, path: str) -> SpeckError:
    with pytest.raises(SpeckError) as error:
        find(path)
    return error.value


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "jars"
    path.mkdir()
    (path / "a.jar").write_bytes(b"one")
    return path


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_relative_and_absolute_paths(folder: Path, tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.mkdir()
    find = finder(empty, folder)
    jar = JobFile(sha256(b"one"), folder.resolve() / "a.jar")
    assert find("a.jar") == jar
    assert find(str(folder / "a.jar")) == jar
    assert find("../jars/a.jar") == jar


def test_a_missing_jar(folder: Path) -> None:
    error = refusal(finder(folder), "b.jar")
    assert isinstance(error, NotFoundError)
    assert str(error) == f"cannot find the artifact b.jar in the folders of --jars ({folder})"


@pytest.mark.parametrize("path", ["x" * 4000, "x/" * 2000 + "a.jar", "/" * 4000, "\0" + "x" * 4000])
def test_a_refusal_shows_no_more_than_the_ends_of_a_path(folder: Path, path: str) -> None:
    assert len(str(refusal(finder(folder), path))) < 300


def test_a_folder_is_no_jar(folder: Path) -> None:
    (folder / "sub").mkdir()
    assert isinstance(refusal(finder(folder), "sub"), NotFoundError)
    assert isinstance(refusal(finder(folder), "."), NotFoundError)


def test_a_pipe_is_no_jar(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    assert isinstance(refusal(finder(folder), "pipe"), NotFoundError)


@pytest.mark.parametrize("path", ["/etc/hostname", "../outside.jar", "link.jar", "deep/x.jar"])
def test_outside_the_folders(folder: Path, tmp_path: Path, path: str) -> None:
    outside = tmp_path / "outside.jar"
    outside.write_bytes(b"x")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.jar").write_bytes(b"x")
    (folder / "link.jar").symlink_to(outside)
    (folder / "deep").symlink_to(tmp_path / "elsewhere")
    error = refusal(finder(folder), path)
    assert isinstance(error, InvalidError)
    assert (
        str(error)
        == f"cannot use the artifact {path}: it lies outside the folders of --jars ({folder})"
    )


def test_a_neighbour_with_the_same_beginning_is_outside(folder: Path, tmp_path: Path) -> None:
    other = tmp_path / "jars-of-others"
    other.mkdir()
    (other / "a.jar").write_bytes(b"x")
    assert isinstance(refusal(finder(folder), str(other / "a.jar")), InvalidError)


def test_no_folder_is_configured() -> None:
    assert str(refusal(finder(), "a.jar")) == (
        "cannot use the artifact a.jar: it lies outside the folders of --jars (none is configured)"
    )


def test_links_that_stay_inside_are_followed(folder: Path, tmp_path: Path) -> None:
    (folder / "latest.jar").symlink_to("a.jar")
    (tmp_path / "shortcut").symlink_to(folder)
    assert finder(folder)("latest.jar").file == folder.resolve() / "a.jar"
    assert finder(tmp_path / "shortcut")("a.jar").file == folder.resolve() / "a.jar"


def test_a_loop_of_links_is_refused(folder: Path) -> None:
    (folder / "loop").symlink_to("loop")
    assert str(refusal(finder(folder), "loop/a.jar")).startswith("cannot ")


def test_a_name_that_no_file_can_have_is_refused(folder: Path) -> None:
    assert str(refusal(finder(folder), "a\0b")).startswith("cannot read the artifact ")


def test_artifacts(tmp_path: Path) -> None:
    stored = tmp_path / "stored"
    stored.write_bytes(b"x")
    digest = sha256(b"x")
    find = JobFileFinder([], {digest: stored}.get, Later())
    assert find(f"artifact:{digest}") == JobFile(digest, stored)
    other = "0" * 64
    error = refusal(find, f"artifact:{other}")
    assert isinstance(error, NotFoundError)
    assert str(error) == (
        f"cannot find the artifact {other}; send it with `speck artifacts push FILE`"
    )


def test_the_hash_follows_the_content(folder: Path) -> None:
    find = finder(folder)
    assert find("a.jar").sha256 == sha256(b"one")
    (folder / "a.jar").write_bytes(b"two")
    os.utime(folder / "a.jar", ns=(1, 1))
    assert find("a.jar").sha256 == sha256(b"two")


@pytest.mark.parametrize(
    ("clock", "expected"),
    [(Later(), 1), (Later(timedelta(hours=-1)), 2)],
    ids=["long ago", "just written"],
)
def test_a_file_is_read_again_only_if_it_was_just_written(
    folder: Path, monkeypatch: pytest.MonkeyPatch, clock: Later, expected: int
) -> None:
    reads = []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *args: reads.append(1) or digest(*args))
    find = finder(folder, clock=clock)
    assert find("a.jar") == find("a.jar")
    assert len(reads) == expected


def test_a_file_that_changes_while_it_is_read_is_refused(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digest = hashlib.file_digest

    def slow(*args):
        result = digest(*args)
        (folder / "a.jar").write_bytes(b"longer than before")
        return result

    monkeypatch.setattr(hashlib, "file_digest", slow)
    assert str(refusal(finder(folder), "a.jar")) == (
        "cannot read the artifact a.jar: it changed while it was read;"
        " try again when it is complete"
    )
