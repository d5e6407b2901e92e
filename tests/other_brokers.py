"""Other MQTT 5 brokers than Mosquitto, for the long contract tests: `make other-brokers` downloads
them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from speck.fog.paths import cache_folder
from speck.fog.ports import accepts, pick_port
from speck.fog.process import Command, find_program, spawn, wait_until

HIVEMQ = """<?xml version="1.0"?>
<hivemq>
  <listeners>
    <tcp-listener><port>{port}</port><bind-address>127.0.0.1</bind-address></tcp-listener>
  </listeners>
  <mqtt>
    <queued-messages><max-queue-size>1000000</max-queue-size></queued-messages>
    <receive-maximum><server-receive-maximum>10000</server-receive-maximum></receive-maximum>
    <packets><max-packet-size>2097152</max-packet-size></packets>
  </mqtt>
  <anonymous-usage-statistics><enabled>false</enabled></anonymous-usage-statistics>
</hivemq>
"""

ARTEMIS = """<configuration xmlns="urn:activemq">
  <core xmlns="urn:activemq:core">
    <persistence-enabled>true</persistence-enabled>
    <journal-type>NIO</journal-type>
    <security-enabled>false</security-enabled>
    <paging-directory>{folder}/paging</paging-directory>
    <bindings-directory>{folder}/bindings</bindings-directory>
    <journal-directory>{folder}/journal</journal-directory>
    <large-messages-directory>{folder}/large</large-messages-directory>
    <max-disk-usage>100</max-disk-usage>
    <acceptors>
      <acceptor name="mqtt">tcp://127.0.0.1:{port}?protocols=MQTT;receiveMaximum=10000</acceptor>
    </acceptors>
    <address-settings>
      <address-setting match="#">
        <max-size-bytes>-1</max-size-bytes>
        <auto-create-queues>true</auto-create-queues>
        <auto-create-addresses>true</auto-create-addresses>
      </address-setting>
    </address-settings>
  </core>
</configuration>
"""

ALLOWING = """
import com.hivemq.HiveMQServer;
import com.hivemq.configuration.service.InternalConfigurations;

public class HiveMq {
    public static void main(String[] args) throws Exception {
        // without an extension that authenticates clients it refuses all
        InternalConfigurations.AUTH_DENY_UNAUTHENTICATED_CONNECTIONS.set(false);
        HiveMQServer.main(args);
    }
}
"""

EMBEDDED = """
import org.apache.activemq.artemis.core.server.embedded.EmbeddedActiveMQ;

public class Artemis {
    public static void main(String[] args) throws Exception {
        EmbeddedActiveMQ server = new EmbeddedActiveMQ();
        server.setConfigResourcePath("file:" + args[0]);
        server.start();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            try { server.stop(); } catch (Exception e) { throw new RuntimeException(e); }
        }));
        Thread.currentThread().join();
    }
}
"""

JVM = ("-Xmx384m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")


@contextmanager
def other_broker(kind: str, folder: Path, port: int | None = None) -> Iterator[str]:
    """Run `hivemq` or `artemis` in a folder, and give its address."""
    jars = cache_folder() / kind
    assert any(jars.glob("*.jar")), f"cannot find {jars}: run `make other-brokers`"
    port = port if port is not None else pick_port("127.0.0.1")
    folder.mkdir(parents=True, exist_ok=True)
    java = str(find_program("java", "install Java 17"))
    make = _hivemq if kind == "hivemq" else _artemis
    command = Command(kind, [java, *JVM, *make(jars, folder, port)], folder, folder / "broker.log")
    process = spawn(command)
    try:
        wait_until(lambda: accepts("127.0.0.1", port), {kind: process}, kind, [command.log], 240.0)
        yield f"tcp://127.0.0.1:{port}"
    finally:
        process.stop(30)


@pytest.fixture(scope="session")
def hivemq_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with other_broker("hivemq", tmp_path_factory.mktemp("hivemq")) as address:
        yield address


@pytest.fixture(scope="session")
def artemis_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with other_broker("artemis", tmp_path_factory.mktemp("artemis")) as address:
        yield address


def _hivemq(jars: Path, folder: Path, port: int) -> list[str]:
    for name in ("conf", "data", "extensions", "log"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "conf" / "config.xml").write_text(HIVEMQ.format(port=port))
    settings: Mapping[str, str] = {"hivemq.home": str(folder)}
    opens = [
        "--add-opens=java.base/java.lang=ALL-UNNAMED",
        "--add-opens=java.base/java.nio=ALL-UNNAMED",
    ]
    opens += ["--add-opens=java.base/sun.nio.ch=ALL-UNNAMED"]
    properties = [f"-D{key}={value}" for key, value in settings.items()]
    (folder / "HiveMq.java").write_text(ALLOWING)
    return [*opens, *properties, "-cp", f"{jars}/*", str(folder / "HiveMq.java")]


def _artemis(jars: Path, folder: Path, port: int) -> list[str]:
    (folder / "broker.xml").write_text(ARTEMIS.format(folder=folder, port=port))
    (folder / "Artemis.java").write_text(EMBEDDED)
    quiet = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
    program = [str(folder / "Artemis.java"), str(folder / "broker.xml")]
    return [quiet, "-cp", f"{jars}/*", *program]
