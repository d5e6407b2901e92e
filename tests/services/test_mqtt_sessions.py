"""The MQTT binder against real Mosquitto: sessions and marks."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

import binders.mqtt.broker
import binders.mqtt.opening
from binders.mqtt import MqttBroker
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection
from speck.binding import Target
from speck.fog.mosquitto import Mosquitto
from tests.guarded_broker import connect, reading
from tests.mosquitto_server import mosquitto
from tests.mqtt_numbers import tell_numbers
from tests.waiting import wait_for


def test_sessions_and_their_messages_survive_a_restart_of_the_broker(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        broker.reserve("reader", "t")
        with connect(server.address, ConnectOptions("outside")) as connection:
            connection.publish("t", b"kept")
        port = server.port

    session = ConnectOptions("reader", clean=False, expiry_s=60)
    with (
        mosquitto(tmp_path, port=port) as server,
        reading(server.address, session) as (connection, payloads),
    ):
        assert connection.session_present
        connection.wait(lambda: payloads == [b"kept"], "read")


def test_only_for_a_session_that_was_lost_are_sinks_asked_to_send_again(
    mosquitto_server: Mosquitto, tmp_path: Path
) -> None:
    topic, reader = f"t/{tmp_path.name}", f"reader-{tmp_path.name}"
    broker = MqttBroker(Target(mosquitto_server.address))

    with reading(mosquitto_server.address, ConnectOptions("sink")) as (connection, heard):
        connection.subscribe(f"speck/readers/{topic}")

        def hear(**how: bool) -> list[bytes]:
            heard.clear()
            broker.reserve(reader, topic, **how)
            connection.wait(lambda: heard[-1:] == [b"some"], "hear")
            return heard[:-1]

        assert hear(first=True) == []
        assert hear() == []
        assert hear(lost=True) == [b"again"], "it is there, but was not for a while"
        broker.release(reader, topic, last_reader=False)
        assert hear() == [b"again"]
        assert hear(fresh=True) == []
    broker.release(reader, topic, last_reader=True)


def test_a_mark_survives_a_restart_of_the_broker_in_its_place(tmp_path: Path) -> None:
    reader = ConnectOptions("reader", clean=False, expiry_s=60)
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        broker.reserve("reader", "t")
        assert not broker.mark("reader", "a0")
        with connect(server.address, reader) as connection:
            connection.subscribe("t", "speck/marks/reader")
        with connect(server.address, ConnectOptions("outside")) as connection:
            connection.publish("t", b"before")
            assert broker.mark("reader", "a1")
            connection.publish("t", b"after")
        port = server.port

    with mosquitto(tmp_path, port=port) as server:
        with reading(server.address, reader) as (connection, payloads):
            connection.wait(lambda: len(payloads) == 3, "read")
        assert payloads == [b"before", b"a1", b"after"]


def test_reserving_a_link_with_a_retained_message_queues_nothing(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server:
        with connect(server.address, ConnectOptions("outside")) as connection:
            connection.publish("t", b"old", retain=True)

        MqttBroker(Target(server.address)).reserve("reader", "t")

        session = ConnectOptions("reader", clean=False)
        with reading(server.address, session) as (connection, payloads):
            connection.publish("t", b"new")
            connection.wait(lambda: bool(payloads), "read")
        assert payloads == [b"new"]


@pytest.mark.parametrize("ended", ["with a goodbye", "by a crash"])
def test_reserving_after_a_reader_with_messages_under_way_keeps_all_in_order(
    tmp_path: Path, ended: str
) -> None:
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        broker.reserve("reader", "t")
        publish_numbers(server, range(600))
        session = ConnectOptions(
            "reader", clean=False, expiry_s=600, receive_maximum=200, manual_ack=True
        )
        with suppress(Crash), reading(server.address, session) as (reader, held):
            reader.wait(lambda: len(held) == 200, "hold 200 messages")
            if ended == "by a crash":
                raise Crash

        broker.reserve("reader", "t")
        publish_numbers(server, range(600, 700))
        broker.reserve("reader", "t")

        session = ConnectOptions("reader", clean=False)
        with reading(server.address, session) as (connection, came):
            connection.wait(lambda: len(came) >= 700, "read")
        assert came == [b"%d" % number for number in range(700)]


def test_reserving_takes_nothing_from_a_reader_that_subscribes_at_qos_2(tmp_path: Path) -> None:
    """Such a reader is outside speck. A message at QoS 2 belongs to whom its PUBREC comes from."""
    came: list[int] = []

    def read(server: Mosquitto, until: int) -> None:
        client = Client(CallbackAPIVersion.VERSION2, "reader", protocol=MQTTProtocolVersion.MQTTv5)
        client.on_message = lambda _client, _data, message: came.append(int(message.payload))
        subscribed = threading.Event()
        client.on_subscribe = lambda *_: subscribed.set()
        expiry = Properties(PacketTypes.CONNECT)
        expiry.SessionExpiryInterval = 600
        client.connect("127.0.0.1", server.port, clean_start=False, properties=expiry)
        client.subscribe("t", qos=2)
        client.loop_start()
        assert subscribed.wait(30)
        wait_for(lambda: len(came) >= until)
        client.disconnect()
        client.loop_stop()

    with mosquitto(tmp_path) as server:
        read(server, 0)
        publisher = Client(CallbackAPIVersion.VERSION2)
        publisher.connect("127.0.0.1", server.port)
        publisher.loop_start()
        for number in range(5):
            publisher.publish("t", b"%d" % number, qos=2).wait_for_publish(30)
        publisher.disconnect()
        publisher.loop_stop()
        assert MqttBroker(Target(server.address)).reserve("reader", "t").existed
        read(server, 5)
    assert came == list(range(5))


class Crash(Exception):
    """Leaves a connection without a goodbye."""


def publish_numbers(server: Mosquitto, numbers: range) -> None:
    with connect(server.address, ConnectOptions("outside")) as connection:
        for mid in [connection.send("t", b"%d" % number) for number in numbers]:
            connection.await_puback(mid, "t")


def test_reserve_leaves_other_sessions_alone(tmp_path: Path) -> None:
    session = ConnectOptions("live", clean=False, expiry_s=60)
    with (
        mosquitto(tmp_path) as server,
        reading(server.address, session) as (live, payloads),
    ):
        live.subscribe("t")
        broker = MqttBroker(Target(server.address))
        broker.reserve("another", "t")
        broker.release("another", "t", last_reader=False)
        live.publish("t", b"still here")
        live.wait(lambda: payloads == [b"still here"], "read")


def test_a_reader_that_comes_back_at_once_keeps_nobody_from_its_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        broker.reserve("reader", "t")
        publish_numbers(server, range(3))
        tell_numbers(server, "reader")
        back: list[Connection] = []

        def come_back(connection: Connection, message: dict[str, bytes], *, retain: bool) -> None:
            if not back:  # throws out the connection that is about to say this
                connection.wait(lambda: True, "connect")
                session = ConnectOptions("reader", clean=False, expiry_s=60)
                back.append(connect(server.address, session))
            publish_all(connection, message, retain=retain)

        publish_all = Connection.publish_all
        monkeypatch.setattr(Connection, "publish_all", come_back)
        broker.release("reader", "t", last_reader=True)

        with back.pop() as reader:
            assert not reader.session_present
        view = broker.view()
        assert (view.taken, view.sent, view.readers) == ({}, {}, {"t": False})


# -- readers that are away ---------------------------------------------------------------------


def test_a_session_that_is_reserved_again_in_time_outlives_its_expiry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another one, made at the same time, has expired by then, with its messages. It is announced
    all the same: only to reserve it shows that it is gone."""
    monkeypatch.setattr(binders.mqtt.broker, "SESSION_EXPIRY_S", 3)
    with mosquitto(tmp_path) as server:
        broker = MqttBroker(Target(server.address))
        for name in ("renewed", "expired"):
            assert broker.reserve(name, name).kept_s == 3
            assert broker.publish(name, [b"waits"]) == 0

        def has_expired() -> bool:
            assert broker.reserve("renewed", "renewed").existed
            return broker.publish("expired", [b"more"]) == 1

        wait_for(has_expired, "the end of a session")
        wait_for(lambda: broker.reserve("renewed", "renewed").existed, "a last time")
        assert ("expired", "expired") in broker.view().sessions
        assert not broker.reserve("expired", "expired").existed
        options = ConnectOptions("renewed", clean=False, expiry_s=60)
        with reading(server.address, options) as (reader, received):
            reader.wait(lambda: received == [b"waits"], "read what waited")
