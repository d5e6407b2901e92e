"""All that a program keeps, in one SQLite database in its state folder.

One transaction is one checkpoint: taken numbers, the program's own state and what is left to
publish belong together. Its number stands in the file `checkpoint` beside it, from which the
control plane knows the newest state.
"""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS entries (space TEXT, key TEXT, value TEXT, PRIMARY KEY (space, key))
    WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS messages (place INTEGER PRIMARY KEY, link TEXT, epoch INTEGER,
    number INTEGER, count INTEGER, format TEXT, payload BLOB, sent INTEGER);
"""
_PAGES_KB = 512

Row = tuple[int, str, int, int, int, str | None, bytes, int]
"""A message: its place in the order, its link, its stamp, its content, and 2 if a broker has
acknowledged it, else 1."""


class Table:
    """A part of a program's state: JSON values by key, of which only what has changed is written.
    `items` may not change it meanwhile."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._values = values
        self._changed: set[str] = set()

    def get(self, key: str) -> Any:
        """The value; None: there is none. One that is changed in place has to be put again."""
        return self._values.get(key)

    def put(self, key: str, value: Any) -> None:
        self._values[key] = value
        self._changed.add(key)

    def remove(self, key: str) -> None:
        if self._values.pop(key, None) is not None:
            self._changed.add(key)

    def items(self) -> Iterator[tuple[str, Any]]:
        return iter(self._values.items())

    def __len__(self) -> int:
        return len(self._values)

    @property
    def has_changed(self) -> bool:
        return bool(self._changed)

    def take_changes(self) -> list[tuple[str, str | None]]:
        """What has changed since the last call, as JSON (None: removed)."""
        changed, self._changed = self._changed, set()
        values = self._values
        return [(key, json.dumps(values[key]) if key in values else None) for key in changed]


class State:
    """The database; of one thread."""

    def __init__(self, folder: Path) -> None:
        """Raises sqlite3.Error and OSError."""
        self._folder = folder
        self._database = sqlite3.connect(folder / "state.db", isolation_level=None)
        run = self._database.execute
        run("PRAGMA journal_mode=WAL")
        run("PRAGMA synchronous=FULL")
        run(f"PRAGMA cache_size=-{_PAGES_KB}")
        self._database.executescript(_SCHEMA)
        self._tables: dict[str, Table] = {}
        self.number = max(int(self.fact("checkpoint") or 0), self._read_number())

    def fact(self, name: str) -> str | None:
        row = self._database.execute("SELECT value FROM facts WHERE name = ?", (name,)).fetchone()
        return row[0] if row is not None else None

    def table(self, space: str) -> Table:
        """A part of the state by its name; all of it is in memory."""
        if space not in self._tables:
            rows = self._database.execute(
                "SELECT key, value FROM entries WHERE space = ?", (space,)
            )
            self._tables[space] = Table({key: json.loads(value) for key, value in rows})
        return self._tables[space]

    def messages(self) -> list[Row]:
        """Those that were left to publish, and those that may have to be sent again, in order."""
        query = "SELECT place, link, epoch, number, count, format, payload, sent FROM messages"
        return list(self._database.execute(f"{query} ORDER BY place"))

    def commit(self, facts: dict[str, str], messages: Iterable[Row], gone: Iterable[int]) -> int:
        """Store a checkpoint durably and return its number. `gone` are the places of messages that
        are not needed any more. Raises sqlite3.Error."""
        run = self._database
        run.execute("BEGIN IMMEDIATE")
        try:
            for space, table in self._tables.items():
                changes = table.take_changes()
                put = [(space, key, value) for key, value in changes if value is not None]
                out = [(space, key) for key, value in changes if value is None]
                run.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", put)
                run.executemany("DELETE FROM entries WHERE space = ? AND key = ?", out)
            run.executemany("DELETE FROM messages WHERE place = ?", [(place,) for place in gone])
            values = "(?, ?, ?, ?, ?, ?, ?, ?)"
            run.executemany(f"INSERT OR REPLACE INTO messages VALUES {values}", messages)
            facts = {**facts, "checkpoint": str(self.number + 1)}
            run.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())
            run.execute("COMMIT")
        except BaseException:
            if run.in_transaction:  # a full disk has ended it already
                run.execute("ROLLBACK")
            raise
        self.number += 1
        self._write_number()
        return self.number

    def touch(self) -> int:
        """A checkpoint at which nothing has changed: it wears no disk. Returns its number."""
        self.number += 1
        self._write_number()
        return self.number

    @property
    def has_changed(self) -> bool:
        """Whether a table has."""
        return any(table.has_changed for table in self._tables.values())

    def _read_number(self) -> int:
        try:
            return int.from_bytes((self._folder / "checkpoint").read_bytes()[:8], "big")
        except FileNotFoundError:
            return 0

    def _write_number(self) -> None:
        file = self._folder / "checkpoint"
        is_new = not file.exists()
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT, 0o640)
        try:
            os.pwrite(descriptor, self.number.to_bytes(8, "big"), 0)
            if is_new:  # without it there would be no state after a power failure
                os.fsync(descriptor)
                _sync_folder(self._folder)
        finally:
            os.close(descriptor)

    def close(self) -> None:
        self._database.close()


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
