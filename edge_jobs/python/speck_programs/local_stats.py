"""Count, mean speed and occupancy of each sensor in each window of event time."""

from __future__ import annotations

import json
from collections.abc import Iterator

from speck_link.arguments import ArgumentFaultError
from speck_link.job import Job, Program, run

from speck_programs.detections import read_detection
from speck_programs.stream_clock import StreamClock

_NOT_EMITTED = -1


class LocalStats(Program):
    """A detection that comes after its window's result gives the whole result again with the next
    revision, until event time is `--lateness` past the window."""

    names = frozenset({"streams", "window", "idle-limit", "lateness", "max-jump", "site"})

    def open(self, job: Job) -> None:
        arguments = job.arguments
        streams = arguments.get_list("streams")
        if not streams:
            raise ArgumentFaultError(
                'cannot use --streams "": it must name at least one stream, as in A1,A2'
            )
        self._site = arguments.get("site", streams[0][0])
        self._length_ms = _to_ms(arguments.get_seconds("window", 60, positive=True))
        self._lateness_ms = _to_ms(arguments.get_seconds("lateness", 600))
        self._counters = job.counters
        self._counters.update(malformed=0, impossible=0, corrections=0, late_dropped=0)
        self._windows = job.table("windows")
        self._clock = StreamClock(
            streams,
            self._length_ms,
            arguments.get_seconds("idle-limit", 120, positive=True),
            _to_ms(arguments.get_seconds("max-jump", 86_400, positive=True)),
            job.table("clock"),
            job.counters,
        )

    def process(self, record: bytes) -> Iterator[bytes]:
        detection = read_detection(record, self._counters)
        if detection is None:
            return
        self._clock.hear(detection)
        if not detection.end:
            start = detection.time_ms // self._length_ms * self._length_ms
            yield from self._add(detection.sensor, start, detection.speed_mps, detection.length_m)
        yield from self.tick()

    def tick(self) -> Iterator[bytes]:
        if self._clock.advance():
            yield from self._close_windows()

    def _add(self, sensor: str, start: int, speed: float, length: float) -> Iterator[bytes]:
        if self._has_passed(self._due_at(start) + self._lateness_ms):
            self._counters["late_dropped"] += 1
            return
        key = f"{start} {sensor}"
        totals = self._windows.get(key) or [0, 0.0, 0.0, _NOT_EMITTED]
        totals[0] += 1
        totals[1] += speed
        totals[2] += length / speed * 1000
        if self._has_passed(self._due_at(start)):
            yield self._emit(sensor, start, totals)
        self._windows.put(key, totals)

    def _close_windows(self) -> Iterator[bytes]:
        for key, totals in list(self._windows.items()):
            start_text, _, sensor = key.partition(" ")
            due_at = self._due_at(int(start_text))
            if totals[3] == _NOT_EMITTED and self._has_passed(due_at):
                yield self._emit(sensor, int(start_text), totals)
                self._windows.put(key, totals)
            if self._has_passed(due_at + self._lateness_ms):
                self._windows.remove(key)

    def _due_at(self, start: int) -> int:
        return start + self._length_ms - 1

    def _has_passed(self, moment: int) -> bool:
        return self._clock.time is not None and moment <= self._clock.time

    def _emit(self, sensor: str, start: int, totals: list[float]) -> bytes:
        totals[3] += 1
        self._counters["corrections"] += totals[3] > 0
        count, speeds, covered_ms, revision = totals
        result = {
            "site": self._site,
            "sensor": sensor,
            "window_start_ms": start,
            "window_ms": self._length_ms,
            "count": count,
            "mean_speed_mps": speeds / count,
            "occupancy": min(1.0, covered_ms / self._length_ms),
            "revision": revision,
        }
        return json.dumps(result, separators=(",", ":"), ensure_ascii=False).encode()


def _to_ms(seconds: float) -> int:
    return round(seconds * 1000)


if __name__ == "__main__":
    run(LocalStats())
