"""Event time of several streams on one topic: the least of the declared streams' last times.

A twin of the Java StreamClock: idle limits, end marks, rounds and jumps are as edge_jobs/README.md
("Event time of LocalStats and Merge") says.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence

from speck_link.state import Table

from speck_programs.detections import Detection

_JUMPS_BELIEVED = 5


class _Stream:
    """How far a declared stream has come (None: not heard yet), and when it was heard last."""

    __slots__ = ("at", "ended", "jumped", "last_ms")

    def __init__(self, last_ms: int | None, ended: bool, at: float) -> None:
        self.last_ms, self.ended, self.at = last_ms, ended, at
        self.jumped = 0


class StreamClock:
    """Of one job; its state lies in a table."""

    def __init__(
        self,
        declared: Sequence[str],
        window_ms: int,
        idle_limit_s: float,
        max_jump_ms: int,
        table: Table,
        counters: Counter[str],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._window_ms, self._idle_limit_s = window_ms, idle_limit_s
        self._max_jump_ms = max_jump_ms
        self._table, self._counters, self._now = table, counters, now
        counters.update(undeclared=0, jumps=0)
        self._streams = {}
        for name in declared:
            last_ms, ended = table.get(f"stream {name}") or (None, False)
            self._streams[name] = _Stream(last_ms, ended, now())
        self.time: int | None = table.get("time")
        """Results up to it are due; None: no time yet."""

    def hear(self, detection: Detection) -> None:
        """Take note of a detection, or of an end mark."""
        stream = self._streams.get(detection.stream)
        if stream is None:
            self._counters["undeclared"] += 1
            return
        if not detection.end and all(each.ended for each in self._streams.values()):
            self._begin_round()
        stream.at = self._now()
        before = stream.last_ms, stream.ended
        stream.ended = stream.ended or detection.end
        if self._is_credible(stream, detection):
            stream.last_ms = max(stream.last_ms or 0, detection.time_ms)
        else:
            self._counters["jumps"] += 1
        if (stream.last_ms, stream.ended) != before:
            self._keep(detection.stream, stream)

    def _keep(self, name: str, stream: _Stream) -> None:
        self._table.put(f"stream {name}", (stream.last_ms, stream.ended))

    def _is_credible(self, stream: _Stream, detection: Detection) -> bool:
        """One wrong time far ahead would make everything after it late for ever; several in a row
        are no mistake. An end mark has no second one, so it is never believed by itself."""
        known = [e.last_ms for e in self._streams.values() if e.last_ms is not None]
        known += [self.time] if self.time is not None else []
        if not known or detection.time_ms - self._max_jump_ms <= max(known):
            stream.jumped = 0
            return True
        if not detection.end:
            stream.jumped += 1
            if stream.jumped >= _JUMPS_BELIEVED:
                stream.jumped = 0
                return True
        return False

    def _begin_round(self) -> None:
        for name, stream in self._streams.items():
            stream.ended, stream.last_ms, stream.at = False, None, self._now()
            self._keep(name, stream)

    def advance(self) -> bool:
        """Let time go on when the streams allow it; whether it has."""
        reached = self._find_reached()
        if reached is None:
            return False
        step = reached // self._window_ms * self._window_ms - 1
        if self.time is not None and step <= self.time:
            return False
        self.time = step
        self._table.put("time", step)
        return True

    def _find_reached(self) -> int | None:
        silent_since = self._now() - self._idle_limit_s
        ended = [e.last_ms for e in self._streams.values() if e.ended and e.last_ms is not None]
        open_ = [e for e in self._streams.values() if not e.ended and e.at > silent_since]
        if open_:
            times = [each.last_ms for each in open_]
            return None if None in times else min(each for each in times if each is not None)
        if not ended:
            return None
        return (max(ended) // self._window_ms + 1) * self._window_ms
