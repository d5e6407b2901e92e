"""Storages of datasets for tests: a folder, an S3 server, a file system that renames as HDFS does;
and the same ones as a process finds them that dies in between."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
from pyarrow import fs

from speck.metrics.dataset.local import LocalStorage
from speck.metrics.dataset.remote import RemoteStorage
from speck.metrics.dataset.storage import Storage
from tests.dataset_rows import DiedError, ErringDisk, MortalDisk


def open_renaming(folder: Path, local: Path) -> RemoteStorage:
    """A remote file system that shows files while they are written, and renames them."""
    files = fs.SubTreeFileSystem(str(folder), fs.LocalFileSystem())
    return RemoteStorage(f"file:{folder}/metrics", local, files, "metrics", has_rename=True)


class MortalStorage(RemoteStorage):
    """A process that dies at the `at`-th thing it changes: before it, or with half of it done. With
    `error` it does not die, but that one thing fails."""

    def __init__(
        self, of: RemoteStorage, at: int, *, half: bool = False, error: bool = False
    ) -> None:
        super().__init__(of.uri, of.local, of._files, of._base, has_rename=of._has_rename)
        self.calls_left = at
        self.half = half
        self.error = error
        self._counting = threading.Lock()

    def _step(self, halfway: Callable[[], object]) -> None:
        with self._counting:
            self.calls_left -= 1
            left = self.calls_left
        if left == 0 and self.half:
            halfway()
        if self.error and left == 0:
            raise OSError("SLOW_DOWN")
        if not self.error and left <= 0:  # other threads die with it
            raise DiedError

    def _upload(self, path: str, content: pa.Buffer) -> None:
        def halfway() -> None:
            if self._has_rename:  # an object is not there before it is complete
                RemoteStorage._upload(self, path, content[: len(content) // 2])

        self._step(halfway)
        super()._upload(path, content)

    def _copy(self, path: str, to: str) -> None:
        self._step(lambda: RemoteStorage._copy(self, path, to))
        super()._copy(path, to)

    def _rename(self, path: str, to: str) -> None:
        self._step(lambda: RemoteStorage._rename(self, path, to))
        super()._rename(path, to)

    def _delete(self, path: str) -> None:
        self._step(lambda: RemoteStorage._delete(self, path))
        super()._delete(path)

    def _delete_folder(self, folder: str) -> None:
        first = [file.path for file in self.list_files(folder)][:1]
        self._step(lambda: [RemoteStorage._delete(self, path) for path in first])
        super()._delete_folder(folder)


def make_mortal(storage: Storage, at: int, *, half: bool = False, error: bool = False) -> Storage:
    """The storage, for a process that dies, or for which one thing fails."""
    if isinstance(storage, RemoteStorage):
        return MortalStorage(storage, at, half=half, error=error)
    disk = (ErringDisk if error else MortalDisk)(at, half=half)
    return LocalStorage(storage.local, disk)
