"""Programs of edge_jobs/python in processes of their own, and the links that they join."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from speck.binding import open_links
from speck.model.record import Record
from tests.waiting import wait_for

ROOT = Path(__file__).parents[1]
SOURCES = ROOT / "edge_jobs/python"
LAUNCH = ROOT / "speck/runner/launch.py"
CLIENT_ID = "speck-1234abcd-J-aaaaaaaa"


def build_programs(folder: Path) -> Path:
    """The archive of programs, built anew."""
    spec = importlib.util.spec_from_file_location("build", SOURCES / "build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    built: Path = module.build(folder / "speck-programs.pyz")
    return built


class PythonJob:
    """One program between two topics; it is started as the runner does it."""

    def __init__(
        self, archive: Path, folder: Path, source: tuple[str, str], sink: tuple[str, str]
    ) -> None:
        self.folder, self._archive = folder, archive
        self._links = source, sink
        self._state = folder / "state"
        self._state.mkdir(parents=True)
        self._starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self, program: str, *args: str, epoch: int = 1, awaited: bool = True) -> None:
        """Start it and wait until it is ready, unless it will not be."""
        self._starts += 1
        (source, source_topic), (sink, sink_topic) = self._links
        contract = (
            *("--job-name", "J", "--client-id", CLIENT_ID, "--epoch", str(epoch)),
            *("--source-broker", source, "--source-topic", source_topic),
            *("--sink-broker", sink, "--sink-topic", sink_topic),
        )
        content = {
            "artifact": str(self._archive),
            "entry": f"speck_programs.{program}",
            "args": [*contract, *args],
        }
        start = self.folder / "start.json"
        start.write_text(json.dumps(content))
        environment = {
            "SPECK_STATE_DIR": str(self._state),
            "SPECK_START": str(self._starts),
            "SPECK_REPORT": str(self.folder / "report.json"),
            "SPECK_REQUEST": str(self.folder / "request"),
        }
        self.process = subprocess.Popen(
            [sys.executable, "-u", "-P", "-c", LAUNCH.read_text(), str(start)],
            env={**os.environ, **environment},
        )
        if awaited:
            wait_for(lambda: self.report().get("ready"), "the program to be ready", 60)

    def report(self) -> dict[str, Any]:
        """What it reports of its present start."""
        assert self.process is not None
        assert self.process.poll() in (None, 0), "it has failed"
        with suppress(FileNotFoundError, ValueError):
            report: dict[str, Any] = json.loads((self.folder / "report.json").read_text())
            return report if report["start"] == self._starts else {}
        return {}

    def kill(self) -> None:
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(60) == 0

    def save(self) -> None:
        """Ask for a checkpoint and wait for it."""
        wanted = int(self.report()["request"]) + 1
        (self.folder / "request.new").write_text(str(wanted))
        (self.folder / "request.new").rename(self.folder / "request")
        wait_for(lambda: self.report().get("request") == wanted, "the checkpoint", 60)


@contextmanager
def publisher(address: str) -> Iterator[Callable[..., None]]:
    """A function that publishes payloads with stamps from a number on, and waits until the broker
    has them."""
    host, _, port = address.partition("://")[2].rpartition(":")
    client = Client(CallbackAPIVersion.VERSION2, protocol=MQTTProtocolVersion.MQTTv5)
    client.max_inflight_messages_set(500)
    client.connect(host, int(port))
    client.loop_start()

    def publish(topic: str, payloads: Sequence[bytes], first: int = 1, epoch: int = 1) -> None:
        sent = []
        for number, payload in enumerate(payloads, first):
            properties = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
            properties.UserProperty = ("speck", f"src/{epoch}/{number}")
            sent.append(client.publish(topic, payload, 1, properties=properties))
        for each in sent:
            each.wait_for_publish(60)

    yield publish
    client.disconnect()
    client.loop_stop()


@contextmanager
def reading(address: str, topic: str, name: str = "spy") -> Iterator[list[Record]]:
    """What comes on a topic, batches opened; the session is kept."""
    records: list[Record] = []
    damaged: list[bytes] = []
    kind = "kafka" if address.startswith("kafka") else "mqtt"
    with open_links(kind, address).reader(topic, name, records.append, damaged.append):
        yield records
    assert damaged == []
