"""docker/ run outside containers: the very scripts and configs, with real Mosquitto and Flink.

`install.sh` puts an edge site below a temporary folder; only that folder is put in front of the
absolute paths in Flink's config.yaml, everything else runs as it is shipped.
"""

import http.server
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import paho.mqtt.client as mqtt
import pytest
from paho.mqtt.enums import CallbackAPIVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from binders.mqtt.broker import MqttBroker
from speck.binding import Target
from speck.errors import SpeckError
from speck.fog import flink
from speck.fog.paths import flink_folder
from speck.fog.ports import pick_port
from speck.tls.authority import Authority, write_truststore
from speck.tls.identity import Identity
from tests.waiting import wait_for

DOCKER = Path(__file__).parents[2] / "docker"
HOST = "127.0.61.4"
DEADLINE_S = 240.0


@dataclass
class Installed:
    """An edge site below `root`, as install.sh leaves it."""

    root: Path
    broker_port: int

    @property
    def environment(self) -> dict[str, str]:
        data = self.root / "var/lib/speck"
        run = self.root / "run/mosquitto"
        broker_data = self.root / "var/lib/mosquitto"
        for folder in (data, run, broker_data):
            folder.mkdir(parents=True, exist_ok=True)
        return {
            "PATH": os.environ["PATH"] + ":/usr/sbin",
            "HOME": str(self.root),
            "SPECK_LIB": str(self.root / "opt/speck/lib"),
            "SPECK_CONF": str(self.root / "etc/speck/flink"),
            "SPECK_DATA": str(data),
            "SPECK_CREDENTIALS_DIR": str(self.root / "etc/speck/credentials"),
            "SPECK_ENGINE_ADDRESS": HOST,
            "SPECK_ENGINE_SLOTS": "3",
            "SPECK_MQTT_URL": f"tcp://{HOST}:1883",
            "SPECK_MQTT_LISTEN": HOST,
            "SPECK_MQTT_PORT": str(self.broker_port),
            "SPECK_MQTT_DATA": str(broker_data),
            "SPECK_MQTT_RUN": str(run),
            "SPECK_MQTT_CONF": str(self.root / "etc/speck/mosquitto"),
            "SPECK_MQTT_USERS": str(self.root / "etc/speck/mosquitto.users"),
        }

    @property
    def credentials(self) -> dict[str, str]:
        text = (self.root / "etc/speck/credentials/broker").read_text()
        return dict(line.split("=", 1) for line in text.splitlines())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    root = tmp_path_factory.mktemp("site")
    subprocess.run(
        [DOCKER / "systemd/install.sh", HOST, flink_folder() / "lib", root],
        check=True,
        capture_output=True,
        text=True,
    )
    return Installed(root, pick_port(HOST))


def move_paths(config: Path, root: Path) -> None:
    shipped = config.read_text().replace(f"{root}/var", "/var")
    config.write_text(shipped.replace("/var/lib/speck", f"{root}/var/lib/speck"))


class Running:
    """A process of the site's, ended by SIGTERM at the latest when the test ends."""

    def __init__(self, command: list[str | Path], environment: dict[str, str], log: Path) -> None:
        self.log = log
        with log.open("ab") as file:
            self.process = subprocess.Popen(
                [str(word) for word in command],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def wait_for(self, what: str, holds: Callable[[], bool]) -> None:
        def holds_while_it_runs() -> bool:
            assert self.process.poll() is None, f"it ended: {self.log.read_text()[-2000:]}"
            return holds()

        wait_for(holds_while_it_runs, what)

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    def end(self) -> None:
        if self.process.poll() is None:
            try:
                self.stop()
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait(DEADLINE_S)


def listens(port: int, path: str | None = None) -> bool:
    """What the images' health check says."""
    command = [str(DOCKER / "bin/healthy.sh"), str(port), *([path] if path else [])]
    environment = {"PATH": os.environ["PATH"], "SPECK_HEALTH_ADDRESS": HOST}
    return subprocess.run(command, env=environment, capture_output=True).returncode == 0


def stay_root(site: Installed) -> None:
    """Mosquitto started by root gives root up and could not read what root made for it."""
    if os.geteuid() == 0:
        conf = site.root / "etc/speck/mosquitto/mosquitto.conf"
        if "\nuser root\n" not in conf.read_text():
            conf.write_text(conf.read_text() + "user root\n")


def start_broker(site: Installed) -> Running:
    stay_root(site)
    broker = Running(
        [site.root / "opt/speck/bin/broker.sh"], site.environment, site.root / "broker.log"
    )
    broker.wait_for("the broker", lambda: listens(site.broker_port))
    return broker


@pytest.fixture
def broker(site: Installed) -> Iterator[Running]:
    running = start_broker(site)
    yield running
    running.end()


class Client:
    """An MQTT 5 client with a queue of received messages."""

    def __init__(self, site: Installed, client_id: str, login: tuple[str, str] | None) -> None:
        self.answers: queue.Queue[tuple[ReasonCode, Properties | None]] = queue.Queue()
        self.messages: queue.Queue[bytes] = queue.Queue()
        self.client = mqtt.Client(CallbackAPIVersion.VERSION2, client_id, protocol=mqtt.MQTTv5)
        self.client.max_queued_messages_set(0)
        self.client.max_inflight_messages_set(1000)
        if login:
            self.client.username_pw_set(*login)
        self.client.on_connect = lambda *event: self.answers.put((event[3], event[4]))
        self.client.on_message = lambda *event: self.messages.put(event[2].payload)
        self.subscribed: queue.Queue[list[ReasonCode]] = queue.Queue()
        self.client.on_subscribe = lambda *event: self.subscribed.put(event[3])
        expiry = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        expiry.SessionExpiryInterval = 3600
        expiry.ReceiveMaximum = 1000
        self.client.connect(HOST, site.broker_port, clean_start=False, properties=expiry)
        self.client.loop_start()
        self.code, self.properties = self.answers.get(timeout=DEADLINE_S)

    def subscribe(self, topic: str) -> None:
        """Returns when the broker has it: what others publish from then on comes."""
        self.client.subscribe(topic, qos=1)
        assert not any(code.is_failure for code in self.subscribed.get(timeout=DEADLINE_S))

    def close(self) -> None:
        self.client.disconnect()
        self.client.loop_stop()


def login_of(site: Installed) -> tuple[str, str]:
    return site.credentials["user"], site.credentials["password"]


def publish(client: Client, topic: str, numbers: range) -> None:
    sent = [client.client.publish(topic, str(number), qos=1) for number in numbers]
    for message in sent:
        message.wait_for_publish(DEADLINE_S)


def test_the_broker_asks_for_a_password(site: Installed, broker: Running) -> None:
    for wrong in (None, ("speck", "guess")):
        stranger = Client(site, "stranger", wrong)
        assert stranger.code.is_failure
        stranger.close()


def test_the_broker_announces_a_wide_window(site: Installed, broker: Running) -> None:
    client = Client(site, "window", login_of(site))
    assert not client.code.is_failure
    assert client.properties is not None
    assert client.properties.json()["ReceiveMaximum"] == 1000  # type: ignore[no-untyped-call]
    client.close()


def test_a_reader_gets_all_it_missed_even_across_a_restart(
    site: Installed, broker: Running
) -> None:
    """More than Mosquitto's default queue of 1000, in order, and saved at the stop."""
    reader = Client(site, "reader", login_of(site))
    reader.subscribe("traffic/A1")
    publish(reader, "traffic/A1", range(1))
    assert reader.messages.get(timeout=DEADLINE_S) == b"0"
    reader.close()

    writer = Client(site, "writer", login_of(site))
    publish(writer, "traffic/A1", range(1, 2501))
    writer.close()
    assert broker.stop() == 0

    again = start_broker(site)
    try:
        reader = Client(site, "reader", login_of(site))
        payloads = [int(reader.messages.get(timeout=DEADLINE_S)) for _ in range(2500)]
        assert payloads == list(range(1, 2501))
        reader.close()
    finally:
        again.end()


@pytest.mark.parametrize(
    ("credentials", "message"),
    [
        ("user=speck\npassword=secret\naddress=tcp://other:1883\n", "no file in {folder} has"),
        ("user=speck\naddress={url}\n", "{folder}/broker has no user or no password"),
        ("user=speck\npassword=a:b\naddress={url}\n", "a user or password with a colon"),
    ],
)
def test_the_broker_says_what_is_wrong_with_its_credentials(
    site: Installed, tmp_path: Path, credentials: str, message: str
) -> None:
    folder = tmp_path / "credentials"
    folder.mkdir()
    (folder / "broker").write_text(credentials.format(url=site.environment["SPECK_MQTT_URL"]))
    process = subprocess.run(
        [site.root / "opt/speck/bin/broker.sh"],
        env=site.environment
        | {"SPECK_CREDENTIALS_DIR": str(folder), "SPECK_MQTT_RUN": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert process.returncode == 1
    assert message.format(folder=folder) in process.stderr


def test_a_site_may_have_further_users(site: Installed) -> None:
    """As the acl file describes: made by hand, with rights of their own."""
    users = Path(site.environment["SPECK_MQTT_USERS"])
    acl = site.root / "etc/speck/mosquitto/acl"
    shipped = acl.read_text()
    acl.write_text(shipped.replace("#user sensors\n#topic", "user sensors\ntopic"))
    subprocess.run(["mosquitto_passwd", "-c", "-b", users, "sensors", "s3cret"], check=True)
    broker = start_broker(site)
    try:
        speck = Client(site, "speck-reader", login_of(site))
        speck.subscribe("#")
        sensor = Client(site, "sensor", ("sensors", "s3cret"))
        assert not sensor.code.is_failure
        publish(sensor, "speck/taken/forged", range(7, 8))
        publish(sensor, "traffic/A9", range(8, 9))
        assert speck.messages.get(timeout=DEADLINE_S) == b"8"
        sensor.close()
        speck.close()
    finally:
        broker.end()
        acl.write_text(shipped)
        users.unlink()


def get(port: int, path: str) -> Any:
    with urllib.request.urlopen(f"http://{HOST}:{port}{path}", timeout=10) as answer:
        return json.load(answer)


def answers_with_slots(port: int, slots: int) -> bool:
    try:
        return bool(get(port, "/overview")["slots-total"] == slots)
    except OSError:
        return False


def test_the_edge_engine_runs_with_its_config(site: Installed) -> None:
    move_paths(site.root / "etc/speck/flink/config.yaml", site.root)
    port = pick_port(HOST)
    engine = Running(
        [site.root / "opt/speck/bin/engine.sh", "edge"],
        site.environment | {"SPECK_ENGINE_PORT": str(port)},
        site.root / "engine.out",
    )
    try:
        engine.wait_for("the engine's slots", lambda: answers_with_slots(port, 3))
        assert listens(port, "/overview")
        assert not listens(port, "/nothing-of-this-name")
        config = {entry["key"]: entry["value"] for entry in get(port, "/jobmanager/config")}
        options = get(port, "/jobmanager/environment")["jvm"]["options"]
        assert f"-javaagent:{site.root}/opt/speck/lib/speck-exit-guard.jar" in options
        assert "-Dfile.encoding=UTF-8" in options
        assert config["execution.checkpointing.interval"] == "1s"
        assert config["execution.checkpointing.num-retained"] == "5"
        assert config["web.upload.dir"] == f"{site.root}/var/lib/speck/jars"
        assert config["rest.bind-address"] == HOST
        engine.wait_for("its line", lambda: "speck-runtime ready" in engine.log.read_text())
        assert (site.root / "var/lib/speck/log/edge.log").stat().st_size > 0
        assert "edge.out" in [file["name"] for file in get(port, "/jobmanager/logs")["logs"]]
        output = (site.root / "var/lib/speck/log/edge.out").read_text()
        assert re.match(r"speck: edge started \S+Z\n", output)
        assert "speck-runtime ready " in output
        assert engine.stop() == 0
    finally:
        engine.end()


@pytest.fixture
def certificates(site: Installed) -> Identity:
    """In the site's credentials: its own certificate, and that of the service."""
    folder = site.root / "etc/speck/credentials"
    now = datetime.now(UTC)
    authority = Authority.create(folder, now, force=True)
    authority.issue("edge-q", now, hosts=[HOST], keystore=True, force=True)
    authority.issue("service", now, client=True, force=True)
    write_truststore(folder / "edge-q-clients.p12", folder / "service.crt")
    return Identity(folder, "service")


def test_the_broker_lets_in_certificates_in_place_of_passwords(
    site: Installed, certificates: Identity, tmp_path: Path
) -> None:
    stay_root(site)
    environment = site.environment | {"SPECK_TLS_NAME": "edge-q"}
    port = environment["SPECK_MQTT_PORT"] = str(pick_port(HOST))
    broker = Running([site.root / "opt/speck/bin/broker.sh"], environment, tmp_path / "broker.log")
    try:
        broker.wait_for("the broker", lambda: listens(int(port)))
        target = Target(f"ssl://{HOST}:{port}", tmp_path / "login")
        certificates.write_credentials(tmp_path / "login", [target.address])
        assert not MqttBroker(target).reserve("tls-1", "topic").existed  # its user may write
        site_only = Identity(certificates.authority, "edge-q")
        site_only.write_credentials(tmp_path / "login", [target.address])
        assert MqttBroker(target).reserve("tls-1", "topic").existed
        with pytest.raises(SpeckError):
            MqttBroker(Target(target.address)).reach()
    finally:
        broker.end()


@pytest.mark.long
def test_the_engine_obeys_certificates_only(
    site: Installed, certificates: Identity, tmp_path: Path
) -> None:
    move_paths(site.root / "etc/speck/flink/config.yaml", site.root)
    port = pick_port(HOST)
    environment = site.environment | {"SPECK_TLS_NAME": "edge-q", "SPECK_ENGINE_PORT": str(port)}
    engine = Running(
        [site.root / "opt/speck/bin/engine.sh", "edge"], environment, tmp_path / "engine.out"
    )
    try:
        engine.wait_for(
            "the engine's slots",
            lambda: (flink.overview(HOST, port, certificates) or {}).get("slots-total") == 3,
        )
        stranger = Identity(certificates.authority, "edge-q")  # not in its truststore
        assert flink.overview(HOST, port, stranger) is None
        healthy = {"SPECK_HEALTH_ADDRESS": HOST, "SPECK_TLS_NAME": "edge-q"}
        command = [DOCKER / "bin/healthy.sh", str(port), "/overview"]
        assert subprocess.run(command, env=os.environ | healthy).returncode == 0
        assert engine.stop() == 0
    finally:
        engine.end()


@pytest.mark.long
def test_the_cloud_engine_runs_in_two_jvms(site: Installed, tmp_path: Path) -> None:
    conf = tmp_path / "conf"
    conf.mkdir()
    config = conf / "config.yaml"
    config.write_text((DOCKER / "flink/cloud/config.yaml").read_text())
    move_paths(config, tmp_path)
    (conf / "log4j.properties").write_text((DOCKER / "flink/log4j.properties").read_text())
    # what the image has and a Pi does not need
    tools = site.root / "opt/speck/lib/bin"
    tools.mkdir(exist_ok=True)
    shutil.copy(flink_folder() / "bin/bash-java-utils.jar", tools)
    rest, rpc = pick_port(HOST), pick_port(HOST)
    environment = site.environment | {
        "SPECK_CONF": str(conf),
        "SPECK_DATA": str(tmp_path / "var/lib/speck"),
        "SPECK_ENGINE_PORT": str(rest),
    }
    command: list[str | Path] = [site.root / "opt/speck/bin/engine.sh"]
    options: list[str | Path] = [f"-Djobmanager.rpc.port={rpc}", f"-Dtaskmanager.host={HOST}"]
    manager = Running([*command, "jobmanager", *options], environment, tmp_path / "jobmanager.out")
    worker = Running([*command, "taskmanager", *options], environment, tmp_path / "worker.out")
    try:
        manager.wait_for(
            "the taskmanager's slots",
            lambda: worker.process.poll() is None and answers_with_slots(rest, 3),
        )
        settings = {entry["key"]: entry["value"] for entry in get(rest, "/jobmanager/config")}
        assert settings["heartbeat.timeout"] == "10000"
        assert listens(rest, "/overview")
    finally:
        worker.end()
        manager.end()


def test_the_agent_of_an_installed_site_asks_the_service(site: Installed, tmp_path: Path) -> None:
    """With the unit's own command line, run from the installed files alone."""
    text = (site.root / "etc/systemd/system/speck-agent.service").read_text()
    command = re.findall(r"^ExecStart=\S+ (.*)$", text, re.M)[0]
    token = tmp_path / "token"
    token.write_text("of-edge-q\n")
    requests_queue: queue.Queue[tuple[str, str | None]] = queue.Queue()

    class Service(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            requests_queue.put((self.path, self.headers["Authorization"]))
            self.send_error(503)

        do_GET = do_POST

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    values = {
        "${SPECK_SITE}": "edge-q",
        "${SPECK_SERVER}": f"http://127.0.0.1:{server.server_port}",
        "${SPECK_AGENT_LISTEN}": f"{HOST}:0",
        "$SPECK_AGENT_OPTIONS": "",
        "/var/lib/speck/state": str(tmp_path / "state"),
        "/etc/speck/credentials/agent-token": str(token),
    }
    for name, value in values.items():
        assert name in command
        command = command.replace(name, value)
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(site.root / "opt/speck/python")}
    agent = Running([sys.executable, *command.split()], environment, tmp_path / "agent.out")
    try:
        heads = {requests_queue.get(timeout=DEADLINE_S) for _ in range(2)}
        identity = (tmp_path / "state/.speck-agent").read_text().strip()
        assert heads == {
            (f"/sites/edge-q/commands?wait=25&agent={identity}", "Bearer of-edge-q"),
            ("/sites/edge-q/heartbeat", "Bearer of-edge-q"),
        }
    finally:
        agent.end()
        server.shutdown()
        server.server_close()


def test_a_second_install_keeps_credentials_and_settings(site: Installed) -> None:
    before = site.credentials
    own = site.root / "etc/speck/edge.env"
    own.write_text(f"SPECK_ENGINE_ADDRESS={HOST}\nSPECK_ENGINE_SLOTS=4\n")
    subprocess.run(
        [DOCKER / "systemd/install.sh", HOST, flink_folder() / "lib", site.root],
        check=True,
        capture_output=True,
    )
    assert site.credentials == before
    assert "SPECK_ENGINE_SLOTS=4" in own.read_text()
