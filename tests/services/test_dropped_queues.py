"""The queue of a reader outside speck at a real Mosquitto: kept until its drop is asked for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion

from speck.cli.main import root
from speck.fog.mosquitto import Mosquitto
from speck.fog.outputs import OutputReader
from speck.model.ids import sink_client_id
from speck.model.link import Link
from speck.service import Service
from tests.memory_fog import memory_service, site_body
from tests.served import served
from tests.service_helpers import DONE, composition, job_body
from tests.waiting import wait_for

COUNT = 650
READER = {"site": "edge-a", "topic": "A-out", "client_id": "q-db"}


@pytest.fixture
def service(tmp_path: Path, mosquitto_server: Mosquitto) -> Iterator[Service]:
    body = site_body("edge-a")
    body["broker"] = {"kind": "mqtt", "address": mosquitto_server.address}
    with memory_service(tmp_path, [body]) as opened:
        opened.compositions.apply(composition(job_body("A"), outputs=[READER]), DONE)
        yield opened


def publish(service: Service, server: Mosquitto) -> None:
    """Publish as the sink of A does, and report it."""
    source = service.records.inventory("c").jobs["A"].job.source
    sink = sink_client_id(service.records.installation, "A", source, Link("edge-a", "A-out"))
    client = Client(CallbackAPIVersion.VERSION2, "as-a", protocol=MQTTProtocolVersion.MQTTv5)
    host, _, port = server.address.removeprefix("tcp://").partition(":")
    client.connect(host, int(port))
    client.loop_start()
    sent = [client.publish("A-out", b'{"n": %d}' % n, qos=1) for n in range(COUNT)]
    report = {"v": 1, "producer": "a", "epoch": 1, "number": COUNT, "topic": "A-out"}
    sent.append(client.publish(f"speck/sent/{sink}", json.dumps(report), qos=1, retain=True))
    for each in sent:
        each.wait_for_publish(60)
    client.disconnect()
    client.loop_stop()


def destroy(url: str, *more: str) -> Result:
    return CliRunner().invoke(root, ["destroy", "c", "--yes", "--server", url, *more])


def test_the_messages_nobody_has_read_are_dropped_only_with_their_own_option(
    service: Service, mosquitto_server: Mosquitto
) -> None:
    publish(service, mosquitto_server)
    with served(service) as url:
        refused = destroy(url)
        assert refused.exit_code == 1
        assert "drops the queue of q-db at edge-a/A-out (at most 650 messages" in refused.stderr
        assert "--drop-queues" in refused.stderr
        with OutputReader(mosquitto_server.address, "A-out", "q-db") as reader:
            wait_for(lambda: len(reader.records()) == COUNT, "all that was sent")
        publish(service, mosquitto_server)
        dropped = destroy(url, "--drop-queues")
        assert dropped.exit_code == 0, dropped.output
        assert "drops the queue of q-db" in dropped.stderr
    with OutputReader(mosquitto_server.address, "A-out", "q-db") as reader:
        client = Client(CallbackAPIVersion.VERSION2, "last", protocol=MQTTProtocolVersion.MQTTv5)
        host, _, port = mosquitto_server.address.removeprefix("tcp://").partition(":")
        client.connect(host, int(port))
        client.loop_start()
        wait_for(lambda: client.publish("A-out", b'"end"', qos=1) and bool(reader.records()))
        client.disconnect()
        client.loop_stop()
        assert all(record == "end" for record in reader.records()), "its session was new"
