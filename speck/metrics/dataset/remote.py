"""A dataset in an object store (S3 and what speaks its protocol) or in HDFS, by pyarrow.

An object appears whole when its upload ends, so it is written under its own name at once; an
upload that was interrupted is never seen. HDFS shows files that are being written: there they are
renamed at the end, as on a disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow import fs

from speck.errors import InvalidError
from speck.metrics.dataset.local import remove_leftovers
from speck.metrics.dataset.storage import (
    DROPPED,
    UNFINISHED,
    Storage,
    StoredFile,
    hide,
    write_parquet,
)

T = TypeVar("T")
R = TypeVar("R")

CONNECT_S, REQUEST_S = 5.0, 60.0
AT_ONCE = 16
"""Requests at a time: each waits for the network."""


class RemoteStorage(Storage):
    """The dataset at `uri`, in the folder `base` of `files`. With `has_rename` a file system
    renames files atomically, and shows those that are being written; without it, it shows a file
    once it is complete."""

    advice = "check its address, its credentials and the network"

    def __init__(
        self, uri: str, local: Path, files: fs.FileSystem, base: str, *, has_rename: bool = False
    ) -> None:
        super().__init__(uri, local)
        self._files = files
        self._base = base
        self._has_rename = has_rename

    def map(self, work: Callable[[T], R], items: Iterable[T]) -> list[R]:
        todo = list(items)
        if len(todo) < 2:
            return [work(item) for item in todo]
        with ThreadPoolExecutor(min(AT_ONCE, len(todo))) as pool:
            return list(pool.map(work, todo))

    def list_folders(self, folder: str) -> list[str]:
        infos = self._list(folder, recursive=False)
        dropped = {info.base_name for info in infos if info.base_name.endswith(DROPPED)}
        names = (info.base_name for info in infos if info.type == fs.FileType.Directory)
        return sorted(name for name in names if f".{name}{DROPPED}" not in dropped)

    def list_names(self, folder: str) -> list[str]:
        infos = self._list(folder, recursive=False)
        return sorted(info.base_name for info in infos if info.type == fs.FileType.File)

    def list_files(self, folder: str) -> list[StoredFile]:
        return [
            StoredFile(self._relative(info.path), info.size, info.mtime_ns)
            for info in self._list(folder, recursive=True)
            if info.type == fs.FileType.File
        ]

    def make_folder(self, folder: str) -> None:
        self._files.create_dir(self._full_path(folder), recursive=True)

    def open(self, path: str) -> pa.NativeFile:
        return self._files.open_input_file(self._full_path(path))

    def put(self, path: str, rows: pa.Table, metadata: Mapping[str, str]) -> None:
        # in memory first: a stream that is closed by an error would complete half a file
        out = pa.BufferOutputStream()
        write_parquet(out, rows, metadata)
        self._put(path, out.getvalue())

    def put_text(self, path: str, text: str) -> None:
        self._put(path, pa.py_buffer(text.encode()))

    def _put(self, path: str, content: pa.Buffer) -> None:
        if not self._has_rename:
            self._upload(path, content)
            return
        self._upload(hide(path), content)
        self._rename(hide(path), path)

    def stage(self, path: str, rows: pa.Table) -> None:
        out = pa.BufferOutputStream()
        write_parquet(out, rows, {})
        self._upload(hide(path), out.getvalue())

    def move(self, path: str, to: str) -> None:
        if self._files.get_file_info(self._full_path(path)).type != fs.FileType.File:
            return
        if self._has_rename:
            self._rename(path, to)
        else:
            self._copy(path, to)
            self._delete(path)

    def remove(self, path: str) -> None:
        self._delete(path)

    def remove_folder(self, folder: str) -> None:
        parent, slash, name = folder.rpartition("/")
        marker = f"{parent}{slash}.{name}{DROPPED}"
        self._upload(marker, pa.py_buffer(b""))
        self._finish_removal(marker)

    def finish_removals(self, folder: str) -> None:
        for name in self.list_names(folder):
            if name.endswith(DROPPED):
                self._finish_removal(f"{folder}/{name}")

    def _finish_removal(self, marker: str) -> None:
        parent, slash, name = marker.rpartition("/")
        self._delete_folder(f"{parent}{slash}{name.removeprefix('.').removesuffix(DROPPED)}")
        self._delete(marker)

    def remove_leftovers(self) -> int:
        files = self.list_files("")
        for file in files:
            if file.name.endswith(DROPPED):
                self._finish_removal(file.path)
        unfinished = [
            file.path
            for file in files
            if any(p.startswith(".") and p.endswith(UNFINISHED) for p in file.path.split("/"))
        ]
        self.map(self._delete, unfinished)
        return len(unfinished) + remove_leftovers(self.local)

    def _list(self, folder: str, *, recursive: bool) -> list[fs.FileInfo]:
        selector = fs.FileSelector(
            self._full_path(folder), allow_not_found=True, recursive=recursive
        )
        infos: list[fs.FileInfo] = self._files.get_file_info(selector)
        return infos

    def _full_path(self, path: str) -> str:
        return f"{self._base}/{path}" if path else self._base

    def _relative(self, path: str) -> str:
        return path[len(self._base) + 1 :]

    # what changes something; tests make each of these fail

    def _upload(self, path: str, content: pa.Buffer) -> None:
        if self._has_rename:
            self._files.create_dir(os.path.dirname(self._full_path(path)), recursive=True)
        out = self._files.open_output_stream(self._full_path(path), compression=None)
        out.write(content)
        out.close()

    def _copy(self, path: str, to: str) -> None:
        self._files.copy_file(self._full_path(path), self._full_path(to))

    def _rename(self, path: str, to: str) -> None:
        self._files.create_dir(os.path.dirname(self._full_path(to)), recursive=True)
        self._files.move(self._full_path(path), self._full_path(to))

    def _delete(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._files.delete_file(self._full_path(path))

    def _delete_folder(self, folder: str) -> None:
        with suppress(FileNotFoundError):
            self._files.delete_dir(self._full_path(folder))


def open_s3(uri: str, local: Path, env: Mapping[str, str] | None = None) -> RemoteStorage:
    """The dataset at `s3a://bucket/prefix`. The endpoint (`AWS_ENDPOINT_URL`), the region and the
    credentials are those of the environment variables or files that AWS's own tools read."""
    env = os.environ if env is None else env
    endpoint = env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL")
    region = env.get("AWS_REGION") or env.get("AWS_DEFAULT_REGION")
    at = urlsplit(endpoint or "")
    try:
        files = fs.S3FileSystem(
            scheme=at.scheme or None,
            endpoint_override=at.netloc or None,
            region=region or ("us-east-1" if endpoint else None),
            connect_timeout=CONNECT_S,
            request_timeout=REQUEST_S,
            allow_delayed_open=True,
        )
    except (OSError, pa.ArrowException) as error:
        raise InvalidError(f"cannot use {uri}: {error}") from error
    return RemoteStorage(uri, local, files, uri.removeprefix("s3a://"))


def open_hdfs(uri: str, local: Path) -> RemoteStorage:
    """The dataset at `hdfs://host:port/folder`. Hadoop's `libhdfs` must be installed."""
    at = urlsplit(uri)
    try:
        files = fs.HadoopFileSystem(at.hostname or "default", at.port or 8020, user=at.username)
    except (OSError, pa.ArrowException) as error:
        raise InvalidError(
            f"cannot use {uri}: {str(error).partition(chr(10))[0]}; install Hadoop where the"
            " service runs and set HADOOP_HOME and CLASSPATH (`hadoop classpath --glob`)"
        ) from error
    return RemoteStorage(uri, local, files, at.path, has_rename=True)
