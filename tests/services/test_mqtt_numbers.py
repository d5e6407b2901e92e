"""The MQTT binder against real Mosquitto: numbers, also with MQTT 3.1.1."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import binders.mqtt.broker
import binders.mqtt.opening
from binders.mqtt import MqttBroker
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection
from speck.binding import BrokerCapability, Target
from tests.guarded_broker import connect, reading
from tests.mosquitto_server import CARELESS, mosquitto
from tests.mqtt_numbers import tell_numbers
from tests.old_protocol import only_3_1_1


def test_what_a_deleted_job_leaves_is_cleared_on_two_connections(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    class Counted(Connection):
        def __init__(self, address: str, *args: Any, **named: Any) -> None:
            opened.append(address)
            super().__init__(address, *args, **named)

    with mosquitto(tmp_path) as server:
        tell_numbers(server, "reader", "sink", "former-sink")
        broker = MqttBroker(Target(server.address))
        monkeypatch.setattr(binders.mqtt.opening, "Connection", Counted)

        broker.release("reader", "t", last_reader=True)
        assert len(opened) == 1
        broker.forget("sink", "former-sink")
        assert len(opened) == 2
        broker.forget()
        assert len(opened) == 2

        view = broker.view()
        assert (view.taken, view.sent, view.readers) == ({}, {}, {"t": False})


def test_no_more_is_sent_at_once_than_the_broker_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waiting: list[int] = []
    most = 0

    def send(connection: Connection, topic: str, payload: bytes, *, retain: bool) -> int:
        nonlocal most
        assert connection.connack["ReceiveMaximum"] == 2
        mid = sent(connection, topic, payload, retain=retain)
        waiting.append(mid)
        most = max(most, len(waiting))
        return mid

    def await_puback(connection: Connection, mid: int, topic: str) -> None:
        awaited(connection, mid, topic)
        waiting.remove(mid)

    clients = [f"sink-{number}" for number in range(10)]
    with mosquitto(tmp_path, max_inflight_messages="2") as server:
        tell_numbers(server, "reader", *clients)
        broker = MqttBroker(Target(server.address))
        sent, awaited = Connection.send, Connection.await_puback
        with monkeypatch.context() as patched:
            patched.setattr(Connection, "send", send)
            patched.setattr(Connection, "await_puback", await_puback)
            broker.forget(*clients)

        assert (most, waiting) == (2, [])
        view = broker.view()
        assert (set(view.taken), view.sent) == ({"reader"}, {})


@pytest.mark.parametrize(
    "payload",
    [b"{", b"\xff\xfe", b"[]", b"{}", b'{"v":2}', b'{"v":1,"checkpoint":"x"}', b"[" * 5000],
)
def test_an_unreadable_retained_message_is_skipped_and_told(
    tmp_path: Path, payload: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    good = b'{"v":1,"at":1,"producer":"p","epoch":1,"number":2}'
    with mosquitto(tmp_path) as server:
        with connect(server.address, ConnectOptions("a-job")) as connection:
            connection.publish("speck/taken/broken", payload, retain=True)
            connection.publish("speck/sent/broken-out", payload, retain=True)
            connection.publish("speck/sent/good-out", good, retain=True)

        view = MqttBroker(Target(server.address)).view()

    assert set(view.sent) == {"good-out"}
    assert view.taken == {}
    assert "speck/taken/broken is skipped" in caplog.text


def test_a_poll_is_not_sent_what_is_too_large_for_any_number(tmp_path: Path) -> None:
    """Maximum Packet Size: the broker itself drops it, for this reader (attack S12)."""
    good = b'{"v":1,"at":1,"producer":"p","epoch":1,"number":2}'
    with mosquitto(tmp_path, message_size_limit="0") as server:
        with connect(server.address, ConnectOptions("a-job")) as connection:
            huge = good + b" " * binders.mqtt.opening.LARGEST_PACKET
            connection.publish("speck/sent/huge", huge, retain=True)
            connection.publish("speck/sent/good", good, retain=True)
            connection.publish("t", huge, retain=True)
        broker = MqttBroker(Target(server.address))

        assert set(broker.view().sent) == {"good"}
        broker.reserve("reader", "t")  # a session takes whatever its users send


def test_view_reads_more_retained_messages_than_a_queue_may_hold(tmp_path: Path) -> None:
    report = b'{"v":1,"at":1,"producer":"p","epoch":1,"number":2}'
    with mosquitto(tmp_path, **CARELESS) as server:
        with connect(server.address, ConnectOptions("jobs")) as connection:
            sent = [
                connection.send(f"speck/sent/{n}-out", report, retain=True) for n in range(2500)
            ]
            for mid in sent:
                connection.await_puback(mid, "speck/sent")

        assert len(MqttBroker(Target(server.address)).view().sent) == 2500


def test_a_3_1_1_broker_keeps_sessions_but_carries_no_numbers(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server, only_3_1_1(server) as address:
        broker = MqttBroker(Target(address))

        assert broker.reach() == "mqtt 3.1.1"
        assert frozenset(BrokerCapability) - broker.capabilities == {BrokerCapability.NUMBERS}
        broker.reserve("reader", "t")
        with connect(server.address, ConnectOptions("outside")) as connection:
            for number in range(50):
                connection.publish("t", b"%d" % number)
        broker.reserve("reader", "t")

        session = ConnectOptions("reader", clean=False)
        with reading(server.address, session) as (connection, payloads):
            connection.wait(lambda: len(payloads) >= 50, "read")
        assert payloads == [b"%d" % number for number in range(50)]
        assert broker.view().taken == {}
        assert broker.mark("reader", "a1"), "nobody listens, but that is not told"
        tell_numbers(server, "reader", "sink")
        broker.release("reader", "t", last_reader=True)
        broker.forget("sink", "another")
        view = broker.view()
        assert (view.taken, view.sent, view.readers) == ({}, {}, {"t": False})
