"""What the check of an MQTT broker finds: settings, clients that are taken for one, bridges."""

from __future__ import annotations

import socket
import subprocess
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from paho.mqtt.enums import MQTTProtocolVersion

from binders.mqtt import MqttBroker, check
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection
from speck.binding import BrokerCapability, Target
from speck.errors import BrokerRefusedError, UnreachableError
from speck.fog.mosquitto import Mosquitto
from speck.model.finding import Finding
from speck.sites.credentials import Credentials
from tests.guarded_broker import connect, guarded, reading, write_credentials
from tests.mosquitto_server import CARELESS, mosquitto
from tests.old_protocol import only_3_1_1

# -- settings -----------------------------------------------------------------------------


def by_setting(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.setting: finding for finding in findings}


def test_a_well_set_broker_has_only_what_cannot_be_seen(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server:
        findings = MqttBroker(Target(server.address)).check()

    assert [finding.severity for finding in findings] == ["warning"] * 3
    assert all("cannot be seen from outside" in finding.value for finding in findings)


def test_careless_settings_are_found_each_with_its_line(tmp_path: Path) -> None:
    with mosquitto(tmp_path, **CARELESS, max_packet_size="2000") as server:
        findings = MqttBroker(Target(server.address)).check()

    assert findings[0].severity == "error"
    findings_by_setting = by_setting(findings)
    assert findings_by_setting["max_queued_messages"].severity == "error"
    assert (
        findings_by_setting["max_queued_messages"].value
        == f"a session kept 1000 of {check.PROBE_MESSAGES}"
        " messages"
    )
    assert findings_by_setting["max_queued_messages"].mend.startswith("max_queued_messages 1000000")
    assert findings_by_setting["max_inflight_messages"].mend == "max_inflight_messages 1000"
    assert findings_by_setting["max_packet_size"].value == "2000 bytes"
    assert findings_by_setting["persistence"].mend.startswith("persistence true")


def test_a_limit_of_the_messages_size_is_found_by_a_probe(tmp_path: Path) -> None:
    with mosquitto(tmp_path, message_size_limit="65536") as server:
        findings_by_setting = by_setting(MqttBroker(Target(server.address)).check())

    finding = findings_by_setting["message_size_limit"]
    assert finding.severity == "error"
    assert finding.value.startswith("a message of 1048576 bytes does not get through: ")
    assert "Packet too large" in finding.value
    assert finding.mend == "message_size_limit 1048576"


def test_a_record_over_the_message_size_limit_is_refused_with_the_setting(tmp_path: Path) -> None:
    with mosquitto(tmp_path, message_size_limit="65536") as server:
        broker = MqttBroker(Target(server.address))
        with pytest.raises(BrokerRefusedError, match="'Packet too large'; raise its message_size"):
            broker.publish("t", [b"x", bytes(65537)])
        assert broker.publish("t", [b"x", bytes(65536)]) == 2
        broker.close()


def test_with_mqtt_3_a_message_that_is_too_large_is_read_back(tmp_path: Path) -> None:
    with mosquitto(tmp_path, message_size_limit="65536") as server:

        def open_(
            options: ConnectOptions, on_message: Any = None, anonymous: bool = False
        ) -> Connection:
            deadline = time.monotonic() + 10
            return Connection(
                server.address,
                Credentials(),
                options,
                deadline,
                MQTTProtocolVersion.MQTTv311,
                on_message,
            )

        assert check.probe_size(open_, 65537) == "it is acknowledged and dropped"
        assert check.probe_size(open_, 65536) is None


def test_without_retained_messages_nothing_works_and_check_says_so(tmp_path: Path) -> None:
    with mosquitto(tmp_path, retain_available="false") as server:
        findings_by_setting = by_setting(MqttBroker(Target(server.address)).check())

    assert findings_by_setting["retain_available"].severity == "error"


def test_messages_dropped_so_far_are_told(tmp_path: Path) -> None:
    with mosquitto(tmp_path, max_queued_messages="10", sys_interval="1") as server:
        broker = MqttBroker(Target(server.address))
        broker.reserve("reader", "t")
        with connect(server.address, ConnectOptions("outside")) as connection:
            for _ in range(50):
                connection.publish("t", b"x")
        wait_for_drops(server)

        drops = [f for f in broker.check() if "dropped since" in f.value]

    assert [finding.severity for finding in drops] == ["error"]


def wait_for_drops(server: Mosquitto) -> None:
    """Until the broker has counted: it publishes its counters once a second."""
    with reading(server.address, ConnectOptions("waits")) as (connection, payloads):
        connection.subscribe("$SYS/broker/publish/messages/dropped")
        connection.wait(lambda: any(count != b"0" for count in payloads), "see drops")


def test_who_may_not_use_our_topics_is_told(tmp_path: Path) -> None:
    with guarded(tmp_path, acl="user speck\ntopic readwrite traffic/#") as server:
        file = write_credentials(tmp_path, user="speck", password="secret=1")
        findings_by_setting = by_setting(
            MqttBroker(Target(server.address, file, timeout_s=2)).check()
        )

    assert findings_by_setting["acl_file"].severity == "error"
    assert findings_by_setting["acl_file"].mend == "topic readwrite speck/#"


def test_check_leaves_no_session_behind(tmp_path: Path) -> None:
    with mosquitto(tmp_path, sys_interval="1") as server:
        broker = MqttBroker(Target(server.address))
        broker.check()
        broker.check()

        with reading(server.address, ConnectOptions("waits")) as (connection, payloads):
            connection.subscribe("$SYS/broker/clients/total")
            connection.wait(lambda: payloads[-1:] == [b"1"], "see one client only")


def test_check_says_that_a_3_1_1_broker_carries_no_numbers(tmp_path: Path) -> None:
    with mosquitto(tmp_path) as server, only_3_1_1(server) as address:
        findings_by_setting = by_setting(MqttBroker(Target(address)).check())

    assert findings_by_setting["protocol"].value == "MQTT 3.1.1 only"


# -- identities, bridges, old brokers that hang up -------------------------------------------


def test_a_broker_that_takes_all_clients_of_a_user_for_one_is_named(tmp_path: Path) -> None:
    password = tmp_path / "passwd"
    subprocess.run(["mosquitto_passwd", "-b", "-c", password, "speck", "secret"], check=True)
    credentials = write_credentials(tmp_path, user="speck", password="secret")
    settings = {"allow_anonymous": "false", "password_file": str(password)}
    with mosquitto(tmp_path / "b", use_username_as_clientid="true", **settings) as server:
        findings = MqttBroker(Target(server.address, credentials=credentials)).check()
    assert [(each.severity, each.setting) for each in findings] == [
        ("error", "use_username_as_clientid")
    ]
    with mosquitto(tmp_path / "c", **settings) as server:
        findings = MqttBroker(Target(server.address, credentials=credentials)).check()
    assert "use_username_as_clientid" not in {each.setting for each in findings}


def test_a_bridge_is_named_at_both_of_its_ends(tmp_path: Path) -> None:
    with mosquitto(tmp_path / "far") as far:
        settings = f"to-far\naddress {far.host}:{far.port}\ntopic # both 1"
        with mosquitto(tmp_path / "near", connection=settings) as near:
            for server in (near, far):
                broker = MqttBroker(Target(server.address))
                deadline = time.monotonic() + 60
                while not (found := [f for f in broker.check() if f.setting == "connection"]):
                    assert time.monotonic() < deadline
                (finding,) = found
                assert "to-far" in finding.value and finding.severity == "warning"
                (bridge,) = broker.view().bridges
                assert bridge.endswith("to-far")


def test_an_old_broker_that_hangs_up_on_mqtt_5_is_spoken_to_in_3_1_1(
    mosquitto_server: Mosquitto,
) -> None:
    with only_3_1_1(mosquitto_server, refusal=b"") as address:
        broker = MqttBroker(Target(address))
        assert broker.reach() == "mqtt 3.1.1"
        assert BrokerCapability.NUMBERS not in broker.capabilities
        assert broker.reach() == "mqtt 3.1.1"
        (finding,) = (each for each in broker.check() if each.setting == "protocol")
    assert (finding.severity, finding.value) == ("warning", "MQTT 3.1.1 only")


def test_a_server_that_hangs_up_on_everybody_is_unreachable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hang_up() -> None:
            with suppress(OSError):
                while True:
                    server.accept()[0].close()

        threading.Thread(target=hang_up, daemon=True).start()
        broker = MqttBroker(Target(f"tcp://127.0.0.1:{server.getsockname()[1]}"))
        with pytest.raises(UnreachableError):
            broker.reach()
        assert BrokerCapability.NUMBERS in broker.capabilities
        server.shutdown(socket.SHUT_RDWR)
