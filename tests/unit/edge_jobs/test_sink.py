"""The sink of the Python client over MQTT, with a broker that a test plays."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode
from speck_link.arguments import Arguments, read_contract
from speck_link.batches import pack
from speck_link.messages import UNSENT, Message
from speck_link.mqtt.writer import MqttWriter
from speck_link.sink import Sink, TooLargeError
from speck_link.window import ResendWindow

OK, NO_READER, TOO_LARGE, DENIED = 0, 0x10, 0x95, 0x87


@dataclass
class Wire:
    """A connection as the sink sees it; `data` are the payloads on the link, `told` the rest."""

    max_payload: int = 10_000
    data: list[bytes] = field(default_factory=list)
    stamps: list[bytes] = field(default_factory=list)
    pending: list[int] = field(default_factory=list)
    told: list[tuple[int, str, dict[str, Any]]] = field(default_factory=list)
    packet: int = 0

    def publish(
        self, topic: str, payload: bytes, qos: int = 0, retain: bool = False, properties: Any = None
    ) -> Any:
        self.packet += 1
        if topic == "out":
            self.data.append(payload)
            self.stamps.append(properties.pack())
            self.pending.append(self.packet)
        else:
            self.told.append((self.packet, topic, json.loads(payload)))
        return SimpleNamespace(mid=self.packet, rc=MQTTErrorCode.MQTT_ERR_SUCCESS)

    def subscribe(self, _: Any) -> tuple[int, int]:
        self.packet += 1
        return 0, self.packet

    def ack(self, *_: Any) -> None: ...
    def want_write(self) -> bool:
        return False

    def disconnect(self) -> None: ...
    def loop_write(self) -> None: ...
    def socket(self) -> None: ...


class Played:
    """A sink, and the broker's part."""

    def __init__(self, *words: str) -> None:
        common = ("--job-name", "J", "--client-id", "speck-1-J-a", "--sink-readers", "some")
        links = ("--source-broker", "tcp://a", "--source-topic", "in")
        sinks = ("--sink-broker", "tcp://b", "--sink-topic", "out")
        contract = read_contract(Arguments((*common, *links, *sinks, *words)))
        self.sink = Sink(contract, contract.sink, ResendWindow(15.0, 1 << 20, 1 << 20))
        self.writer = cast(MqttWriter, self.sink.writer)
        self.wire = Wire()
        self.place = 0

    def connect(self, *told: tuple[str, bytes], most: int = 65_535, packet: int = 1 << 20) -> Wire:
        """Another connection, over which the broker tells what it has retained."""
        self.wire = Wire()
        self.writer.client = cast(Client, self.wire)
        properties = SimpleNamespace(ReceiveMaximum=most, MaximumPacketSize=packet)
        self.writer._admitted(cast(Client, self.wire), False, properties)
        for topic, payload in told:
            self.tell(topic, payload)
        self.writer._subscribed(self.wire, None, self.writer._fence or 0, [], None)
        return self.wire

    def tell(self, topic: str, payload: bytes) -> None:
        message = SimpleNamespace(topic=topic, payload=payload, mid=1, qos=1)
        self.writer._receive(self.wire, None, cast(Any, message))

    def lose(self, *, guilty: bool = False) -> None:
        self.writer.is_guilty = guilty
        self.writer._lose()

    def add(self, *payloads: bytes) -> None:
        for payload in payloads:
            self.place += 1
            self.sink.add(Message(self.place, 7, self.place, 1, None, payload))

    def answer(self, *codes: int) -> None:
        for code in codes:
            packet = self.wire.pending.pop(0)
            reason = SimpleNamespace(value=code, is_failure=code >= 0x80)
            self.writer._acknowledged(self.wire, None, packet, reason, None)

    def settle_announcement(self) -> None:
        packet, *_ = self.wire.told[-1]
        fine = SimpleNamespace(value=0, is_failure=False)
        self.writer._acknowledged(self.wire, None, packet, fine, None)


def test_messages_that_were_not_acknowledged_go_again_in_order() -> None:
    played = Played()
    first = played.connect(most=3)
    played.add(b"1", b"2", b"3", b"4")
    assert first.data == [b"1", b"2", b"3"], "the broker's window"
    played.answer(OK)
    assert first.data[3:] == [b"4"]
    played.lose()
    second = played.connect()
    assert second.data == [b"1", b"2", b"3", b"4"], "the window first, then what is new"
    assert second.stamps == first.stamps
    played.answer(OK, OK, OK, OK)
    assert played.sink.is_drained


def test_what_the_broker_says_that_it_has_is_not_sent_again() -> None:
    played = Played()
    played.connect()
    played.add(b"1", b"2", b"3")
    played.answer(OK, OK)
    played.lose()
    sent = b'{"v":1,"topic":"out","producer":"1-J","epoch":7,"number":2}'
    again = played.connect(("speck/sent/speck-1-J-a-out", sent))
    assert again.data == [b"3"]


def test_a_flush_waits_for_the_announcement() -> None:
    played = Played()
    assert played.sink.announce(), "nothing to say"
    played.connect()
    played.add(b"1")
    assert not played.sink.announce()
    played.answer(OK)
    assert not played.sink.announce()
    played.settle_announcement()
    assert played.sink.announce()
    _, topic, body = played.wire.told[-1]
    assert topic == "speck/sent/speck-1-J-a-out"
    assert (body["producer"], body["epoch"], body["number"]) == ("1-J", 7, 1)
    played.lose()
    assert not played.sink.announce(), "a broker that was killed may forget it"


def test_records_without_a_reader_are_held_and_tried_one_by_one() -> None:
    played = Played()
    wire = played.connect()
    played.add(b"1", b"2")
    played.answer(NO_READER, NO_READER)
    assert wire.data == [b"1", b"2"]
    played.sink._try_at = 0.0
    played.sink._advance(1.0)
    assert wire.data[2:] == [b"1"]
    assert wire.told[-1][2]["unread"] == 2
    played.answer(OK)
    assert wire.data[2:] == [b"1", b"2"]
    played.answer(OK)
    assert played.sink.is_drained


def test_held_records_go_once_if_their_reader_has_a_place_before_that_is_announced() -> None:
    played = Played()
    wire = played.connect()
    played.add(b"1", b"2", b"3")
    played.answer(NO_READER, NO_READER, NO_READER)
    played.sink._advance(float("inf"))
    assert wire.data[3:] == [b"1"]
    played.answer(OK)  # the session is there
    played.answer(OK, OK)
    played.tell("speck/readers/out", b"some")
    played.tell("speck/sessions/out/reader", b"made")
    played.sink._advance(float("inf"))
    assert wire.data[3:] == [b"1", b"2", b"3"]
    assert played.sink.is_drained


def test_without_readers_they_have_gone_out() -> None:
    played = Played()
    played.connect(("speck/readers/out", b"none"))
    played.add(b"1")
    played.answer(NO_READER)
    assert played.sink.is_drained


def test_nothing_goes_to_a_broker_that_has_lost_a_session() -> None:
    session = "speck/sessions/out/reader"
    played = Played()
    played.connect((session, b"made"))
    played.add(b"1")
    played.answer(OK)
    played.lose()
    wire = played.connect()
    played.add(b"2")
    assert wire.data == []
    played.sink._advance(0.0)
    assert wire.told[-1][2]["unread"] == 1
    played.tell(session, b"made")
    played.sink._advance(0.0)
    assert wire.data == [b"1", b"2"]

    played.lose()
    wire = played.connect()
    played.add(b"3")
    assert wire.data == []
    played.tell("speck/readers/out", b"complete")
    played.sink._advance(0.0)
    assert wire.data == [b"1", b"2", b"3"]


def test_a_reader_without_its_session_gets_the_window_again() -> None:
    played = Played()
    wire = played.connect()
    played.add(b"1", b"2")
    played.answer(OK, OK)
    played.tell("speck/readers/out", b"again")
    played.sink._advance(0.0)
    assert wire.data == [b"1", b"2", b"1", b"2"]


def test_a_reader_that_has_lost_its_session_gets_also_what_was_announced_as_sent() -> None:
    """The broker had it for other readers only: what it says that it has is no reason to keep it
    from this one."""
    played = Played()
    wire = played.connect()
    played.add(b"1", b"2")
    played.answer(OK, OK)
    played.sink.announce()
    played.settle_announcement()
    _, topic, announced = wire.told[-1]
    played.tell(topic, json.dumps(announced).encode())
    assert announced["number"] == 2
    played.tell("speck/readers/out", b"again")
    assert not played.sink.announce(), "before what was sent is sent again"
    played.sink._advance(0.0)
    assert wire.data == [b"1", b"2", b"1", b"2"]


def test_a_request_to_send_again_outlives_the_connection() -> None:
    played = Played()
    played.connect()
    played.add(b"1", b"2")
    played.answer(OK)
    played.tell("speck/readers/out", b"again")
    played.lose()
    sent = b'{"v":1,"topic":"out","producer":"1-J","epoch":7,"number":1}'
    wire = played.connect(("speck/sent/speck-1-J-a-out", sent))
    assert wire.data == [b"1", b"2"]


def test_what_is_refused_as_it_is_sent_again_goes_once_for_the_reader_that_asks() -> None:
    """A broker has lost the only session, and the job has heard of none since its start."""
    played = Played()
    played.connect()
    played.add(b"1", b"2")
    played.answer(OK, OK)
    played.lose()
    wire = played.connect()
    played.add(b"3")
    assert wire.data == [b"1", b"2", b"3"]
    played.answer(NO_READER, NO_READER, NO_READER)
    played.tell("speck/readers/out", b"again")
    played.sink._advance(1.0)
    played.answer(OK)
    played.answer(OK, OK)
    assert wire.data[3:] == [b"1", b"2", b"3"]
    assert played.sink.is_drained
    assert played.sink._bytes == 0


def test_a_batch_that_is_too_large_goes_one_by_one() -> None:
    played = Played()
    wire = played.connect()
    records = [b"a" * 40, b"b" * 40, b"c" * 40]
    kind, payload = pack(records, in_batches=True, zstd=False)
    played.sink.add(Message(1, 7, 1, 3, kind, payload))
    played.answer(TOO_LARGE)
    played.sink._advance(0.0)
    assert wire.data[1:] == records
    assert [b"1-J/7/%d" % n in stamp for n, stamp in zip((1, 2, 3), wire.stamps[1:], strict=True)]
    played.answer(OK, OK, OK)
    assert played.sink.is_drained
    assert played.sink._bytes == 0


def test_a_record_that_ends_the_connection_twice_is_given_up() -> None:
    played = Played()
    played.connect()
    played.add(b"bad", b"2")
    played.lose(guilty=True)
    wire = played.connect()
    assert wire.data == [b"bad"], "alone"
    played.lose(guilty=True)
    wire = played.connect()
    assert wire.data == [b"2"]
    assert played.sink.left_out == 1
    played.answer(OK)
    assert played.sink.is_drained


def test_a_broker_that_dies_again_and_again_costs_no_record() -> None:
    played = Played()
    for _ in range(4):
        wire = played.connect()
        if not played.place:
            played.add(b"1")
        assert wire.data == [b"1"]
        played.lose()
    assert played.sink.left_out == 0


def test_a_refusal_is_told_and_tried_again() -> None:
    played = Played()
    wire = played.connect()
    played.add(b"1")
    played.answer(DENIED)
    assert "the broker refuses records" in (played.sink.refusal or "")
    played.sink._advance(float("inf"))
    assert wire.data == [b"1", b"1"]
    assert wire.told[-1][2]["refused"] == 1
    played.answer(OK)
    assert played.sink.refusal is None


def test_a_record_that_no_broker_takes_ends_a_job_that_must_not_lose_it() -> None:
    played = Played("--delivery", "exactly_once")
    played.connect(packet=200)
    with pytest.raises(TooLargeError, match="cannot publish a record of 400 bytes"):
        played.add(b"x" * 400)


@pytest.mark.parametrize("window_s", [15, 0])
def test_parts_of_a_stored_batch_take_its_place_once_all_are_there(window_s: int) -> None:
    """Until then a kill would lose those that are not: the state has the batch alone."""
    played = Played("--delivery", "exactly_once")
    played.sink.window = ResendWindow(window_s, 1 << 20, 1 << 20)
    records = [b"a" * 300, b"b" * 300, b"c" * 300]
    kind, payload = pack(records, in_batches=True, zstd=False)
    batch = Message(1, 7, 1, 3, kind, payload)
    batch.to_row("link", UNSENT)
    wire = played.connect(packet=600)
    played.sink.add(batch)
    assert wire.data == records

    def store() -> tuple[list[int], list[int]]:
        fresh, gone = played.sink.window.store(played.sink.first_pending)
        return [each.place for each in fresh], gone

    played.answer(OK)
    assert store() == ([], []), "the first part would take the place of all"
    played.answer(OK, OK)
    assert store() == (([1, 2, 3], []) if window_s else ([], [1]))


def test_what_the_broker_has_does_not_stay_in_the_window_for_ever() -> None:
    played = Played()
    played.connect()
    played.add(b"1", b"2")
    played.answer(OK, OK)
    played.lose()
    played.connect()  # sends both again, and ends before they are acknowledged
    played.lose()
    sent = b'{"v":1,"topic":"out","producer":"1-J","epoch":7,"number":2}'
    played.connect(("speck/sent/speck-1-J-a-out", sent))
    played.sink.window.prune(time.monotonic() + 1000, connected=True)
    assert len(played.sink.window) == 0
