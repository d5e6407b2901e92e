"""When a window of the traffic application is complete, by the feed's own log."""

from __future__ import annotations

import json

import pytest

from bench import detections
from bench.detections import STREAMS, DetectionFeed, Log, all_streams, encode, templates
from bench.instruments.arrivals import Filtered
from speck.fog.publisher import Message
from speck.fog.trace import Detection
from tests.waiting import wait_for
from traffic.reference import compute_local


def make_detection(time_ms: int) -> Detection:
    return Detection(time_ms, "A1-01", "v1", 10.0, 4.5, "car")


def log(*published: tuple[str, int, float]) -> Log:
    """(stream, event time in ms, moment) of each detection, windows of 500 ms."""
    written_log = Log(500, [], {stream: {} for stream in STREAMS["A"]})
    for stream, time_ms, at in published:
        written_log.record(stream, make_detection(time_ms), at)
    return written_log


def test_a_window_is_complete_with_the_last_streams_first_message_past_its_end() -> None:
    written_log = log(("A1", 400, 1.0), ("A2", 500, 2.0), ("A1", 501, 3.0), ("A3", 499, 4.0))
    assert written_log.closed_at(STREAMS["A"], 500) is None
    written_log.record("A3", make_detection(700), 5.0)
    written_log.record("A1", make_detection(999), 6.0)
    assert written_log.closed_at(STREAMS["A"], 500) == 5.0
    assert written_log.closed_at(("A1",), 500) == 3.0


def test_a_pause_of_a_stream_ends_all_windows_in_it_at_once() -> None:
    written_log = log(("A1", 400, 1.0), ("A1", 1700, 2.0))
    assert [written_log.closed_at(("A1",), end) for end in (500, 1000, 1500, 2000)] == [2.0] * 3 + [
        None
    ]


def test_what_is_published_is_what_the_reference_counts() -> None:
    record = json.loads(encode("A1", 7, make_detection(400)))
    assert record == {
        "id": 7,
        "stream": "A1",
        "time_ms": 400,
        "sensor": "A1-01",
        "vehicle": "v1",
        "speed_mps": 10.0,
        "length_m": 4.5,
        "type": "car",
    }
    written_log = log(("A1", 400, 1.0), ("A1", 499, 2.0), ("A1", 500, 3.0))
    stats = compute_local(written_log.rows, window_ms=500)
    assert {key: stat.count for key, stat in stats.items()} == {
        ("A", "A1-01", 0): 2,
        ("A", "A1-01", 500): 1,
    }


def test_every_stream_has_vehicles_at_as_many_sensors_as_asked() -> None:
    by_stream = templates(2)
    assert sorted(by_stream) == sorted(all_streams())
    assert all(len({each.sensor for each in like}) == 2 for like in by_stream.values())
    assert all(each.possible for like in by_stream.values() for each in like)


class Recorder:
    """Stands for a publisher, whose broker takes everything at once."""

    ready = drained = True

    def __init__(self, *_: object) -> None:
        self.sent: list[Message] = []

    def send(self, message: Message) -> None:
        self.sent.append(message)

    def connect(self) -> None: ...

    def close(self) -> None: ...

    def tend(self) -> None: ...

    def fileno(self) -> int:
        return -1


def test_what_comes_of_a_second_feed_is_what_its_log_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its ids are others than those of the first; the numbers of its messages begin with 1."""
    monkeypatch.setattr(detections, "Publisher", Recorder)
    arrivals, logs = Filtered(), []
    for run, first, count in (("one", 0, 2), ("two", 1000, 12)):
        feed = DetectionFeed(
            {"A": "tcp://nowhere"},
            interval_ms=1.0,
            window_ms=500,
            run=run,
            detections=templates(2),
            add_to_ids=first,
        )
        with feed:
            wait_for(lambda feed=feed, count=count: feed.sent > count, "detections")
            logs.append(feed.end())
        messages = [each for publisher in feed._publishers.values() for each in publisher.sent]
        assert min(message.number for message in messages) == 1
        for message in messages:
            arrivals.hear(None, message.payload, 0.0)
    assert arrivals.judge(logs) == (0, 0)
    assert arrivals.covered == sum(len(log.rows) for log in logs)
