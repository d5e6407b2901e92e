"""Options of the JVM, and the archive of its classes."""

from __future__ import annotations

import os
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from speck.analyzer import jvm


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def test_an_archive_is_used_once_it_exists() -> None:
    assert "-XX:+RecordDynamicDumpInfo" in jvm.list_options()

    archive = jvm.find_archive()
    archive.parent.mkdir()
    archive.write_bytes(b"")

    assert f"-XX:SharedArchiveFile={archive}" in jvm.list_options()


def test_each_java_has_an_archive_of_its_own(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usual = jvm.find_archive()
    java = cache / "jdk/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text("")
    monkeypatch.setenv("JAVA_HOME", str(cache / "jdk"))
    other = jvm.find_archive()
    os.utime(java, ns=(1, 1))

    assert len({usual, other, jvm.find_archive()}) == 3


def test_a_jvm_that_writes_no_archive_is_left_alone(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spark = MagicMock()
    spark.sparkContext._gateway.new_array.side_effect = RuntimeError("no such operation")

    jvm.write_archive(spark)

    assert capsys.readouterr().out.startswith(f"cannot write {jvm.find_archive()}: no such")
    assert not list(cache.rglob("*.jsa"))


def test_a_cache_that_is_no_folder_is_left_alone(
    cache: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (cache / "file").touch()
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache / "file"))

    assert not jvm.write_archive(MagicMock())

    assert capsys.readouterr().out.startswith(f"cannot write {jvm.find_archive()}: ")


def test_archives_that_are_no_longer_used_are_removed(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = jvm.find_archive()
    archive.parent.mkdir()
    others = [archive.with_name(f"spark-{number}.jsa") for number in range(jvm.ARCHIVES)]
    for age, file in enumerate(others):
        file.write_bytes(b"")
        os.utime(file, (age, age))
    monkeypatch.setattr(jvm, "_dump", lambda _, file: file.write_bytes(b""))

    jvm.write_archive(MagicMock())

    assert set(cache.rglob("*.jsa")) == {archive, *others[1:]}
