"""What a killed broker still has of the sessions that a binder made; run on the memory binder, and
on real Mosquitto over MQTT 5 and 3.1.1.

Mosquitto writes sessions, queues and retained messages to its file together, at each autosave: what
was there then must be there after a SIGKILL.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import pytest

from binders.memory import Message, World
from binders.mqtt.channel import V5, V311
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection
from speck.binding import MessageBroker, Target, open_broker
from speck.fog.mosquitto import Mosquitto
from speck.monitor.links import FOR_GOOD_S, ReaderOf
from speck.monitor.lost_tails import TailMemory, judge_tails
from speck.sites.credentials import Credentials
from tests.mosquitto_server import mosquitto
from tests.old_protocol import only_3_1_1
from tests.waiting import wait_for

READER, TOPIC = "speck-abc-merge-1", "traffic/a"
PAYLOADS = [b"%d" % number for number in range(100)]


class MortalBroker(Protocol):
    """A broker that can be killed, seen from the other side."""

    def open(self) -> MessageBroker: ...

    def publish(self, payloads: list[bytes]) -> None:
        """Publish to TOPIC."""

    def drain(self, client_id: str) -> list[bytes] | None:
        """What waits in a session; None: there is no such session. It ends with this."""

    def save(self) -> None:
        """Return once all that happened before is in the broker's file."""

    def kill(self) -> None:
        """Kill it, and start it again with its file."""


class MemoryServer:
    def __init__(self) -> None:
        self.broker = World.reset().broker("tcp://site:1883")

    def open(self) -> MessageBroker:
        return open_broker("memory", Target("tcp://site:1883"))

    def publish(self, payloads: list[bytes]) -> None:
        for payload in payloads:
            self.broker.publish(TOPIC, Message(payload))

    def drain(self, client_id: str) -> list[bytes] | None:
        session = self.broker.sessions.pop(client_id, None)
        return [message.payload for message in session.waiting] if session else None

    def save(self) -> None:
        self.broker.autosave()

    def kill(self) -> None:
        self.broker.kill()


class MosquittoServer:
    def __init__(self, stack: ExitStack, folder: Path, version: int) -> None:
        self._stack = stack
        self._folder = folder
        self._server: Mosquitto = self._start(None)
        self._address = self._server.address
        if version == V311:
            self._address = stack.enter_context(only_3_1_1(self._server))

    def _start(self, port: int | None) -> Mosquitto:
        settings = {"autosave_interval": "1", "log_type": "error"}
        return self._stack.enter_context(mosquitto(self._folder, port=port, **settings))

    def open(self) -> MessageBroker:
        return open_broker("mqtt", Target(self._address))

    def publish(self, payloads: list[bytes]) -> None:
        with self._connect(ConnectOptions("outside")) as connection:
            for mid in [connection.send(TOPIC, payload) for payload in payloads]:
                connection.await_puback(mid, TOPIC)

    def drain(self, client_id: str) -> list[bytes] | None:
        came: list[bytes] = []
        session = ConnectOptions(client_id, clean=False)  # it ends with the connection
        with self._connect(session, came) as connection:
            if not connection.session_present:
                return None
            connection.subscribe("drain")
            connection.publish("drain", b"the end")
            connection.wait(lambda: came[-1:] == [b"the end"], "drain")
        return came[:-1]

    def save(self) -> None:
        token = secrets.token_hex(8).encode()
        with self._connect(ConnectOptions("witness")) as connection:
            connection.publish("witness", token, retain=True)
        file = self._folder / "data" / "mosquitto.db"
        wait_for(lambda: file.exists() and token in file.read_bytes(), "an autosave")

    def kill(self) -> None:
        self._server.kill()
        self._server = self._start(self._server.port)

    def _connect(self, options: ConnectOptions, came: list[bytes] | None = None) -> Connection:
        return Connection(
            self._server.address,
            Credentials(),
            options,
            time.monotonic() + 60,
            on_message=lambda message: (
                came.append(bytes(message.payload)) if came is not None else None
            ),
        )


@pytest.fixture(params=["memory", "mqtt 5", pytest.param("mqtt 3.1.1", marks=pytest.mark.long)])
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MortalBroker]:
    if request.param == "memory":
        yield MemoryServer()
        return
    with ExitStack() as stack:
        yield MosquittoServer(stack, tmp_path, V5 if request.param == "mqtt 5" else V311)


def make(broker: MessageBroker, reader: str) -> None:
    broker.reserve(reader, TOPIC, fresh=True)


def make_over_another(broker: MessageBroker, reader: str) -> None:
    broker.reserve(reader, TOPIC)
    broker.reserve(reader, TOPIC, fresh=True)


def make_and_look_again(broker: MessageBroker, reader: str) -> None:
    """As a start does before it uses a session, and the watch after a restart of the broker."""
    broker.reserve(reader, TOPIC, fresh=True)
    broker.reserve(reader, TOPIC)


def make_again_without_knowing(broker: MessageBroker, reader: str) -> None:
    broker.reserve(reader, TOPIC)


def make_after_a_release(broker: MessageBroker, reader: str) -> None:
    broker.reserve(reader, TOPIC, fresh=True)
    broker.release(reader, TOPIC, last_reader=True)
    broker.reserve(reader, TOPIC, fresh=True)


def hand_over(broker: MessageBroker, reader: str) -> None:
    """The new reader's session is made beside the old one's, which goes once the new one runs."""
    broker.reserve("speck-abc-former-1", TOPIC, fresh=True)
    broker.reserve(reader, TOPIC, fresh=True)
    broker.release("speck-abc-former-1", TOPIC, last_reader=False)


WAYS = [
    make,
    make_over_another,
    make_and_look_again,
    make_again_without_knowing,
    make_after_a_release,
    hand_over,
]


def test_sessions_and_their_messages_survive_kills_after_an_autosave(server: MortalBroker) -> None:
    """However they were made. What a broker has read from its file it must write there again, even
    though nobody has connected since: hence two kills."""
    broker = server.open()
    for way in WAYS:
        way(broker, f"speck-abc-{way.__name__}-1")
    server.publish(PAYLOADS)
    for _ in range(2):
        server.save()
        server.kill()
    server.publish([b"after"])
    assert server.open().view().readers == {TOPIC: True}
    kept = {way.__name__: server.drain(f"speck-abc-{way.__name__}-1") for way in WAYS}
    assert kept == {way.__name__: [*PAYLOADS, b"after"] for way in WAYS}


@pytest.mark.parametrize("last_reader", [True, False])
def test_a_released_session_stays_released(server: MortalBroker, last_reader: bool) -> None:
    broker = server.open()
    broker.reserve(READER, TOPIC, fresh=True)
    server.publish(PAYLOADS)
    server.save()
    broker.release(READER, TOPIC, last_reader=last_reader)
    server.save()

    server.kill()

    assert server.open().view().readers == {TOPIC: not last_reader}
    assert server.drain(READER) is None


def test_a_fresh_session_stays_fresh(server: MortalBroker) -> None:
    broker = server.open()
    broker.reserve(READER, TOPIC, fresh=True)
    server.publish(PAYLOADS)
    server.save()
    broker.reserve(READER, TOPIC, fresh=True)
    server.publish([b"new"])
    server.save()

    server.kill()

    assert server.drain(READER) == [b"new"]


def test_what_is_announced_tells_which_sessions_a_killed_broker_has_lost(
    server: MortalBroker,
) -> None:
    broker = server.open()
    broker.reserve("speck-abc-saved-1", TOPIC, fresh=True)
    server.save()
    for way in WAYS:
        way(broker, f"speck-abc-{way.__name__}-1")
    server.publish(PAYLOADS)
    lost = {(f"speck-abc-{way.__name__}-1", TOPIC) for way in WAYS}
    assert server.open().view().sessions == {("speck-abc-saved-1", TOPIC), *lost}

    server.kill()

    assert server.open().view().sessions == {("speck-abc-saved-1", TOPIC)}
    assert not broker.confirm_sessions(TOPIC, ["speck-abc-saved-1", "speck-abc-make-1"])
    assert broker.confirm_sessions(TOPIC, ["speck-abc-saved-1"])
    assert not broker.reserve("speck-abc-make-1", TOPIC, lost=True).existed
    assert broker.confirm_sessions(TOPIC, ["speck-abc-saved-1", "speck-abc-make-1"])


def test_a_broker_has_its_identity_after_a_kill_if_it_had_been_saved(server: MortalBroker) -> None:
    broker = server.open()
    identity = broker.identify("1" * 32)
    server.save()
    server.kill()
    assert server.open().identify("2" * 32) == identity


def test_what_a_killed_broker_has_forgotten_of_a_stopped_sink_is_counted(tmp_path: Path) -> None:
    """The queue and the sink's last number are of the same autosave: what is in neither is lost."""
    with ExitStack() as stack:
        server = MosquittoServer(stack, tmp_path, V5)
        broker = server.open()
        make(broker, READER)
        readers = {"a": [ReaderOf(READER, TOPIC, "B", "c")]}

        def report(place: str, **fields: object) -> None:
            payload = json.dumps({"v": 1, **fields}).encode()
            with server._connect(ConnectOptions("reports")) as connection:
                connection.publish(place, payload, retain=True)

        def send(first: int, last: int) -> None:
            server.publish(PAYLOADS[first:last])
            report("speck/sent/A-out", producer="i-A", epoch=1, number=last, topic=TOPIC)

        memory: TailMemory = {}

        def count(minute: int) -> list[int]:
            nonlocal memory
            views = {"a": broker.view()}
            memory, news = judge_tails(minute * FOR_GOOD_S, views, readers, memory)
            return [item.count for item in news]

        report(f"speck/taken/{READER}", checkpoint=1, taken={"i-A": {"1": 1}}, at=1)
        send(0, 60)
        server.save()
        send(60, 100)
        assert count(0) == []
        server.kill()
        assert count(1) == count(2) == [], "its reader has not come back yet"
        came = server.drain(READER)
        assert came is not None
        report(f"speck/taken/{READER}", checkpoint=2, taken={"i-A": {"1": len(came)}}, at=2)
        expected = [100 - len(came)] if len(came) < 100 else []
        assert count(3) == expected
        assert count(4) == []
        broker.close()
