"""Jars are judged by their central directory: whether they hold the entry class."""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path

import pytest

from binders.flink.artifacts import class_fault, judge_jar
from speck.binding import Artifact, ArtifactKind, Judgement, judge_artifact
from speck.spec.artifacts import find_kind


def jar_of(path: Path, *classes: str) -> Artifact:
    with zipfile.ZipFile(path, "w") as archive:
        for name in classes:
            archive.writestr(name.replace(".", "/") + ".class", b"\xca\xfe\xba\xbe")
        archive.writestr("META-INF/versions/11/io/Hidden.class", b"")
        archive.writestr("readme.txt", b"")
    return Artifact(hashlib.sha256(path.read_bytes()).hexdigest(), path, ArtifactKind.JAR)


def test_the_entry_class_must_be_in_the_jar(tmp_path: Path) -> None:
    jar = jar_of(tmp_path / "a.jar", "io.speck.jobs.Clean", "io.speck.jobs.Outer$Inner")
    assert class_fault(jar, "io.speck.jobs.Clean") is None
    assert class_fault(jar, "io.speck.jobs.Outer$Inner") is None
    assert class_fault(jar, "Clean") == (
        "the jar holds no class Clean; the nearest are io.speck.jobs.Clean"
    )


def test_at_most_five_near_classes_are_named(tmp_path: Path) -> None:
    names = [f"io.speck.jobs.Job{n}" for n in range(9)]
    jar = jar_of(tmp_path / "a.jar", *names, "other.clean", "a.much.longer.name.of.Something")
    fault = class_fault(jar, "io.speck.jobs.Clean")
    assert fault is not None
    assert fault.startswith(
        "the jar holds no class io.speck.jobs.Clean; the nearest are other.clean, "
    )
    assert fault.count(", ") == 4


def test_a_jar_without_classes(tmp_path: Path) -> None:
    assert class_fault(jar_of(tmp_path / "a.jar"), "io.Hidden") == (
        "the jar holds no class io.Hidden; it holds no classes"
    )


def test_what_is_no_jar(tmp_path: Path) -> None:
    file = tmp_path / "a.jar"
    file.write_bytes(b"text")
    assert class_fault(
        Artifact(hashlib.sha256(b"text").hexdigest(), file, ArtifactKind.JAR), "A"
    ) == ("the file is no jar: it is no zip archive")


@pytest.mark.parametrize("entry", ["a b", "a..B", "1a", "a.B;", "../a"])
def test_an_entry_that_is_no_class_is_said_to_be_none(tmp_path: Path, entry: str) -> None:
    judgement = judge_jar(jar_of(tmp_path / "a.jar", "a.B"), entry)
    assert judgement.at_entry
    assert "is no class name like package.ExampleJob" in str(judgement.fault)


def test_a_jar_needs_an_entry(tmp_path: Path) -> None:
    jar = jar_of(tmp_path / "a.jar", "a.B")
    assert judge_jar(jar, "a.B").fault is None
    missing = judge_jar(jar, "")
    assert (missing.fault, missing.at_entry) == (
        "missing: name the class whose main starts the job",
        True,
    )


def test_a_file_of_another_kind_is_refused_by_its_kind(tmp_path: Path) -> None:
    (tmp_path / "job.py").write_text("import os\n")
    (tmp_path / "query.sql").write_text("select 1")
    (tmp_path / "blob").write_bytes(b"\0\1")
    jar_of(tmp_path / "a.jar", "a.B")
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.txt", "")
    kinds = {name: find_kind(name, tmp_path / name) for name in os.listdir(tmp_path)}
    assert kinds == {
        "job.py": ArtifactKind.PYFILE,
        "query.sql": ArtifactKind.TEXT,
        "blob": None,
        "a.jar": ArtifactKind.JAR,
        "a.zip": ArtifactKind.ARCHIVE,
    }
    program = Artifact("0" * 64, tmp_path / "job.py", ArtifactKind.PYFILE)
    assert judge_artifact("flink", program, "a.B") == Judgement(
        "the file is of kind pyfile; an engine of kind flink takes jar"
    )
