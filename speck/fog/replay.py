"""Publishes a trace of detections to the sites' brokers, numbered like the messages of our sinks.

One thread serves all connections. Rows are sent in the trace's order, each to the broker of its
stream's site; while a broker is slow, away or without readers, later rows wait.
"""

from __future__ import annotations

import json
import select
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from speck.errors import InvalidError
from speck.fog.publisher import TICK_S, Kind, Message, Publisher, ReplayOptions
from speck.fog.trace import Row, site_of
from speck.model.values import is_name


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """The progress of one stream, in messages, including malformed ones and the end marker."""

    total: int
    published: int
    acked: int


@dataclass(frozen=True, slots=True)
class Summary:
    """Counts of what was acknowledged: valid detections, malformed or impossible rows, end markers.

    refused counts acknowledgements that reported no reader, and resent the messages sent again
    after a lost connection; seconds is the time from the first message to the last acknowledgement.
    """

    published: int
    malformed: int
    markers: int
    refused: int
    resent: int
    seconds: float
    cancelled: bool


def expand(rows: Sequence[Row], copies: int = 1) -> Iterator[Message]:
    """The messages of a trace in its order, without the end markers.

    Numbers start at 1 in each stream and are also the ids of the detections. The first copy of a
    row keeps the vehicle's id, copy n has `<vehicle>#<n>`. Malformed rows are published unchanged,
    at the time of the row before them.
    """
    numbers: Counter[str] = Counter()
    now = 0
    for row in rows:
        now = row.detection.time_ms if row.detection and row.valid else now
        for copy in range(1, copies + 1):
            numbers[row.stream] += 1
            number = numbers[row.stream]
            kind: Kind = "detection" if row.valid else "malformed"
            yield Message(row.stream, number, kind, now, _encode(row, number, copy))


def _encode(row: Row, number: int, copy: int) -> bytes:
    detection = row.detection
    if detection is None:
        return row.raw.encode("utf-8", "surrogateescape")
    record = {
        "id": number,
        "stream": row.stream,
        "time_ms": detection.time_ms,
        "sensor": detection.sensor,
        "vehicle": detection.vehicle if copy == 1 else f"{detection.vehicle}#{copy}",
        "speed_mps": detection.speed_mps,
        "length_m": detection.length_m,
        "type": detection.type,
    }
    return _dump(record)


def _dump(record: Mapping[str, object]) -> bytes:
    return json.dumps(record, separators=(",", ":"), ensure_ascii=False).encode()


def end_markers(rows: Sequence[Row], copies: int = 1) -> list[Message]:
    """One final message for each stream.

    Each has the last time of the whole trace, not of its stream: a stream that ends early has no
    more messages until then, so every window closes.
    """
    counts = Counter(row.stream for row in rows)
    last = max((row.detection.time_ms for row in rows if row.detection and row.valid), default=0)
    return [
        Message(
            stream,
            counts[stream] * copies + 1,
            "marker",
            last,
            _dump({"end": True, "stream": stream, "time_ms": last}),
        )
        for stream in sorted(counts)
    ]


@dataclass(frozen=True, slots=True)
class Pacer:
    """Computes when each message is due, in seconds after the first."""

    first_ms: int
    rate: float | None = None
    speed: float | None = None

    def due(self, index: int, time_ms: int) -> float:
        """When message `index` (from 0), with that time in the trace, is due; 0 at full speed."""
        if self.rate is not None:
            return index / self.rate
        if self.speed is not None:
            return (time_ms - self.first_ms) / 1000 / self.speed
        return 0.0


class Replay:
    """One replay of one trace; call `run` once.

    Another thread may meanwhile call `progress()` and set the `cancel` event.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        options: ReplayOptions,
        *,
        cancel: threading.Event | None = None,
        on_progress: Callable[[Mapping[str, StreamProgress]], None] | None = None,
    ) -> None:
        self._rows, self._options = rows, options
        self._cancel = cancel or threading.Event()
        self._on_progress = on_progress
        counts = Counter(row.stream for row in rows)
        self._totals = {s: counts[s] * options.copies + 1 for s in sorted(counts)}
        self._check()
        self._sent: Counter[str] = Counter()
        self._acked: Counter[str] = Counter()
        self._kinds: Counter[str] = Counter()
        self._last_report = 0.0
        self._publishers: dict[str, Publisher] = {}  # by site; sites may share one
        self._connections: list[Publisher] = []

    def _check(self) -> None:
        options = self._options
        missing = sorted({site_of(s) for s in self._totals} - set(options.brokers))
        if missing:
            raise InvalidError(
                f"cannot replay to site {', '.join(missing)}: it has no broker;"
                f" add {missing[0]}=tcp://host:port"
            )
        if not is_name(options.run):
            raise InvalidError(f"cannot use '{options.run}' as a run's name: use A-Z a-z 0-9 _ . -")
        if options.rate is not None and options.speed is not None:
            raise InvalidError("cannot replay with both a rate and a speed: give one of them")
        for name in ("rate", "speed", "copies", "window", "patience_s"):
            value = getattr(options, name)
            if value is not None and not value > 0:
                raise InvalidError(f"cannot replay with {name} {value:g}: it must be above 0")
        try:
            options.topic.format(stream="A1", site="A")
        except (KeyError, IndexError, ValueError) as error:
            raise InvalidError(
                f"cannot use the topic '{options.topic}': only {{stream}} and {{site}} are known"
            ) from error

    def progress(self) -> dict[str, StreamProgress]:
        """The progress of each stream; may be called from any thread."""
        return {
            stream: StreamProgress(total, self._sent[stream], self._acked[stream])
            for stream, total in self._totals.items()
        }

    @property
    def refused(self) -> int:
        """Acknowledgements so far that reported no reader; may be read from any thread."""
        return sum(publisher.refused for publisher in self._connections)

    def run(self) -> Summary:
        """Publish everything, wait for every acknowledgement, and end each stream with a marker.

        Raises UnreachableError when a broker does not answer at the start, BrokerRefusedError, and
        TransientError when a broker accepted nothing for `patience_s`.
        """
        started = time.monotonic()
        try:
            self._connect()
            started = time.monotonic()
            self._publish(started)
            # a marker must not overtake a detection that is held or resent
            self._drain()
            if not self._cancel.is_set():
                for marker in end_markers(self._rows, self._options.copies):
                    self._send(marker)
                self._drain()
        finally:
            for publisher in self._connections:
                publisher.close()
        self._report(always=True)
        return self._summary(time.monotonic() - started)

    def _summary(self, seconds: float) -> Summary:
        return Summary(
            published=self._kinds["detection"],
            malformed=self._kinds["malformed"],
            markers=self._kinds["marker"],
            refused=self.refused,
            resent=sum(publisher.resent for publisher in self._connections),
            seconds=seconds,
            cancelled=self._cancel.is_set(),
        )

    def _connect(self) -> None:
        options = self._options
        epoch = options.epoch if options.epoch is not None else int(time.time())
        by_address: dict[tuple[str, str], list[str]] = {}
        for site in sorted({site_of(stream) for stream in self._totals}):
            by_address.setdefault(options.find_broker(site), []).append(site)
        for sites in by_address.values():
            publisher = Publisher(options, epoch, sites, self._count)
            publisher.connect()
            self._connections.append(publisher)
            self._publishers |= dict.fromkeys(sites, publisher)

    def _count(self, message: Message, first: bool) -> None:
        if first:
            self._acked[message.stream] += 1
            self._kinds[message.kind] += 1

    def _publish(self, started: float) -> None:
        first_ms = next(
            (row.detection.time_ms for row in self._rows if row.detection and row.valid), 0
        )
        pacer = Pacer(first_ms, self._options.rate, self._options.speed)
        for index, message in enumerate(expand(self._rows, self._options.copies)):
            due = started + pacer.due(index, message.time_ms)
            while (wait := due - time.monotonic()) > 0 and not self._cancel.is_set():
                self._pump(min(TICK_S, wait))
            if self._cancel.is_set():
                return
            self._send(message)
            if index % 100 == 0:
                self._pump(0)

    def _send(self, message: Message) -> None:
        publisher = self._publishers[site_of(message.stream)]
        while not publisher.ready:
            if self._cancel.is_set():
                return
            self._pump(TICK_S)
        publisher.send(message)
        self._sent[message.stream] += 1

    def _drain(self) -> None:
        """Wait for the acknowledgements; after a cancellation for at most 2 s."""
        deadline: float | None = None
        while not all(publisher.drained for publisher in self._connections):
            if self._cancel.is_set():
                deadline = deadline or time.monotonic() + 2
                if time.monotonic() > deadline:
                    return
            self._pump(TICK_S)

    def _pump(self, timeout: float) -> None:
        """Serve all connections once; wait up to `timeout` seconds for one of them."""
        alive = [publisher for publisher in self._connections if publisher.fileno() >= 0]
        writers = [publisher for publisher in alive if publisher.want_write()]
        readable, writable, _ = select.select(alive, writers, [], timeout)
        for publisher in readable:
            publisher.read()
        for publisher in writable:
            if publisher.fileno() >= 0:
                publisher.write()
        for publisher in self._connections:
            publisher.tend()
        self._report()

    def _report(self, *, always: bool = False) -> None:
        now = time.monotonic()
        if self._on_progress is not None and (always or now - self._last_report > TICK_S):
            self._last_report = now
            self._on_progress(self.progress())


def replay(
    rows: Sequence[Row],
    options: ReplayOptions,
    *,
    cancel: threading.Event | None = None,
    on_progress: Callable[[Mapping[str, StreamProgress]], None] | None = None,
) -> Summary:
    """Replay all `rows` (see `speck.fog.trace.read_trace`); see `Replay.run`.

    `on_progress` is called in this thread, about five times a second and once at the end.
    """
    return Replay(rows, options, cancel=cancel, on_progress=on_progress).run()
