"""Drops malformed and impossible detections, and counts them; passes the rest on unchanged, end
marks too."""

from __future__ import annotations

from collections.abc import Iterable

from speck_link.job import Job, Program, run

from speck_programs.detections import read_detection


class Clean(Program):
    def open(self, job: Job) -> None:
        self._counters = job.counters
        self._counters.update(malformed=0, impossible=0)

    def process(self, record: bytes) -> Iterable[bytes]:
        if read_detection(record, self._counters) is not None:
            yield record


if __name__ == "__main__":
    run(Clean())
