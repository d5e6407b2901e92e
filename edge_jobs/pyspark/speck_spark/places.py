"""Where an archive lies: a folder of this machine, or whatever Hadoop's client reaches by a URI.

Paths in an archive are relative, their parts joined by `/`.
"""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path
from typing import Any, Protocol

from pyspark.sql import SparkSession
from speck_spark.arguments import ArgumentFaultError

_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*):(.*)", re.DOTALL)


class Place(Protocol):
    """All methods raise OSError, or Java's exception, if they fail."""

    def uri_of(self, path: str) -> str:
        """A file or folder as Spark names it."""

    def list_files(self, folder: str) -> list[str]:
        """The Parquet files below a folder, in order; none if it does not exist."""

    def exists(self, path: str) -> bool: ...

    def move(self, path: str, to: str) -> None:
        """Let a complete file appear under another name; it is there for good when this returns."""

    def remove(self, folder: str) -> None:
        """Remove a folder, if it exists, and all in it."""


class LocalPlace:
    """A folder of this machine. What is moved is synced, which Spark does not do."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def uri_of(self, path: str) -> str:
        return f"file:{self._root / path}"

    def list_files(self, folder: str) -> list[str]:
        files = (self._root / folder).rglob("*.parquet")
        return sorted(str(file.relative_to(self._root)) for file in files)

    def exists(self, path: str) -> bool:
        return (self._root / path).exists()

    def move(self, path: str, to: str) -> None:
        source, target = self._root / path, self._root / to
        _sync(source)
        self._make_folder(target.parent)
        self._rename(source, target)
        _sync(target.parent)

    def remove(self, folder: str) -> None:
        if (self._root / folder).exists():
            self._remove(self._root / folder)

    def _make_folder(self, folder: Path) -> None:
        """A folder whose entry is not synced may be gone after a power failure, with its files."""
        if not folder.exists():
            self._make_folder(folder.parent)
            folder.mkdir(exist_ok=True)
            _sync(folder.parent)

    # what changes something besides; tests end the job in each of these

    def _rename(self, source: Path, target: Path) -> None:
        source.rename(target)

    def _remove(self, folder: Path) -> None:
        shutil.rmtree(folder)


class HadoopPlace:
    """A folder of a file system that Hadoop's client knows, as Spark itself does."""

    def __init__(self, spark: SparkSession, uri: str) -> None:
        self._uri = uri.rstrip("/")
        jvm: Any = spark.sparkContext._jvm
        self._path_class = jvm.org.apache.hadoop.fs.Path
        root = self._path_class(self._uri)
        conf: Any = spark.sparkContext._jsc
        self._files = root.getFileSystem(conf.hadoopConfiguration())
        self._root = root.toUri().getPath()

    def uri_of(self, path: str) -> str:
        return f"{self._uri}/{path}"

    def list_files(self, folder: str) -> list[str]:
        paths: list[str] = []
        if self.exists(folder):
            entries = self._files.listFiles(self._at(folder), True)
            while entries.hasNext():
                path = entries.next().getPath().toUri().getPath()
                if path.endswith(".parquet"):
                    paths.append(path[len(self._root) :].lstrip("/"))
        return sorted(paths)

    def exists(self, path: str) -> bool:
        return bool(self._files.exists(self._at(path)))

    def move(self, path: str, to: str) -> None:
        target = self._at(to)
        self._files.mkdirs(target.getParent())
        if not self._files.rename(self._at(path), target):
            raise OSError(f"cannot rename {self.uri_of(path)} to {self.uri_of(to)}")

    def remove(self, folder: str) -> None:
        self._files.delete(self._at(folder), True)

    def _at(self, path: str) -> Any:
        return self._path_class(self.uri_of(path))


def open_place(spark: SparkSession, target: str) -> Place:
    """The place that `--target` names. Raises ArgumentFaultError for what is no URI, or no folder
    that can be made."""
    match = _SCHEME.fullmatch(target)
    if match is None:
        raise _refuse(target)
    if match[1] != "file":
        if not re.match(r"//[^/]+/[^/]", match[2]):
            raise _refuse(target)
        return HadoopPlace(spark, target)
    path = Path(re.sub(r"^//(localhost)?(?=/)", "", match[2]))
    if not re.match("/(?!/)", str(path)):  # Python keeps two slashes: //host/folder
        raise _refuse(target)
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ArgumentFaultError(f"cannot use --target {target}: {error}") from error
    return LocalPlace(path)


def _refuse(target: str) -> ArgumentFaultError:
    return ArgumentFaultError(
        f'cannot use --target "{target}": write file:///folder, s3a://bucket/folder or'
        " hdfs://host:port/folder"
    )


def _sync(path: Path) -> None:
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
