"""A dataset in a folder of this machine.

A file is written under a hidden name, synced, and renamed. A kill leaves only hidden files.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa

from speck.metrics.dataset.storage import (
    DROPPED,
    UNFINISHED,
    Storage,
    StoredFile,
    hide,
    write_parquet,
)


class Disk:
    """All disk operations; tests make each of them fail."""

    def write(self, path: Path, rows: pa.Table, metadata: Mapping[str, str]) -> None:
        """Write a Parquet file of `rows` at `path`, and sync it. Raises OSError."""
        with path.open("wb") as out:
            write_parquet(out, rows, metadata)
            out.flush()
            os.fsync(out.fileno())

    def write_text(self, path: Path, text: str) -> None:
        """Write a file of `text` at `path`, and sync it. Raises OSError."""
        with path.open("w") as out:
            out.write(text)
            out.flush()
            os.fsync(out.fileno())

    def make_folder(self, path: Path) -> None:
        """Create the folder `path` and its missing parents."""
        path.mkdir(parents=True, exist_ok=True)

    def rename(self, path: Path, to: Path) -> None:
        """Rename the file or folder `path`, and sync the folder that it is in afterwards."""
        path.rename(to)
        self.sync(to.parent)

    def remove(self, path: Path) -> None:
        """Remove the file `path` if it exists."""
        path.unlink(missing_ok=True)

    def remove_folder(self, path: Path) -> None:
        """Remove the folder `path` and all in it."""
        shutil.rmtree(path)

    def sync(self, folder: Path) -> None:
        """Sync `folder`, so that its renames survive a loss of power."""
        number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(number)
        finally:
            os.close(number)


class LocalStorage(Storage):
    """The dataset in the folder `root`."""

    is_local = True

    def __init__(self, root: Path, disk: Disk | None = None) -> None:
        super().__init__(f"file:{root.absolute()}", root)
        self._root = root
        self._disk = disk or Disk()

    def name_of(self, path: str) -> str:
        return str(self._root / path)

    def __str__(self) -> str:
        return str(self._root)

    def list_folders(self, folder: str) -> list[str]:
        try:
            with os.scandir(self._root / folder) as entries:
                return sorted(entry.name for entry in entries if entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def list_names(self, folder: str) -> list[str]:
        try:
            with os.scandir(self._root / folder) as entries:
                return sorted(entry.name for entry in entries if not entry.is_dir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def list_files(self, folder: str) -> list[StoredFile]:
        files: list[StoredFile] = []
        self._add_files(folder, files)
        return files

    def _add_files(self, folder: str, files: list[StoredFile]) -> None:
        prefix = f"{folder}/" if folder else ""
        try:
            entries = list(os.scandir(self._root / folder))
        except (FileNotFoundError, NotADirectoryError):
            return
        for entry in entries:
            try:
                if entry.is_dir():
                    self._add_files(prefix + entry.name, files)
                    continue
                status = entry.stat()
            except FileNotFoundError:  # removed in between
                continue
            files.append(StoredFile(prefix + entry.name, status.st_size, status.st_mtime_ns))

    def make_folder(self, folder: str) -> None:
        self._disk.make_folder(self._root / folder)

    def open(self, path: str) -> pa.NativeFile:
        return pa.OSFile(str(self._root / path))

    def put(self, path: str, rows: pa.Table, metadata: Mapping[str, str]) -> None:
        unfinished = self._root / hide(path)
        self._disk.make_folder(unfinished.parent)
        try:
            self._disk.write(unfinished, rows, metadata)
            self._disk.rename(unfinished, self._root / path)
        except OSError:
            unfinished.unlink(missing_ok=True)
            raise

    def put_text(self, path: str, text: str) -> None:
        unfinished = self._root / hide(path)
        self._disk.make_folder(unfinished.parent)
        try:
            self._disk.write_text(unfinished, text)
            self._disk.rename(unfinished, self._root / path)
        except OSError:
            (self._root / path).unlink(missing_ok=True)
            unfinished.unlink(missing_ok=True)
            raise

    def stage(self, path: str, rows: pa.Table) -> None:
        unfinished = self._root / hide(path)
        self._disk.make_folder(unfinished.parent)
        self._disk.write(unfinished, rows, {})

    def move(self, path: str, to: str) -> None:
        if (self._root / path).exists():
            self._disk.make_folder((self._root / to).parent)
            self._disk.rename(self._root / path, self._root / to)

    def remove(self, path: str) -> None:
        self._disk.remove(self._root / path)

    def remove_folder(self, folder: str) -> None:
        path = self._root / folder
        dropped = path.with_name(f".{path.name}{DROPPED}")
        self._disk.rename(path, dropped)
        self._disk.remove_folder(dropped)

    def finish_removals(self, folder: str) -> None:
        for path in sorted((self._root / folder).glob(f".*{DROPPED}")):
            self._disk.remove_folder(path)

    def remove_leftovers(self) -> int:
        return remove_leftovers(self._root)


def remove_leftovers(folder: Path) -> int:
    """Remove the files and folders below a folder that were never finished."""
    leftovers = [p for p in folder.rglob(".*") if p.name.endswith((UNFINISHED, DROPPED))]
    for path in leftovers:
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return len(leftovers)
