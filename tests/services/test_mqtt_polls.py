"""Polls of a real Mosquitto, which share one connection as long as it lasts."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import binders.mqtt.opening
import binders.mqtt.poll
from binders.mqtt import MqttBroker
from binders.mqtt.channel import V311
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection
from binders.mqtt.poll import Poll
from speck.binding import Target
from speck.errors import BrokerRefusedError, UnreachableError
from speck.fog.mosquitto import Mosquitto
from speck.sites.credentials import Credentials
from tests.mosquitto_server import mosquitto
from tests.waiting import wait_for


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Connection]:
    """The connections that a binder opens."""
    connections: list[Connection] = []

    class Counted(Connection):
        def __init__(self, *args: Any, **named: Any) -> None:
            connections.append(self)
            super().__init__(*args, **named)

    monkeypatch.setattr(binders.mqtt.opening, "Connection", Counted)
    return connections


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Mosquitto]:
    with mosquitto(tmp_path / "broker", sys_interval="1") as server:
        yield server


def tell(server: Mosquitto, sink: str, number: int | None) -> None:
    """Publish a sink's number as a job does, or clear it."""
    report = b'{"v":1,"producer":"p","epoch":1,"number":%d}' % number if number else b""
    deadline = time.monotonic() + 60
    with Connection(server.address, Credentials(), ConnectOptions("a-job"), deadline) as job:
        job.publish(f"speck/sent/{sink}", report, retain=True)


def numbers(broker: MqttBroker) -> dict[str, int]:
    return {sink: sent.number for sink, sent in broker.view().sent.items()}


@pytest.mark.parametrize("version", ["mqtt 5", "mqtt 3.1.1"])
def test_polls_on_one_connection_read_what_is_retained_now(
    server: Mosquitto, opened: list[Connection], version: str
) -> None:
    broker = MqttBroker(Target(server.address))
    if version == "mqtt 3.1.1":
        broker._opener.version = V311
    assert numbers(broker) == {}
    tell(server, "one", 1)
    tell(server, "other", 1)
    assert numbers(broker) == {"one": 1, "other": 1}
    tell(server, "one", 2)
    tell(server, "other", None)
    assert numbers(broker) == {"one": 2}
    assert numbers(broker) == {"one": 2}
    broker.forget("one")
    _, view = broker.measure()
    assert view.sent == {}
    wait_for(lambda: broker.measure()[0].clients is not None, "totals")
    assert wait_for(lambda: broker.measure()[0].clients == 1, "clients")
    assert len(opened) == 1, "one for the polls, and to forget"


def test_changes_behind_a_poll_are_no_news_to_the_next(
    server: Mosquitto, opened: list[Connection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """They come before UNSUBSCRIBE reaches the broker, are too many to be sent without
    acknowledgements, and are cleared before the next poll."""
    broker = MqttBroker(Target(server.address))
    finish = Poll.finish

    def finish_late(poll: Poll, connection: Connection) -> None:
        unsubscribe = connection.begin_unsubscribe

        def unsubscribe_late(*topics: str) -> None:
            tell_many(server, b'{"v":1,"producer":"p","epoch":1,"number":7}')
            unsubscribe(*topics)
            tell_many(server, b"")

        monkeypatch.setattr(connection, "begin_unsubscribe", unsubscribe_late)
        finish(poll, connection)

    with monkeypatch.context() as patched:
        patched.setattr(Poll, "finish", finish_late)
        assert numbers(broker) == {}
    assert numbers(broker) == {}
    tell(server, "one", 1)
    assert numbers(broker) == {"one": 1}
    assert len(opened) == 1


def tell_many(server: Mosquitto, report: bytes) -> None:
    deadline = time.monotonic() + 60
    with Connection(server.address, Credentials(), ConnectOptions("jobs"), deadline) as jobs:
        jobs.publish_all({f"speck/sent/{n}": report for n in range(500)}, retain=True)


def test_a_restart_of_the_broker_between_polls_is_no_error(
    tmp_path: Path, opened: list[Connection]
) -> None:
    with mosquitto(tmp_path) as first:
        broker = MqttBroker(Target(first.address))
        tell(first, "one", 1)
        assert numbers(broker) == {"one": 1}
    with pytest.raises(UnreachableError, match=r"^cannot reach the broker"):
        broker.view()
    with mosquitto(tmp_path, port=first.port) as second:
        assert numbers(broker) == {"one": 1}
        second.kill()
        with mosquitto(tmp_path, port=first.port):
            broker.view()
            broker.view()
    assert len(opened) == 4


def test_a_restart_of_the_broker_does_not_keep_numbers_from_being_cleared(
    tmp_path: Path, opened: list[Connection]
) -> None:
    with mosquitto(tmp_path) as first:
        broker = MqttBroker(Target(first.address))
        tell(first, "one", 1)
        assert numbers(broker) == {"one": 1}
    with mosquitto(tmp_path, port=first.port):
        broker.forget("one")
        assert len(opened) == 2
        assert numbers(broker) == {}


def test_overlapping_polls_have_connections_of_their_own(
    server: Mosquitto, opened: list[Connection]
) -> None:
    broker = MqttBroker(Target(server.address))
    tell(server, "one", 1)
    together = threading.Barrier(6)

    def poll(_: int) -> None:
        for _round in range(20):
            together.wait(60)
            assert numbers(broker) == {"one": 1}

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(poll, range(6)))
    assert sum(connection.is_open for connection in opened) == 1
    broker.close()
    assert not any(connection.is_open for connection in opened)


def test_a_changed_password_is_used_by_the_next_poll(
    tmp_path: Path, opened: list[Connection]
) -> None:
    passwords, file = tmp_path / "passwd", tmp_path / "credentials"
    subprocess.run(["mosquitto_passwd", "-b", "-c", passwords, "speck", "secret"], check=True)
    settings = {"allow_anonymous": "false", "password_file": str(passwords)}

    def write(password: str) -> None:
        file.write_text(f"user=speck\npassword={password}\n")
        file.chmod(0o600)

    with mosquitto(tmp_path / "broker", **settings) as server:
        write("secret")
        broker = MqttBroker(Target(server.address, file))
        broker.view()
        broker.view()
        assert len(opened) == 1
        write("wrong")
        with pytest.raises(BrokerRefusedError, match="as user 'speck'"):
            broker.view()
        write("secret")
        broker.view()
        assert [connection.is_open for connection in opened] == [False, False, True]


@pytest.mark.parametrize("limit", ["LONGEST_IDLE_S", "LONGEST_KEPT_S"])
def test_an_old_connection_is_not_used_again(
    server: Mosquitto, opened: list[Connection], monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    broker = MqttBroker(Target(server.address))
    broker.view()
    monkeypatch.setattr(binders.mqtt.poll, limit, 0.0)
    broker.view()
    assert [connection.is_open for connection in opened] == [False, True]
