"""TLS with client certificates on the legs to a real broker and a real engine.

Their certificates are for 127.0.0.1, so that `localhost` reaches them under a wrong name.
"""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion

from binders.flink.engine import FlinkEngine
from binders.mqtt.broker import MqttBroker
from speck.binding import Target
from speck.config import Config
from speck.errors import BrokerRefusedError, UnreachableError
from speck.fog import flink, mosquitto
from speck.fog.flink import Flink
from speck.fog.flink_conf import FlinkSettings
from speck.fog.mosquitto import Mosquitto
from speck.fog.outputs import OutputReader
from speck.fog.paths import edge_jar
from speck.fog.publisher import ReplayOptions
from speck.fog.replay import Replay
from speck.fog.trace import Row
from speck.service import Service
from speck.sites.credentials import Credentials
from speck.spec.schema import job_from_data
from speck.spec.site_schema import site_from_data
from speck.tls.authority import Authority
from speck.tls.contexts import ClientTls
from speck.tls.identity import SERVICE, Identity, issue_all
from tests.waiting import wait_for

WRONG = "its certificate is not for localhost but for 127.0.0.1"


@dataclass(frozen=True)
class Secured:
    """A site with TLS; `service` is who may do everything there."""

    broker: Mosquitto
    engine: Flink
    site: Identity
    service: Identity

    @property
    def addresses(self) -> list[str]:
        return [self.broker.address, self.engine.url]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("tls")
    authority = folder / "ca"
    issue_all(authority, {"edge-a": "127.0.0.1", "edge-b": "127.0.0.2"})
    site, service = Identity.of_site(authority, "edge-a"), Identity(authority, SERVICE)
    with mosquitto.start(folder / "broker", tls=site) as broker:
        settings = FlinkSettings(
            folder=folder / "engine",
            state=folder / "state",
            slots=2,
            class_path=[edge_jar("speck-flink-connector.jar")],
            checkpoint_interval_s=0.3,
            credentials=folder / "credentials",
            tls=site,
        )
        site.write_credentials(folder / "credentials" / "brokers", [broker.address])
        with flink.start(settings) as engine:
            yield Secured(broker, engine, site, service)


def credentials(folder: Path, login: ClientTls) -> Path:
    """A file for any address."""
    file = folder / "credentials"
    file.touch(0o600)
    lines = [f"{key}={getattr(login, key)}" for key in ("ca", "cert", "key") if getattr(login, key)]
    file.write_text("\n".join(lines) + "\n")
    return file


def wrong_name(address: str) -> str:
    return address.replace("127.0.0.1", "localhost")


def publish(secured: Secured, topic: str, *payloads: bytes) -> None:
    client = mqtt.Client(CallbackAPIVersion.VERSION2, "feed", protocol=mqtt.MQTTv5)
    client.tls_set_context(secured.service.context())
    client.connect(secured.broker.host, secured.broker.port)
    client.loop_start()
    for sent in [client.publish(topic, payload, qos=1) for payload in payloads]:
        sent.wait_for_publish(60)
        assert sent.is_published()
    client.disconnect()
    client.loop_stop()


def test_a_job_runs_through_both(secured: Secured, tmp_path: Path) -> None:
    config = Config(home=tmp_path, jar_folders=(edge_jar("speck-jobs.jar").parent,), watch_s=0)
    secured.service.write_credentials(config.credentials / "edge-a", secured.addresses)
    service = Service(config)
    try:
        service.sites.add(
            site_from_data(
                {
                    "name": "edge-a",
                    "tier": "edge",
                    "spe": {
                        "kind": "flink",
                        "address": secured.engine.url,
                        "credentials": "edge-a",
                    },
                    "broker": {
                        "kind": "mqtt",
                        "address": secured.broker.address,
                        "credentials": "edge-a",
                    },
                }
            )
        )
        description = {
            "job_name": "pass",
            "site": "edge-a",
            "source_topic": "in",
            "sink_topic": "out",
            "entry_class": "io.speck.jobs.PassThrough",
            "job_path": "speck-jobs.jar",
        }
        service.jobs.post(job_from_data(description), wait_s=120)
        login = Credentials(tls=secured.service.files)
        with OutputReader(secured.broker.address, "out", "reader", login) as reader:
            publish(secured, "in", *(b'{"n": %d}' % number for number in range(20)))
            wait_for(lambda: len(reader.records()) >= 20, "all records")
            assert [record["n"] for record in reader.records()] == list(range(20))
        assert service.jobs.get("pass").state == "running"
        findings = service.sites.check("edge-a")
        plain = [each.part for each in findings if each.setting == "TLS"]
        assert plain == ["service"]  # which listens on loopback
        assert not [each for each in findings if each.setting == "allow_anonymous"]
        service.jobs.delete("pass", wait_s=120)
    finally:
        service.close()


def test_an_engine_under_a_wrong_name_is_refused(secured: Secured, tmp_path: Path) -> None:
    file = credentials(tmp_path, secured.service.files)
    assert FlinkEngine(Target(secured.engine.url, file)).view().version
    with pytest.raises(UnreachableError, match=WRONG):
        FlinkEngine(Target(wrong_name(secured.engine.url), file)).view()


def test_a_broker_under_a_wrong_name_is_refused(secured: Secured, tmp_path: Path) -> None:
    file = credentials(tmp_path, secured.service.files)
    assert MqttBroker(Target(secured.broker.address, file)).reach() == "mqtt 5"
    with pytest.raises(BrokerRefusedError, match=WRONG):
        MqttBroker(Target(wrong_name(secured.broker.address), file)).reach()


def test_readers_and_replays_refuse_a_broker_under_a_wrong_name(secured: Secured) -> None:
    wrong = wrong_name(secured.broker.address)
    login = Credentials(tls=secured.service.files)
    with pytest.raises(UnreachableError, match=WRONG):
        OutputReader(wrong, "out", "reader", login)
    rows = [Row("A1", "no detection", None)]
    options = ReplayOptions({"A": wrong}, "x", logins={"A": login})
    with pytest.raises(BrokerRefusedError, match=WRONG):
        Replay(rows, options).run()


def test_without_a_certificate_nobody_is_served(secured: Secured, tmp_path: Path) -> None:
    file = credentials(tmp_path, ClientTls(secured.service.ca))
    with pytest.raises(UnreachableError, match="cannot reach the engine"):
        FlinkEngine(Target(secured.engine.url, file)).view()
    with pytest.raises(UnreachableError, match="name one in the lines `cert` and `key`"):
        MqttBroker(Target(secured.broker.address, file)).reach()


def test_an_engine_obeys_no_other_site(secured: Secured, tmp_path: Path) -> None:
    """Its REST API runs any code: a certificate of the same authority is not enough."""
    other = Identity.of_site(secured.site.authority, "edge-b").files
    file = credentials(tmp_path, other)
    with pytest.raises(UnreachableError, match="cannot reach the engine"):
        FlinkEngine(Target(secured.engine.url, file)).view()
    assert MqttBroker(Target(secured.broker.address, file)).reach() == "mqtt 5"


def test_another_authority_is_not_trusted(secured: Secured, tmp_path: Path) -> None:
    stranger = Authority.create(tmp_path / "ca", datetime.now(UTC))
    file = credentials(tmp_path, replace(secured.service.files, ca=stranger.cert))
    with pytest.raises(UnreachableError, match="the CA file must hold the authority"):
        FlinkEngine(Target(secured.engine.url, file)).view()
    with pytest.raises(BrokerRefusedError, match="the CA file must hold the authority"):
        MqttBroker(Target(secured.broker.address, file)).reach()


def test_a_renewed_client_certificate_needs_no_restart(secured: Secured, tmp_path: Path) -> None:
    stranger = Authority.create(tmp_path / "ca", datetime.now(UTC))
    cert = stranger.issue("me", datetime.now(UTC), client=True).cert
    key = cert.with_suffix(".key")
    file = credentials(tmp_path, ClientTls(secured.service.ca, cert, key))
    broker = MqttBroker(Target(secured.broker.address, file))
    engine = FlinkEngine(Target(secured.engine.url, file))
    for reach in (broker.reach, engine.view):
        with pytest.raises(UnreachableError):
            reach()
    for fresh, old in ((secured.service.key, key), (secured.service.cert, cert)):
        old.write_bytes(fresh.read_bytes())
    assert broker.reach() == "mqtt 5"
    assert engine.view().version
    broker.view()  # and leaves its connection open
    other = stranger.issue("another", datetime.now(UTC), client=True).cert
    for changed, now in ((other.with_suffix(".key"), key), (other, cert)):
        now.write_bytes(changed.read_bytes())
    with pytest.raises(UnreachableError):
        broker.view()


def test_a_renewed_certificate_of_the_broker_needs_a_signal_only(secured: Secured) -> None:
    def serial() -> object:
        context = secured.service.context()
        plain = socket.create_connection((secured.broker.host, secured.broker.port), 10)
        with context.wrap_socket(plain, server_hostname="127.0.0.1") as encrypted:
            peer = encrypted.getpeercert()
        assert peer is not None
        return peer["serialNumber"]

    before = serial()
    authority = Authority(secured.site.authority)
    authority.issue(secured.site.name, datetime.now(UTC), hosts=["127.0.0.1"], force=True)
    secured.broker.process.send(signal.SIGHUP)
    wait_for(lambda: serial() != before, "the new certificate")
