"""How the contract's tests reach each broker from the other side."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol
from uuid import uuid4

from bench import mount
from binders.memory import Message, World
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection, read_topic
from speck.binding import MessageBroker, Target, open_broker
from speck.fog.mosquitto import Mosquitto
from speck.model.observation import Sent, Taken
from speck.sites.credentials import Credentials
from tests.guarded_broker import reading
from tests.kafka_server import KafkaSide
from tests.third_party_kinds import canals

TAKEN = Taken(
    checkpoint=7,
    taken={"abc-clean": {(3 << 32) + 5: 40}},
    missing={"abc-clean": {(3 << 32) + 5: 2}},
    messages=42,
    at_ms=1000,
)

SENT = Sent(producer="abc-clean", epoch=(3 << 32) + 5, number=44, at_ms=1001, unread=3)


class Bench(Protocol):
    """A broker seen from the other side: what jobs and publishers do there."""

    keeps_logs: bool
    """Its readers have places in logs, whose ends are known: nobody reports any numbers, and no
    sink is told of readers."""

    def open(self) -> MessageBroker: ...

    def topic(self, topic: str) -> str:
        """A topic as this broker takes it."""

    def open_absent(self) -> MessageBroker:
        """A binder for an address where nothing answers."""

    def publish(self, topic: str, payloads: list[bytes]) -> None: ...

    def drain(self, client_id: str) -> list[bytes]:
        """Take all that waits in a session, and leave the session."""

    def attach(self, client_id: str, topic: str) -> None:
        """Connect as a reader of ours does, and leave at once."""

    def drain_with_marks(self, client_id: str) -> list[bytes]:
        """The same as `drain`, with the marks in their places."""

    def tell_taken(self, client_id: str, taken: Taken) -> None: ...

    def tell_sent(self, client_id: str, sent: Sent) -> None: ...

    def readers(self, topic: str) -> str | None:
        """The announcements on `speck/readers/<topic>`."""


class MemoryBench:
    keeps_logs = False

    def topic(self, topic: str) -> str:
        return topic

    def __init__(self) -> None:
        self.world = World.reset()
        self.broker = self.world.broker("tcp://site:1883")

    def open(self) -> MessageBroker:
        return open_broker("memory", Target("tcp://site:1883"))

    def open_absent(self) -> MessageBroker:
        self.world.broker("tcp://absent:1883").unreachable = True
        return open_broker("memory", Target("tcp://absent:1883"))

    def publish(self, topic: str, payloads: list[bytes]) -> None:
        for payload in payloads:
            self.broker.publish(topic, Message(payload))

    def drain(self, client_id: str) -> list[bytes]:
        return self.broker.take(client_id)

    def attach(self, client_id: str, topic: str) -> None:
        self.broker.connect(client_id, topic, "a job").holder = None

    def drain_with_marks(self, client_id: str) -> list[bytes]:
        queue = self.broker.sessions[client_id].queue
        return [message.mark.encode() if message.mark else message.payload for message in queue]

    def tell_taken(self, client_id: str, taken: Taken) -> None:
        self.broker.taken[client_id] = taken

    def tell_sent(self, client_id: str, sent: Sent) -> None:
        self.broker.sent[client_id] = sent

    def readers(self, topic: str) -> str | None:
        return self.broker.readers.get(topic)


class MosquittoBench:
    keeps_logs = False

    def topic(self, topic: str) -> str:
        return topic

    def __init__(self, address: str) -> None:
        self.address = address

    def open(self) -> MessageBroker:
        return open_broker("mqtt", Target(self.address))

    def open_absent(self) -> MessageBroker:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        return open_broker("mqtt", Target(f"tcp://127.0.0.1:{port}", timeout_s=5))

    def publish(self, topic: str, payloads: list[bytes]) -> None:
        with self._connect(ConnectOptions("outside")) as connection:
            for mid in [connection.send(topic, payload) for payload in payloads]:
                connection.await_puback(mid, topic)

    def drain(self, client_id: str) -> list[bytes]:
        session = ConnectOptions(client_id, clean=False, expiry_s=3600)
        with reading(self.address, session) as (connection, payloads):
            assert connection.session_present
            connection.subscribe("drain/" + client_id)
            connection.publish("drain/" + client_id, b"the end")
            connection.wait(lambda: payloads[-1:] == [b"the end"], "drain")
        return payloads[:-1]

    def attach(self, client_id: str, topic: str) -> None:
        session = ConnectOptions(client_id, clean=False, expiry_s=3600)
        with self._connect(session) as connection:
            connection.subscribe(topic, "speck/marks/" + client_id)

    def drain_with_marks(self, client_id: str) -> list[bytes]:
        return self.drain(client_id)

    def tell_taken(self, client_id: str, taken: Taken) -> None:
        report: dict[str, object] = {
            "v": 1,
            "at": taken.at_ms,
            "checkpoint": taken.checkpoint,
            "taken": taken.taken,
            "missing": taken.missing,
            "messages": taken.messages,
            "above": taken.above,
        }
        if taken.mark is not None:
            report["mark"] = taken.mark
        self._retain(f"speck/taken/{client_id}", report)

    def tell_sent(self, client_id: str, sent: Sent) -> None:
        report = {
            "v": 1,
            "at": sent.at_ms,
            "producer": sent.producer,
            "epoch": sent.epoch,
            "number": sent.number,
            "unread": sent.unread,
            "topic": sent.topic,
        }
        self._retain(f"speck/sent/{client_id}", report)

    def readers(self, topic: str) -> str | None:
        came: list[str] = []
        with Connection(
            self.address,
            Credentials(),
            ConnectOptions("asks"),
            time.monotonic() + 60,
            on_message=lambda message: came.append(bytes(message.payload).decode()),
        ) as connection:
            connection.subscribe(f"speck/readers/{topic}", "asks/end")
            connection.publish("asks/end", b"the end")
            connection.wait(lambda: "the end" in came, "ask")
        return came[0] if came[0] != "the end" else None

    def _retain(self, topic: str, report: object) -> None:
        with self._connect(ConnectOptions("a-job")) as connection:
            connection.publish(topic, json.dumps(report).encode(), retain=True)

    def _connect(self, options: ConnectOptions) -> Connection:
        return Connection(self.address, Credentials(), options, time.monotonic() + 60)


class OtherBench(MosquittoBench):
    """Another MQTT 5 broker. It is started once: each test begins without what the one before has
    left."""

    def __init__(self, address: str) -> None:
        super().__init__(address)
        seen: set[str] = set()
        with Connection(
            self.address,
            Credentials(),
            ConnectOptions("cleans"),
            time.monotonic() + 60,
            on_message=lambda message: seen.add(read_topic(message)),
        ) as connection:
            # HiveMQ sends what is retained beside what is published: only one of the retained ones
            # shows that these come
            connection.publish("cleans/retained", b"one of them", retain=True)
            connection.subscribe("#")
            connection.wait(lambda: "cleans/retained" in seen, "clean")
            connection.publish("cleans/end", b"the end")
            connection.wait(lambda: "cleans/end" in seen, "clean")
        retained = seen - {"cleans/end"}
        for topic in retained:
            if topic.startswith("speck/sessions/"):
                with self._connect(ConnectOptions(topic.rpartition("/")[2])):
                    pass
            with self._connect(ConnectOptions("cleans")) as connection:
                connection.publish(topic, b"", retain=True)


class LogsBench:
    """A broker that keeps logs in which readers have places. Its clients report nothing."""

    keeps_logs = True

    def topic(self, topic: str) -> str:
        return topic.replace("/", ".")

    def attach(self, client_id: str, topic: str) -> None:
        raise NotImplementedError("its sessions take no marks")

    def drain_with_marks(self, client_id: str) -> list[bytes]:
        raise NotImplementedError("its sessions take no marks")

    def tell_taken(self, client_id: str, taken: Taken) -> None:
        raise NotImplementedError("its clients report nothing: their places are known")

    def tell_sent(self, client_id: str, sent: Sent) -> None:
        raise NotImplementedError("its clients report nothing: the ends of its logs are known")

    def readers(self, topic: str) -> str | None:
        raise NotImplementedError("its writers wait for no readers")


class CanalBench(LogsBench):
    """A third party's broker."""

    def __init__(self, parts: int = 1) -> None:
        self.address = f"canal://{uuid4().hex[:8]}:4711"
        self.canal = canals()[self.address]
        self.canal.part_count = parts

    def open(self) -> MessageBroker:
        return open_broker("canal", Target(self.address))

    def open_absent(self) -> MessageBroker:
        canals()["canal://absent:4711"].closed = True
        return open_broker("canal", Target("canal://absent:4711"))

    def publish(self, topic: str, payloads: list[bytes]) -> None:
        for payload in payloads:
            self.canal.append(topic, payload)

    def lose(self, reader: str, topic: str) -> None:
        """Its place expires; the log stays."""
        del self.canal.places[reader, topic]

    def trim(self, topic: str, count: int) -> int:
        """Delete the oldest of each part; returns how many."""
        before = len(self.canal.read(topic, {}, 10_000))
        self.canal.trim(topic, count)
        return before - len(self.canal.read(topic, {}, 10_000))

    def cut(self, topic: str) -> None:
        self.canal.cut(topic, 1)

    def make_anew(self, topic: str) -> None:
        self.canal.make_anew(topic)

    def add_part(self, topic: str, payloads: list[bytes]) -> None:
        self.canal.add_part(topic, payloads)

    def drain(self, client_id: str) -> list[bytes]:
        ((topic, place),) = [(t, p) for (r, t), p in self.canal.places.items() if r == client_id]
        return [found.entry.payload for found in self.canal.read(topic, place, 10_000)]


class KafkaBench(LogsBench):
    """Kafka, whose jobs' readers are simple consumers. Each test finds the broker empty."""

    def __init__(self, side: KafkaSide, parts: int = 1) -> None:
        self.address, self.side, self.parts = side.address, side, parts
        self._opened: list[MessageBroker] = []

    def open(self) -> MessageBroker:
        broker = open_broker("kafka", Target(self.address, timeout_s=30))
        self._opened.append(broker)
        return broker

    def close(self) -> None:
        """Close what was opened: each client has a thread, which outlives the server."""
        for broker in self._opened:
            broker.close()

    def open_absent(self) -> MessageBroker:
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        return open_broker("kafka", Target(f"kafka://127.0.0.1:{port}", timeout_s=5))

    def publish(self, topic: str, payloads: list[bytes]) -> None:
        if topic not in self.side.topics():
            self.side.make(topic, self.parts)
        for part in range(self.parts):
            self.side.publish(topic, payloads[part :: self.parts], part)

    def lose(self, reader: str, topic: str) -> None:
        self.side.delete_group(reader)

    def trim(self, topic: str, count: int) -> int:
        return self.side.trim(topic, count)

    def cut(self, topic: str) -> None:
        """A log cannot be cut from outside; its readers' places can be put where they would be."""
        self.side.put_behind_end(topic)

    def make_anew(self, topic: str) -> None:
        self.side.delete(topic)
        self.side.make(topic, self.parts)

    def add_part(self, topic: str, payloads: list[bytes]) -> None:
        self.side.publish(topic, payloads, self.side.add_part(topic))

    def drain(self, client_id: str) -> list[bytes]:
        return self.side.drain(client_id)


LogBench = CanalBench | KafkaBench
"""Brokers that keep logs, with what can happen to these."""


@contextmanager
def mounted(server: Mosquitto) -> Iterator[list[str]]:
    """Addresses of two sites that share `server`."""
    loop = asyncio.new_event_loop()
    hosts = ["127.0.0.1", "127.0.0.1"]
    servers = loop.run_until_complete(mount.listen(hosts, 0, (server.host, server.port)))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    try:
        yield [f"tcp://127.0.0.1:{each.sockets[0].getsockname()[1]}" for each in servers]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        for each in servers:
            each.close()
        loop.close()
