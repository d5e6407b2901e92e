"""The checker of the measurements, at a real Mosquitto: what it reads, and that it goes on."""

from __future__ import annotations

import json
import time
from pathlib import Path

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from bench.instruments.checker import Checker
from binders.mqtt import MqttBroker
from binders.mqtt.batches import FRAMED, STAMP
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection
from speck.binding import Target
from speck.sites.credentials import Credentials
from tests.mosquitto_server import mosquitto


def send(address: str, payload: bytes, stamp: str, content_type: str | None = None) -> None:
    properties = Properties(PacketTypes.PUBLISH)
    properties.UserProperty = (STAMP, stamp)
    if content_type is not None:
        properties.ContentType = content_type
    options = ConnectOptions("a-sink")
    with Connection(address, Credentials(), options, time.monotonic() + 60) as sink:
        sink._client.publish("out", payload, qos=1, properties=properties)
        sink.publish("sent", b"")  # acknowledged behind it


def own(number: int) -> bytes:
    return json.dumps({"n": number}).encode()


def test_what_comes_while_nobody_reads_is_counted_later_and_nothing_twice(tmp_path: Path) -> None:
    batch = b"".join(bytes([len(own(n))]) + own(n) for n in (2, 3))
    with mosquitto(tmp_path / "broker") as server:
        MqttBroker(Target(server.address)).reserve("end", "out")
        send(server.address, own(1), "p/1/1")
        with Checker(server.address, "out", "end") as checker:
            checker.await_number(1)
            send(server.address, own(1), "p/1/1")
            send(server.address, b"\xff", "p/1/9+2", FRAMED)  # damaged
            send(server.address, batch, "p/1/2+2", FRAMED)
            count = checker.await_all(3)
        assert (count.lost, count.dropped, count.repeated, count.stray) == (0, 1, 0, 1)
        send(server.address, own(4), "p/1/4")
        with Checker(server.address, "out", "end") as again:  # acknowledged messages stay away
            again.await_number(1)
            assert again.missing(4) == [1, 2, 3]
            server.stop()
            with mosquitto(tmp_path / "broker", port=server.port):
                send(server.address, own(5), "p/1/5")
                again.await_number(2)
