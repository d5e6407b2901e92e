"""What a replay sends, and when; without a broker."""

from __future__ import annotations

import json
import socket
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from binders.mqtt.link_writer import Header, split_address
from speck.errors import InvalidError, UnreachableError
from speck.fog.publisher import ReplayOptions, find_broker
from speck.fog.replay import Pacer, Replay, end_markers, expand
from speck.fog.trace import Row, parse_detection


def row(stream: str, columns: str) -> Row:
    return Row(stream, columns, parse_detection(columns))


ROWS = [
    row("A1", "60.5,A1-01,v1,10.0,4.5,car"),
    row("B1", "61,B1-01,v2,12.25,12.0,truck"),
    row("A1", "61.5,A1-02,v3,fast,4.5,car"),
    row("A1", "62,A1-02,v3,-2,4.5,car"),
    row("A1", "63,A1-02,v4,11.0,4.5,car"),
]
BROKERS = {"A": "tcp://127.0.0.1:1883", "B": "tcp://127.0.0.1:1884"}


def options(**changes: Any) -> ReplayOptions:
    return ReplayOptions(**{"brokers": BROKERS, "run": "r1", **changes})


def test_a_detection_becomes_the_documented_record() -> None:
    assert json.loads(next(expand(ROWS)).payload) == {
        "id": 1,
        "stream": "A1",
        "time_ms": 60_500,
        "sensor": "A1-01",
        "vehicle": "v1",
        "speed_mps": 10.0,
        "length_m": 4.5,
        "type": "car",
    }


def test_malformed_rows_go_out_as_they_are_at_the_time_of_the_row_before() -> None:
    messages = list(expand(ROWS))
    assert messages[2].payload == b"61.5,A1-02,v3,fast,4.5,car"
    assert [(m.stream, m.number, m.kind, m.time_ms) for m in messages] == [
        ("A1", 1, "detection", 60_500),
        ("B1", 1, "detection", 61_000),
        ("A1", 2, "malformed", 61_000),
        ("A1", 3, "malformed", 61_000),
        ("A1", 4, "detection", 63_000),
    ]
    assert json.loads(messages[3].payload)["speed_mps"] == -2.0


def test_any_bytes_of_a_malformed_row_survive() -> None:
    raw = b"28\xff#~"
    broken = row("A1", raw.decode("utf-8", "surrogateescape"))
    assert [m.payload for m in expand([broken])] == [raw]


def test_copies_have_vehicles_and_ids_of_their_own() -> None:
    messages = list(expand(ROWS, copies=3))
    records = [json.loads(m.payload) for m in messages if m.kind == "detection"]
    assert [r["vehicle"] for r in records[:3]] == ["v1", "v1#2", "v1#3"]
    ids = [r["id"] for r in records if r["stream"] == "A1"]
    assert ids == [1, 2, 3, 10, 11, 12]
    assert [m.number for m in messages if m.stream == "A1"] == list(range(1, 13))


def test_every_stream_ends_with_a_marker_at_the_last_time_of_the_trace() -> None:
    markers = end_markers(ROWS, copies=2)
    assert [(m.stream, m.number) for m in markers] == [("A1", 9), ("B1", 3)]
    assert json.loads(markers[1].payload) == {"end": True, "stream": "B1", "time_ms": 63_000}


def test_a_rate_is_over_all_streams() -> None:
    pacer = Pacer(60_000, rate=200)
    assert [pacer.due(index, 99_000) for index in (0, 1, 400)] == [0.0, 0.005, 2.0]


def test_a_speed_keeps_the_traces_own_gaps() -> None:
    assert Pacer(60_000, speed=10).due(7, 90_000) == 3.0


def test_without_either_everything_is_due_at_once() -> None:
    assert Pacer(60_000).due(7, 90_000) == 0.0


@pytest.mark.parametrize("value", ["replay-r-A1/1/1", "replay-" + "r" * 120 + "/1700000000/99"])
def test_the_header_is_packed_as_paho_would(value: str) -> None:
    slow = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
    slow.UserProperty = ("speck", value)
    fast = Header()
    fast.set(value)
    assert fast.pack() == slow.pack()  # type: ignore[no-untyped-call]


def test_a_broker_address_has_a_default_port() -> None:
    assert find_broker("tcp://pi") == ("mqtt", "tcp://pi:1883")
    assert find_broker("tcp://127.0.0.1:2000/") == ("mqtt", "tcp://127.0.0.1:2000")
    assert split_address("ssl://pi:8883") == ("pi", 8883, True)


@pytest.mark.parametrize("address", ["http://pi:1", "pi:1883", "tcp://", "tcp://pi:x"])
def test_another_address_is_refused(address: str) -> None:
    with pytest.raises(InvalidError, match=r"cannot use the broker address .* or tcp://"):
        find_broker(address)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"brokers": {"A": "tcp://h"}}, "to site B: it has no broker; add B=tcp://"),
        ({"run": "a/b"}, "cannot use 'a/b' as a run's name"),
        ({"rate": 10.0, "speed": 2.0}, "both a rate and a speed"),
        ({"rate": 0.0}, "cannot replay with rate 0: it must be above 0"),
        ({"copies": 0}, "cannot replay with copies 0"),
        ({"topic": "raw/{sensor}"}, "only {stream} and {site} are known"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_sent(
    changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidError) as error:
        Replay(ROWS, options(**changes))
    assert message in str(error.value)


def test_progress_knows_the_totals_with_markers_before_the_start() -> None:
    progress = Replay(ROWS, options(copies=2)).progress()
    assert {stream: (it.total, it.acked) for stream, it in progress.items()} == {
        "A1": (9, 0),
        "B1": (3, 0),
    }


def test_a_broker_that_is_not_there_is_named() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"tcp://127.0.0.1:{free.getsockname()[1]}"
        with pytest.raises(UnreachableError, match=f"cannot reach the broker {address} of site A"):
            Replay(ROWS, options(brokers={"A": address, "B": address})).run()
