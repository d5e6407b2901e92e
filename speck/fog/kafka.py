"""Starts a real Kafka, broker and controller in one small JVM, with settings that lose nothing."""

from __future__ import annotations

import base64
import shutil
import subprocess
import uuid
from collections.abc import Mapping
from pathlib import Path

from speck.errors import PermanentError
from speck.fog.broker_process import BrokerProcess
from speck.fog.paths import cache_folder
from speck.fog.ports import accepts, pick_port
from speck.fog.process import Command, Launch, find_program, spawn, wait_until
from speck.tls.authority import KEYSTORE_PASSWORD
from speck.tls.identity import Identity

PORT = 9092

SETTINGS: Mapping[str, str] = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.listener.names": "CONTROLLER",
    "auto.create.topics.enable": "false",
    "offsets.retention.minutes": "43200",
    "message.max.bytes": "2097152",
    # one broker: nothing has a replica
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # a small JVM: fewer files, and no 128 MB for the cleaner of logs
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "num.network.threads": "2",
    "num.io.threads": "4",
    "group.initial.rebalance.delay.ms": "0",
}
"""The settings in server.properties that are the same for all sites."""

JVM = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")

_QUIET = {
    "org.slf4j.simpleLogger.defaultLogLevel": "warn",
    "org.slf4j.simpleLogger.showDateTime": "true",
    "org.slf4j.simpleLogger.dateTimeFormat": "yyyy-MM-dd'T'HH:mm:ss",
}


class Kafka(BrokerProcess):
    """A running Kafka; what it has acknowledged survives a kill."""

    STOP_S = 30.0
    SCHEMES = ("kafka", "kafka+ssl")


def kafka_jars() -> Path:
    """The folder of Kafka's jars. Raises PermanentError with a hint how to get them."""
    folder = cache_folder() / "kafka"
    if not any(folder.glob("kafka_*.jar")):
        raise PermanentError(
            f"cannot find Kafka's jars in {folder}: run `make kafka` in the checkout"
        )
    return folder


def start(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int | None = None,
    settings: Mapping[str, str] | None = None,
    protocol: str | None = None,
    tls: Identity | None = None,
    launch: Launch = spawn,
    timeout_s: float = 180.0,
) -> Kafka:
    """Start a broker with its files in `folder`, and wait until it accepts connections.

    Without `port`, a free one is chosen. `settings` are added to `SETTINGS` or override them. With
    the folder of an earlier run, the broker has the topics and groups of that run. With `tls` it
    accepts only TLS with client certificates; `protocol` is that of its listener otherwise. Raises
    PermanentError when Kafka or Java is not installed, or when it does not come up.
    """
    java = find_program("java", "install Java 17 or later (apt-get install default-jre-headless)")
    jars = kafka_jars()
    port = port if port is not None else pick_port(host)
    secured = _secure(tls) if tls is not None else {}
    protocol = protocol or ("SSL" if tls is not None else "PLAINTEXT")
    own = {**SETTINGS, **secured, **(settings or {})}
    conf = _write_conf(folder, host, port, protocol, own)
    program = [str(java), *JVM, *(f"-D{key}={value}" for key, value in _QUIET.items())]
    program += ["-cp", f"{jars}/*"]
    if not (folder / "data" / "meta.properties").exists():
        _format(program, folder, conf, timeout_s)
    argv = [*program, "kafka.Kafka", str(conf)]
    command = Command("broker", argv, folder, folder / "log" / "broker.log")
    process = launch(command)
    broker = Kafka(process, host, port, folder, tls is not None)
    try:
        wait_until(
            lambda: accepts(host, port),
            {"kafka": process},
            f"kafka at {broker.address}",
            [command.log],
            timeout_s,
        )
    except BaseException:
        process.kill()
        raise
    return broker


def _write_conf(
    folder: Path, host: str, port: int, protocol: str, settings: Mapping[str, str]
) -> Path:
    """The controller's port is known to this broker alone, so that each start may pick another."""
    folder.mkdir(parents=True, exist_ok=True)
    controller = pick_port(host, port + 1)
    own = {
        "listeners": f"{protocol}://{host}:{port},CONTROLLER://{host}:{controller}",
        "advertised.listeners": f"{protocol}://{host}:{port}",
        "listener.security.protocol.map": f"CONTROLLER:PLAINTEXT,{protocol}:{protocol}",
        "inter.broker.listener.name": protocol,
        "controller.quorum.voters": f"1@{host}:{controller}",
        "log.dirs": str(folder / "data"),
    }
    conf = folder / "server.properties"
    lines = (f"{key}={value}" for key, value in {**own, **settings}.items())
    conf.write_text("\n".join(lines) + "\n")
    return conf


def _secure(tls: Identity) -> dict[str, str]:
    """Nobody connects without a certificate of the authority."""
    own, trusted = tls.authority / f"{tls.name}.p12", tls.authority / "ca.p12"
    return {
        "ssl.client.auth": "required",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(own),
        "ssl.keystore.password": KEYSTORE_PASSWORD,
        "ssl.key.password": KEYSTORE_PASSWORD,
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": str(trusted),
        "ssl.truststore.password": KEYSTORE_PASSWORD,
    }


def _format(program: list[str], folder: Path, conf: Path, timeout_s: float) -> None:
    """Give the empty folder of the broker's files the id of a new cluster. A folder that this has
    left half done is made anew."""
    shutil.rmtree(folder / "data", ignore_errors=True)
    cluster_id = base64.urlsafe_b64encode(b"\0" + uuid.uuid4().bytes[1:]).decode().rstrip("=")
    argv = [*program, "kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", str(conf)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        shutil.rmtree(folder / "data", ignore_errors=True)
        words = (done.stdout + done.stderr).strip().splitlines()[-5:]
        raise PermanentError("cannot prepare Kafka's files: " + "\n".join(words))
