"""Detections of the traffic application with times of now, and when each window was complete.

The feed's own log says which message completes a window: event time at `StreamClock` is the least
of its streams' last times, so the result of the window that ends at `end` is due with the last,
over the streams, of their first messages of `end` or later. Latency is the arrival of a result less
the publication of that message: one clock (CLOCK_MONOTONIC), no clock of an engine.
"""

from __future__ import annotations

import json
import select
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path

from speck.errors import TransientError
from speck.fog.publisher import Message, Publisher, ReplayOptions
from speck.fog.trace import Detection, Row, read_trace

STREAMS: Mapping[str, tuple[str, ...]] = {
    "A": ("A1", "A2", "A3"),
    "B": ("B1", "B2", "B3"),
    "C": ("C1", "C2", "C3", "C4"),
}
"""The streams of each site of the traffic application."""
TRAFFIC = Path(__file__).parents[1] / "compositions" / "traffic"
LEAST_TICK_S = 0.002
MOST_TICK_S = 0.05
WINDOW = 1000


def edge_of(site: str) -> str:
    """The edge that a site of the application is: A -> edge-a."""
    return f"edge-{site.lower()}"


def all_streams() -> tuple[str, ...]:
    """The ten streams of all sites."""
    return tuple(stream for streams in STREAMS.values() for stream in streams)


def templates(sensors: int) -> dict[str, list[Detection]]:
    """Vehicles of the trace, by stream; their sensors are folded to `sensors` for each stream,
    which gives as many results for each stream and window."""
    by_stream: dict[str, list[Detection]] = defaultdict(list)
    for row in read_trace(TRAFFIC / "trace" / "trace.csv.gz"):
        if row.detection is not None and row.valid:
            detection = row.detection
            sensor = f"{row.stream}-{len(by_stream[row.stream]) % sensors + 1:02d}"
            by_stream[row.stream].append(
                Detection(
                    0,
                    sensor,
                    detection.vehicle,
                    detection.speed_mps,
                    detection.length_m,
                    detection.type,
                )
            )
    return dict(by_stream)


@dataclass(slots=True)
class Log:
    """What was published, and when (of time.monotonic) each stream first passed each multiple of
    the window's length (event time in ms)."""

    window_ms: int
    rows: list[Row]
    passed: dict[str, dict[int, float]]
    published: dict[tuple[str, int], float] = field(default_factory=dict)
    """When each detection was published, by stream and id."""

    def closed_at(self, streams: Iterable[str], end_ms: int) -> float | None:
        """When the message was published that completed the window that ends at `end_ms`; None
        when only the end marks did."""
        moments = [self.passed[stream].get(end_ms) for stream in streams]
        return None if None in moments else max(at for at in moments if at is not None)

    def ends(self) -> list[int]:
        """All ends of windows that any stream has passed, rising; event time in ms."""
        return sorted({end for ends in self.passed.values() for end in ends})

    def record(self, stream: str, detection: Detection, at: float) -> None:
        """A detection that is published at `at`."""
        self.rows.append(Row(stream, "", detection))
        ends = self.passed[stream]
        end = detection.time_ms // self.window_ms * self.window_ms
        last = next(reversed(ends), end - self.window_ms)
        for each in range(last + self.window_ms, end + 1, self.window_ms):
            ends[each] = at


Encoder = Callable[[str, int, Detection], bytes]
"""A stream's name, a detection's number and the detection -> what is published."""


class DetectionFeed:
    """Publishes detections to the sites' brokers from one thread, at a set pace, until ended.

    `brokers`: site (A, B, C) -> `tcp://host:port`. `interval_ms`: between two messages of a site,
    whose streams take turns; the sites beat at different moments; `topic` may name `{stream}` and
    `{site}`. What is late follows at once: `latest_s` tells how far behind its pace a message ever
    was. `add_to_ids`: so that a second feed publishes, and logs, others than the first.
    """

    def __init__(
        self,
        brokers: Mapping[str, str],
        *,
        interval_ms: float,
        window_ms: int,
        run: str,
        detections: Mapping[str, Sequence[Detection]],
        encoder: Encoder | None = None,
        topic: str = "traffic/{stream}",
        add_to_ids: int = 0,
    ) -> None:
        self.log = Log(window_ms, [], {s: {} for site in brokers for s in STREAMS[site]})
        self.interval_s = interval_ms / 1000
        self._encode = encoder or encode
        self._add_to_ids = add_to_ids
        self.latest_s = 0.0
        self.cpu_s = 0.0
        self._offset = time.time() - time.monotonic()
        self._ids = dict.fromkeys(self.log.passed, 0)
        self._detections = {stream: cycle(detections[stream]) for stream in self.log.passed}
        self._turns: dict[str, Iterator[str]] = {s: cycle(STREAMS[s]) for s in brokers}
        options = ReplayOptions(
            brokers=brokers, run=run, window=WINDOW, patience_s=120.0, topic=topic
        )
        epoch = int(time.time())
        self._publishers = {
            site: Publisher(options, epoch, [site], lambda _, __: None) for site in brokers
        }
        for publisher in self._publishers.values():
            publisher.connect()
        self._over, self._cancel = threading.Event(), threading.Event()
        self._failure: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="detections", daemon=True)
        self._thread.start()

    @property
    def sent(self) -> int:
        """How many detections were published; safe from any thread."""
        return len(self.log.rows)

    @property
    def resent(self) -> int:
        """Messages sent again after lost connections, or because no reader had subscribed."""
        return sum(each.resent + each.refused for each in self._publishers.values())

    def event_time_ms(self, at: float) -> int:
        """The event time of a message that is published at `at` (of time.monotonic)."""
        return int((at + self._offset) * 1000)

    def find_middle(self, at: float, window_ms: int) -> float:
        """The first middle of a window at `at` or later: results of a window are due by the middle
        of the next."""
        over = (self.event_time_ms(at) - window_ms // 2) % window_ms
        return at + (window_ms - over) % window_ms / 1000

    def end(self, timeout_s: float = 60.0) -> Log:
        """Publish no more but the end marks, wait for every acknowledgement.

        Raises TransientError when a broker does not take everything in time, and what ended the
        feed before.
        """
        self._over.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._cancel.set()
            self._thread.join()
            raise TransientError(f"cannot end the feed: a broker took nothing for {timeout_s:g} s")
        if self._failure is not None:
            raise self._failure
        return self.log

    def __enter__(self) -> DetectionFeed:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel.set()
        self._thread.join()

    def _run(self) -> None:
        cpu = time.thread_time()
        try:
            self._publish_on_time()
            self._drain()
            if not self._cancel.is_set():
                self._send_end_marks()
                self._drain()
        except BaseException as error:
            self._failure = error
        finally:
            self.cpu_s = time.thread_time() - cpu
            for publisher in self._publishers.values():
                publisher.close()

    def _publish_on_time(self) -> None:
        count, began = len(self._publishers), time.monotonic() + 0.1
        due = {
            site: began + number * self.interval_s / count
            for number, site in enumerate(self._publishers)
        }
        while not (self._over.is_set() or self._cancel.is_set()):
            for site, publisher in self._publishers.items():
                while due[site] <= (now := time.monotonic()) and publisher.ready:
                    self.latest_s = max(self.latest_s, now - due[site])
                    self._publish(publisher, next(self._turns[site]))
                    due[site] += self.interval_s
            wait = min(due.values()) - time.monotonic()
            self._pump(min(MOST_TICK_S, max(LEAST_TICK_S, wait)))

    def _publish(self, publisher: Publisher, stream: str) -> None:
        like = next(self._detections[stream])
        self._ids[stream] += 1
        number = self._ids[stream]
        own = number + self._add_to_ids
        at = time.monotonic()
        detection = Detection(
            self.event_time_ms(at),
            like.sensor,
            like.vehicle,
            like.speed_mps,
            like.length_m,
            like.type,
        )
        self.log.record(stream, detection, at)
        self.log.published[stream, own] = at
        publisher.send(
            Message(
                stream,
                number,
                "detection",
                detection.time_ms,
                self._encode(stream, own, detection),
            )
        )

    def _send_end_marks(self) -> None:
        last = max((row.detection.time_ms for row in self.log.rows if row.detection), default=0)
        for site, publisher in self._publishers.items():
            for stream in STREAMS[site]:
                record = {"end": True, "stream": stream, "time_ms": last}
                payload = json.dumps(record, separators=(",", ":")).encode()
                publisher.send(Message(stream, self._ids[stream] + 1, "marker", last, payload))

    def _drain(self) -> None:
        while not (self._cancel.is_set() or all(p.drained for p in self._publishers.values())):
            self._pump(LEAST_TICK_S)

    def _pump(self, wait_s: float) -> None:
        """Serve all connections for `wait_s`."""
        until = time.monotonic() + wait_s
        while (delay_s := until - time.monotonic()) > 0:
            alive = [p for p in self._publishers.values() if p.fileno() >= 0]
            if not alive:
                self._cancel.wait(delay_s)
                break
            writers = [p for p in alive if p.want_write()]
            readable, writable, _ = select.select(alive, writers, [], delay_s)
            for publisher in readable:
                publisher.read()
            for publisher in writable:
                if publisher.fileno() >= 0:
                    publisher.write()
        for publisher in self._publishers.values():
            publisher.tend()


def encode(stream: str, number: int, detection: Detection) -> bytes:
    """A detection as the application's sensors publish it, some 150 bytes."""
    return (
        f'{{"id":{number},"stream":"{stream}","time_ms":{detection.time_ms},"sensor":"{detection.sensor}",'
        f'"vehicle":"{detection.vehicle}","speed_mps":{detection.speed_mps},"length_m":{detection.length_m},'
        f'"type":"{detection.type}"}}'
    ).encode()
