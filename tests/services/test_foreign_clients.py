"""Clients of a real broker that have nothing to do with speck."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from speck.api.app import create_app
from speck.fog.mosquitto import Mosquitto
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import job_body
from tests.waiting import wait_for

FOREIGN = "plc-line-7"


class Machine:
    """A client with a persistent session, which reads its own topic."""

    def __init__(self, server: Mosquitto) -> None:
        self.received: list[str] = []
        self.disconnects = 0
        self._subscribed = threading.Event()
        self.client = Client(
            CallbackAPIVersion.VERSION2, FOREIGN, protocol=MQTTProtocolVersion.MQTTv5
        )
        self.client.on_message = lambda *args: self.received.append(args[2].topic)
        self.client.on_subscribe = lambda *_: self._subscribed.set()
        self.client.on_disconnect = self._count
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 3600
        host, _, port = server.address.removeprefix("tcp://").partition(":")
        self.client.connect(host, int(port), clean_start=True, properties=properties)
        self.client.loop_start()
        wait_for(self.client.is_connected)
        self.client.subscribe("plant/line-7", qos=1)
        assert self._subscribed.wait(60)

    def _count(self, *_: Any) -> None:
        self.disconnects += 1

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


@pytest.fixture
def machine(mosquitto_server: Mosquitto) -> Iterator[Machine]:
    connected = Machine(mosquitto_server)
    yield connected
    connected.close()


def test_a_deployer_does_not_throw_out_a_foreign_client(
    machine: Machine, mosquitto_server: Mosquitto, tmp_path: Path
) -> None:
    """Neither by an apply nor by the removal that follows; its session stays as it is."""
    body = site_body("edge-a")
    body["broker"] = {"kind": "mqtt", "address": mosquitto_server.address}
    output = {"topic": "plant/other", "site": "edge-a", "client_id": FOREIGN}
    attack = {"name": "c", "jobs": [job_body("A")], "outputs": [output]}
    with memory_service(tmp_path, [body]) as service:
        service.tokens.add("root", "admin")
        headers = {"Authorization": f"Bearer {service.tokens.add('ci', 'deployer')}"}
        client = create_app(service).test_client()
        applied = client.post("/compositions?wait=30", json=attack, headers=headers)
        client.delete("/compositions/c?wait=30", headers=headers)
    assert machine.disconnects == 0
    machine.client.publish("plant/line-7", b"1", qos=1)
    wait_for(lambda: machine.received == ["plant/line-7"], "its own message")
    machine.client.publish("plant/other", b"2", qos=1)
    machine.client.publish("plant/line-7", b"3", qos=1)
    wait_for(lambda: len(machine.received) > 1, "its next message")
    assert machine.received == ["plant/line-7"] * 2, "no subscription was added"
    assert applied.status_code == 422
    assert "have an administrator apply" in applied.json["detail"]
