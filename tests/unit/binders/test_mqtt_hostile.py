"""The MQTT binder against brokers that send what no broker sends (attack S12)."""

from __future__ import annotations

import logging
import socket
import struct
import threading
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from binders.mqtt import MqttBroker
from binders.mqtt.answers import NoAnswerError
from binders.mqtt.check import _read_retained
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection
from binders.mqtt.opening import LARGEST_PACKET
from speck.binding import Target
from speck.errors import BrokerRefusedError, SpeckError, UnreachableError
from speck.sites.credentials import Credentials
from tests.waiting import wait_for

CONNACK = b"\x20\x03\x00\x00\x00"
QOS_2 = b"\x34\x07\x00\x01t\x00\x01\x00x"
"""A message at QoS 2."""


def pack_length(length: int) -> bytes:
    out = b""
    while True:
        length, digit = divmod(length, 128)
        out += bytes([digit | (0x80 if length else 0)])
        if not length:
            return out


def publish(topic: bytes, payload: bytes) -> bytes:
    body = struct.pack(">H", len(topic)) + topic + b"\x00" + payload
    return b"\x31" + pack_length(len(body)) + body


class HostileBroker:
    """Answers each connection like a broker, and sends `first` before a marker comes back."""

    def __init__(self, listener: socket.socket, first: bytes):
        self.address = f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        self.first = first
        self.connack = CONNACK
        self.pings = False
        self.connects: list[bytes] = []
        self.answers: list[tuple[int, bytes]] = []
        """The kinds and bodies of PUBACK, PUBREC, PUBREL and PUBCOMP that it got."""
        self.left: list[bytes] = []
        """The bodies of UNSUBSCRIBE."""
        self.deaf_to = 0
        """So many connections, from the first on, get no more answers."""
        self._listener = listener

    def serve(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                # polls may leave their connection open: nobody waits for its end
                threading.Thread(target=self._answer, args=[sock], daemon=True).start()

    def _answer(self, sock: socket.socket) -> None:
        data, number = b"", len(self.connects)
        with sock, suppress(OSError, IndexError):
            while more := sock.recv(65536):
                data += more
                if number < self.deaf_to:
                    continue
                while (packet := split_packet(data)) is not None:
                    kind, body, data = packet
                    self._reply(sock, kind, body)

    def _reply(self, sock: socket.socket, kind: int, body: bytes) -> None:
        if kind >> 4 == 1:
            self.connects.append(body)
            sock.sendall(self.connack)
            while self.pings:
                sock.sendall(b"\xd0\x00" * 1000)
        elif kind >> 4 == 10:
            self.left.append(body)
        elif 4 <= kind >> 4 <= 7:
            self.answers.append((kind >> 4, body))
        elif kind >> 4 == 8:
            topics = body.count(b"speck/") or body.count(b"$SYS") or 1
            topics = 4 if b"speck/marker/" in body else topics
            sock.sendall(b"\x90" + bytes([3 + topics]) + body[:2] + b"\x00" + b"\x01" * topics)
        elif kind >> 4 == 3:
            (length,) = struct.unpack(">H", body[:2])
            topic, mid = body[2 : 2 + length], body[2 + length : 4 + length]
            sock.sendall(self.first)  # without a copy: tests measure this process
            sock.sendall(b"\x40\x02" + mid + publish(topic, b""))


def split_packet(data: bytes) -> tuple[int, bytes, bytes] | None:
    """The first packet's kind and body, and the rest; None if it is not complete."""
    length, at = 0, 1
    while True:
        if at >= len(data):
            return None
        length |= (data[at] & 0x7F) << (7 * (at - 1))
        at += 1
        if not data[at - 1] & 0x80:
            break
    if len(data) < at + length:
        return None
    return data[0], data[at : at + length], data[at + length :]


@contextmanager
def hostile(first: bytes) -> Iterator[HostileBroker]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        broker = HostileBroker(listener, first)
        thread = threading.Thread(target=broker.serve, daemon=True)
        thread.start()
        yield broker
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


def test_a_topic_that_is_no_utf_8_is_skipped_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent = b'{"v": 1, "producer": "p", "epoch": 1, "number": 7}'
    with hostile(publish(b"speck/sent/\xff", b"{}") + publish(b"speck/sent/a", sent)) as server:
        broker = MqttBroker(Target(server.address))
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert broker.view().sent["a"].number == 7
    (record,) = [each for each in caplog.records if "is skipped" in each.message]
    assert "no UTF-8" in record.message


def test_numbers_that_cannot_be_read_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    deep = b"[" * 100_000
    with hostile(publish(b"speck/taken/a", deep)) as server:
        broker = MqttBroker(Target(server.address))
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert broker.view().taken == {}
    assert len([each for each in caplog.records if "is skipped" in each.message]) == 1


def test_many_messages_that_cannot_be_read_fill_neither_the_log_nor_the_memory(
    caplog: pytest.LogCaptureFixture,
) -> None:
    first = b"".join(
        publish(b"speck/taken/%04d" % n + b"x" * 10_000, b'{"v": "' + b"y" * 10_000 + b'"}')
        for n in range(1_500)
    )
    with hostile(first) as server:
        broker = MqttBroker(Target(server.address))
        with caplog.at_level(logging.WARNING):
            for _ in range(3):
                assert broker.view().taken == {}
    assert len(caplog.records) == 1_001
    assert sum(len(record.getMessage()) for record in caplog.records) < 500_000


def test_polls_say_how_large_a_packet_they_take_and_read_no_larger_one() -> None:
    huge = b"\x31" + pack_length(200_000_000) + b"\x00\x0dspeck/taken/a\x00"
    with hostile(huge) as server:
        broker = MqttBroker(Target(server.address))
        with pytest.raises(BrokerRefusedError, match="a packet of 200000000 bytes; at most"):
            broker.view()
    (connect,) = server.connects
    assert b"\x27" + struct.pack(">I", LARGEST_PACKET) in connect


def test_many_messages_are_not_collected_without_end() -> None:
    numbers = b" " * 1_900_000
    first = b"".join(publish(b"speck/taken/%d" % n, numbers) for n in range(40))
    refused = pytest.raises(BrokerRefusedError, match="below speck/ exceed 67108864 bytes")
    with hostile(first) as server, refused:
        MqttBroker(Target(server.address)).view()


SMALL_VALUES = {
    "epochs": b'{"v":1,"checkpoint":1,"taken":{"p":{%s}}}'
    % b",".join(b'"%d":1' % n for n in range(150_000)),
    "ranges": b'{"v":1,"checkpoint":1,"above":{"p":{"1":[%s]}}}' % b",".join([b"[1,1]"] * 200_000),
    "objects": b"[%s]" % b",".join([b"{}"] * 600_000),
    "texts": b"[%s]" % b",".join([b'""'] * 600_000),
}


@pytest.mark.parametrize("numbers", SMALL_VALUES.values(), ids=SMALL_VALUES)
def test_many_values_are_not_collected(numbers: bytes) -> None:
    first = b"".join(publish(b"speck/taken/%d" % n, numbers) for n in range(8))
    with hostile(first) as server:
        tracemalloc.start()
        try:
            with pytest.raises(BrokerRefusedError, match="below speck/ exceed 600000 values"):
                MqttBroker(Target(server.address)).view()
            assert tracemalloc.get_traced_memory()[1] < 150 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("payload", [b"", b"some"])
def test_messages_without_content_are_counted_with_their_topics(payload: bytes) -> None:
    first = b"".join(
        publish(b"speck/readers/%06d" % n + b"x" * 60_000, payload) for n in range(1_200)
    )
    with hostile(first) as server, pytest.raises(BrokerRefusedError, match="exceed 67108864 bytes"):
        MqttBroker(Target(server.address)).view()


@pytest.mark.parametrize(
    "packet",
    [
        publish(b"speck/taken/a", b"x")[:-3],  # and what follows is read as its end
        b"\x31\x02\x00\xff",
        b"\x31\x06\x00\x01a\x7f\xff\xff",
        b"\xff\xff\xff\xff\xff",
        b"\x90\x00",
        b"\x40\x00",
        b"\xe0\x03\x00\x7f\x01",
        b"\x20\x00",
    ],
)
def test_what_is_not_mqtt_is_an_error_of_the_site(packet: bytes) -> None:
    with hostile(packet) as server:
        broker = MqttBroker(Target(server.address, timeout_s=1.0))
        for call in (broker.view, broker.measure, broker.check):
            with suppress(SpeckError):
                call()


def test_a_broker_that_ignores_unsubscribe_is_polled_on_one_connection() -> None:
    sent = b'{"v": 1, "producer": "p", "epoch": 1, "number": %d}'
    with hostile(publish(b"speck/sent/a", sent % 1)) as server:
        broker = MqttBroker(Target(server.address))
        assert broker.view().sent["a"].number == 1
        late = b"\x30" + publish(b"speck/sent/late", sent % 1)[1:]  # without RETAIN
        server.first = 5000 * late + publish(b"speck/sent/a", sent % 2)
        for _ in range(3):
            assert {key: each.number for key, each in broker.view().sent.items()} == {"a": 2}
    assert len(server.connects) == 1


def test_a_kept_connection_that_a_network_has_forgotten_is_replaced() -> None:
    with hostile(b"") as server:
        broker = MqttBroker(Target(server.address, timeout_s=2.0))
        broker.view()
        server.deaf_to = 1
        broker.view()
        assert len(server.connects) == 2
        server.deaf_to = 3
        with pytest.raises(NoAnswerError, match=r"^cannot connect at .*: no answer in time"):
            broker.view()


FLOOD = b"".join(publish(b"speck/sessions/t/%06d" % n + b"x" * 60_000, b"made") for n in range(300))


@pytest.mark.parametrize(
    "ask",
    [
        lambda broker: broker.identify(),
        lambda broker: broker.confirm_sessions("t", ["reader"]),
        lambda broker: _read_retained(broker._opener.open, ("$SYS/broker/version",)),
    ],
    ids=["identity", "sessions", "check"],
)
def test_what_was_not_asked_for_is_not_kept(ask: Callable[[MqttBroker], object]) -> None:
    """Eighteen megabytes of topics before the answer."""
    with hostile(FLOOD) as server:
        broker = MqttBroker(Target(server.address))
        tracemalloc.start()
        try:
            with suppress(SpeckError):
                ask(broker)
            assert tracemalloc.get_traced_memory()[1] < 9 << 20
        finally:
            tracemalloc.stop()
            broker.close()


def test_a_topic_that_is_no_utf_8_hides_no_identity() -> None:
    identity = b"ab" * 16
    with hostile(publish(b"speck/\xff", b"") + publish(b"speck/broker", identity)) as server:
        assert MqttBroker(Target(server.address)).identify() == identity.decode()


def properties(count: int) -> bytes:
    """Empty user properties, behind their length."""
    return pack_length(5 * count) + b"\x26\x00\x00\x00\x00" * count


def with_properties(topic: bytes, count: int, mid: bytes = b"") -> bytes:
    """A message at QoS 1 if it has an identifier `mid`."""
    body = struct.pack(">H", len(topic)) + topic + mid + properties(count) + b"x"
    return (b"\x33" if mid else b"\x31") + pack_length(len(body)) + body


def test_a_message_with_very_many_properties_is_skipped() -> None:
    """paho copies the rest of the packet for each: one of two megabytes took a minute."""
    number = b'{"v": 1, "producer": "p", "epoch": 1, "number": 1}'
    first = with_properties(b"speck/sent/many", 400_000) + publish(b"speck/sent/a", number)
    with hostile(first) as server:
        assert list(MqttBroker(Target(server.address)).view().sent) == ["a"]


CALLS: dict[str, Callable[[MqttBroker], object]] = {
    "poll": MqttBroker.view,
    "reach": MqttBroker.reach,
    "reserve": lambda broker: broker.reserve("reader", "t"),
    "release": lambda broker: broker.release("reader", "t", last_reader=True),
    "tap": lambda broker: broker.tap("t", lambda _: None, lambda: True),
    "publish": lambda broker: broker.publish("t", [b"1"]),
    "check": MqttBroker.check,
}


@pytest.mark.parametrize(
    ("answer", "refusal"),
    [
        (b"\x20" + pack_length(200_000_000) + b"\x00", "a packet of 200000000 bytes; at most"),
        (b"\x20" + pack_length(2_000_006) + b"\x00\x00" + properties(400_000), "a packet of"),
    ],
    ids=["huge", "properties"],
)
@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_an_answer_is_refused_by_its_length(
    call: Callable[[MqttBroker], object], answer: bytes, refusal: str
) -> None:
    with hostile(b"") as server:
        server.connack = answer
        with pytest.raises(SpeckError, match=refusal):
            call(MqttBroker(Target(server.address)))


@pytest.mark.parametrize("call", ["poll", "reach", "tap", "publish"])
def test_a_message_at_qos_2_is_refused_where_no_reader_may_have_asked_for_it(call: str) -> None:
    with hostile(b"") as server:
        server.connack = QOS_2
        with pytest.raises(SpeckError, match="a message at QoS 2"):
            CALLS[call](MqttBroker(Target(server.address)))


def test_a_message_at_qos_2_that_waits_for_a_reader_is_left_to_it() -> None:
    """A reader outside speck may subscribe at QoS 2; its session is reserved after losses, too."""
    with hostile(b"") as server:
        server.connack = CONNACK + QOS_2
        assert not MqttBroker(Target(server.address)).reserve("reader", "t").existed
        assert server.answers == []


def test_a_message_that_is_skipped_is_acknowledged() -> None:
    """A broker sends a limited number of messages before."""
    first = with_properties(b"speck/sent/many", 4_000, mid=b"\x00\x07")
    with hostile(first) as server:
        broker = MqttBroker(Target(server.address))
        for _ in range(2):  # the second one follows what the first one had sent
            assert broker.view().sent == {}
        assert (4, b"\x00\x07") in server.answers


def test_nothing_waits_on_an_idle_connection() -> None:
    """A broker sends a limited number of messages that are not acknowledged; and to a subscription
    that is left, all that changes."""
    topic = b"speck/sent/a"
    body = struct.pack(">H", len(topic)) + topic + b"\0\7" + b"\0" + b"{}"
    with hostile(b"\x33" + pack_length(len(body)) + body) as server:
        MqttBroker(Target(server.address)).view()
        wait_for(lambda: (4, b"\0\7") in server.answers and len(server.left) == 1)


def test_a_large_message_of_a_reader_s_session_is_read_but_not_kept() -> None:
    """The broker sends the first message that waits there before it answers anything else."""
    payload = bytes(40_000_000)
    with hostile(publish(b"t", payload)) as server:
        tracemalloc.start()
        try:
            assert not MqttBroker(Target(server.address)).reserve("reader", "t").existed
            assert tracemalloc.get_traced_memory()[1] < 9 << 20
        finally:
            tracemalloc.stop()


def test_a_broker_that_takes_hardly_anything_is_checked() -> None:
    with hostile(b"") as server:
        server.connack = b"\x20\x08\x00\x00\x05\x27\x00\x00\x00\x01"  # Maximum Packet Size 1
        found = MqttBroker(Target(server.address, timeout_s=1.0)).check()
    assert "max_packet_size" in {finding.setting for finding in found}


def test_a_broker_that_never_stops_sending_holds_no_close(monkeypatch: pytest.MonkeyPatch) -> None:
    """A connection that lingers waits for the broker's side to close: this one goes on sending."""
    monkeypatch.setattr("binders.mqtt.channel._DRAIN_S", 0.2)
    with hostile(b"") as server:
        server.pings = True
        deadline = time.monotonic() + 5
        with Connection(server.address, Credentials(), ConnectOptions("speck-x"), deadline):
            pass


def test_a_check_has_one_time_limit_for_all_its_connections(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("binders.mqtt.broker.CHECK_S", 0.0)
    with hostile(b"") as server, pytest.raises(UnreachableError):
        MqttBroker(Target(server.address)).check()


def test_a_broker_that_keeps_sessions_for_a_shorter_time_is_believed() -> None:
    with hostile(b"") as server:
        broker = MqttBroker(Target(server.address))
        assert broker.reserve("one", "t").kept_s == 30 * 24 * 3600
        server.connack = b"\x20\x08\x00\x00\x05\x11" + struct.pack(">I", 3600)
        assert broker.reserve("one", "t").kept_s == 3600
        server.connack = b"\x20\x08\x00\x00\x05\x11" + struct.pack(">I", 0)
        assert broker.reserve("one", "t").kept_s == 0
