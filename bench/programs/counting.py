"""Counts the records of each key, as state, and writes the count into the record: a twin of the
Java job `Counting`."""

from __future__ import annotations

import json
from collections.abc import Iterator

from speck_link.job import Job, Program, run


class Counting(Program):
    names = frozenset({"note"})

    def open(self, job: Job) -> None:
        self._counts = job.table("counts")

    def process(self, record: bytes) -> Iterator[bytes]:
        try:
            fields = json.loads(record)
        except ValueError:
            return
        if not isinstance(fields, dict):
            return
        key = str(fields.get("k", ""))
        count = (self._counts.get(key) or 0) + 1
        self._counts.put(key, count)
        yield json.dumps({**fields, "count": count}, separators=(",", ":")).encode()


if __name__ == "__main__":
    run(Counting())
