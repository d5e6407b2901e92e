"""What every broker's binder has to keep; run on the memory binder, on real Mosquitto, Kafka,
HiveMQ and Artemis, and on a Mosquitto that many sites share in experiments (bench/mount.py).
"""

from __future__ import annotations

import asyncio
import json
import math
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import replace
from typing import Protocol
from uuid import uuid4

import pytest

from bench import mount
from binders.memory import Message, World
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection, read_topic
from speck.binding import (
    BrokerCapability,
    MessageBroker,
    Target,
    open_broker,
    topic_matches,
)
from speck.binding.capabilities import BROKER_CALLS
from speck.errors import BrokerRefusedError, UnreachableError
from speck.fog.mosquitto import Mosquitto
from speck.model.measurement import BrokerMeasures
from speck.model.observation import Sent, Taken, TakenEpoch
from speck.model.record import Record
from speck.monitor.links import FOR_GOOD_S, LinkMemory, ReaderOf, judge_links
from speck.sites.credentials import Credentials
from tests.declared import Need, make_need
from tests.kafka_server import KafkaSide
from tests.mosquitto_server import mosquitto
from tests.third_party_kinds import canals, third_party
from tests.waiting import LIMIT_S, wait_for

TAKEN = Taken(
    checkpoint=7,
    taken={"abc-clean": {(3 << 32) + 5: 40}},
    missing={"abc-clean": {(3 << 32) + 5: 2}},
    messages=42,
    at_ms=1000,
)
SENT = Sent(producer="abc-clean", epoch=(3 << 32) + 5, number=44, at_ms=1001, unread=3)


@pytest.fixture
def totals(request: pytest.FixtureRequest, bench: Bench) -> None:
    """For a test of what a broker publishes of itself below `$SYS`: others do not, which `check`
    says."""
    if isinstance(bench, OtherBench):
        reason = "it publishes nothing below $SYS"
        request.node.add_marker(pytest.mark.xfail(strict=True, reason=reason))


@pytest.fixture
def uptime(request: pytest.FixtureRequest, bench: Bench, totals: None) -> None:
    """For a test of how long a broker has run: Kafka's protocol says nothing of that."""
    if isinstance(bench, KafkaBench):
        reason = "its protocol says nothing of its uptime"
        request.node.add_marker(pytest.mark.xfail(strict=True, reason=reason))


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
        payloads: list[bytes] = []
        session = ConnectOptions(client_id, clean=False, expiry_s=3600)
        with Connection(
            self.address,
            Credentials(),
            session,
            time.monotonic() + 60,
            on_message=lambda message: payloads.append(bytes(message.payload)),
        ) as connection:
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


class CanalBench:
    """A third party's broker: logs in which readers have places. Its clients report nothing."""

    keeps_logs = True

    def __init__(self, parts: int = 1) -> None:
        self.address = f"canal://{uuid4().hex[:8]}:4711"
        self.canal = canals()[self.address]
        self.canal.part_count = parts

    def topic(self, topic: str) -> str:
        return topic.replace("/", ".")

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


class KafkaBench:
    """Kafka, whose jobs' readers are simple consumers. Each test finds the broker empty."""

    keeps_logs = True

    def __init__(self, side: KafkaSide, parts: int = 1) -> None:
        self.address, self.side, self.parts = side.address, side, parts
        self._opened: list[MessageBroker] = []

    def topic(self, topic: str) -> str:
        return topic.replace("/", ".")

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


NO_READER = "it does not report that a message has no reader"
OUT_OF_ORDER = "it delivers out of order"
LATE = "it sends retained messages behind later ones, so that a view may lack numbers"

UNREAD_IS_COUNTED = (
    "test_published_records_reach_readers_in_order_and_those_without_one_are_counted"
)
GAPS = {
    "artemis": {
        UNREAD_IS_COUNTED: NO_READER,
        "test_a_tap_sees_what_is_published_and_leaves_the_readers_alone": NO_READER,
        "test_a_session_takes_no_marks_before_its_reader_was_there": NO_READER,
        "test_a_reserved_session_keeps_what_is_published_while_its_reader_is_away": OUT_OF_ORDER,
        "test_reserving_again_takes_nothing_and_keeps_the_order": OUT_OF_ORDER,
        "test_a_mark_goes_through_the_session_of_its_reader_behind_what_waits_there": OUT_OF_ORDER,
    },
    "hivemq": {
        "test_each_view_of_a_binder_is_what_the_broker_has_now": LATE,
        "test_a_view_of_a_few_clients_has_their_numbers_and_the_identity": LATE,
        "test_view_tells_which_links_are_announced_to_have_readers": LATE,
        "test_view_tells_which_sessions_were_made": LATE,
        "test_view_reads_the_numbers_of_readers_and_sinks": LATE,
        "test_view_reads_what_was_taken_past_a_hole_and_what_was_sent_where": LATE,
        "test_a_session_that_is_made_again_changes_nothing_that_is_announced": LATE,
        "test_the_sessions_of_a_link_are_confirmed_if_all_are_there": LATE,
        "test_a_broker_keeps_the_first_identity_that_it_was_given": LATE,
        "test_release_clears_the_numbers_of_its_reader_only": LATE,
        "test_forget_clears_the_numbers_of_one_sink_only": LATE,
        "test_forget_clears_the_numbers_of_many_at_once": LATE,
    },
}


def mark_gap(request: pytest.FixtureRequest) -> None:
    """What is known to fail at other brokers. Order is a matter of chance there, and so only what
    has nothing to do with it fails each time."""
    reason = GAPS[request.param].get(request.node.originalname)
    if reason is not None:
        is_certain = reason is NO_READER
        request.node.add_marker(pytest.mark.xfail(strict=is_certain, reason=reason))


# what other rows show of the same binders (of Kafka those of logs, below), or brokers that have to
# be downloaded
REPEATED = ("kafka", "canal of 3 parts", "mosquitto of many sites", "hivemq", "artemis")


@pytest.fixture(
    params=[
        *("memory", "canal", "mosquitto"),
        *(pytest.param(kind, marks=pytest.mark.long) for kind in REPEATED),
    ]
)
def bench(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Bench]:
    if request.param == "memory":
        yield MemoryBench()
        return
    if request.param.startswith("canal"):
        with third_party():
            yield CanalBench(3 if "3" in request.param else 1)
        return
    if request.param == "kafka":
        with closing(KafkaBench(request.getfixturevalue("empty_kafka"))) as kafka:
            yield kafka
        return
    if request.param in ("hivemq", "artemis"):
        mark_gap(request)
        address = request.getfixturevalue(f"{request.param}_address")
        yield OtherBench(address)
        return
    with mosquitto(tmp_path_factory.mktemp("contract")) as server:
        if request.param == "mosquitto":
            yield MosquittoBench(server.address)
            return
        with mounted(server) as addresses:
            yield MosquittoBench(addresses[0])


def test_sites_that_share_a_broker_do_not_see_each_other(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    with (
        mosquitto(tmp_path_factory.mktemp("shared"), sys_interval="1") as server,
        mounted(server) as addresses,
    ):
        one, other = (MosquittoBench(address) for address in addresses)
        one.tell_sent("sink", SENT)
        other.tell_taken("reader", TAKEN)
        one.open().reserve("a reader", "t")
        other.publish("t", [b"not for the reader"])
        one.publish("t", [b"for the reader"])
        view, beside = one.open().view(), other.open().view()
        assert (view.sent, view.taken, view.readers) == ({"sink": SENT}, {}, {"t": True})
        assert (beside.sent, beside.taken, beside.readers) == ({}, {"reader": TAKEN}, {})
        assert one.drain("a reader") == [b"for the reader"]
        wait_for(lambda: one.open().measure()[0].uptime_s is not None, "the broker's own totals")


def test_reach_says_what_answered(bench: Bench) -> None:
    broker = bench.open()

    assert broker.reach() in ("memory", "canal 1", "mqtt 5", "kafka")
    assert broker.capabilities <= frozenset(BrokerCapability)


@pytest.fixture
def need(request: pytest.FixtureRequest) -> Need:
    return make_need(request)


def check_readers(bench: Bench, topic: str, announced: str | None) -> None:
    """What the sinks of a link are told of its readers, where they are told of them."""
    if not bench.keeps_logs:
        assert bench.readers(topic) == announced


def test_a_broker_that_keeps_logs_knows_what_everybody_has_sent_and_taken(bench: Bench) -> None:
    broker = bench.open()
    topic = bench.topic("traffic/a")
    bench.publish(topic, [b"before"])
    broker.reserve("one", topic)
    bench.publish(topic, [b"x"] * 5)
    view = broker.view(["one"])
    assert bool(view.ends) == bench.keeps_logs
    if not bench.keeps_logs:
        assert view.lag("one", topic, []) is None, "nobody reports what they have sent"
        return
    assert view.lag("one", topic, []) == 5
    assert view.knows(topic, "anybody")
    assert view.untaken("one", view.find_last(topic, [])) == 5
    broker.reserve("two", topic)
    assert broker.view(["two"]).lag("two", topic, []) == 0


@pytest.fixture(
    params=[
        *("canal", "kafka"),
        *(
            pytest.param(kind, marks=pytest.mark.long)
            for kind in ("canal of 3 parts", "kafka of 3 parts")
        ),
    ]
)
def canal(request: pytest.FixtureRequest) -> Iterator[LogBench]:
    """A broker that keeps logs, of one part or of several."""
    parts = 3 if "3" in request.param else 1
    if request.param.startswith("kafka"):
        with closing(KafkaBench(request.getfixturevalue("empty_kafka"), parts)) as bench:
            bench.side.make("t", parts)
            yield bench
        return
    with third_party():
        yield CanalBench(parts)


def test_a_place_that_is_lost_is_made_again_where_its_reader_was_last_seen(
    canal: LogBench,
) -> None:
    broker = canal.open()
    made = broker.reserve("one", "t")
    canal.publish("t", [b"0", b"1", b"2"])
    assert broker.view().find_position("one", "t") == made.position
    canal.lose("one", "t")
    assert broker.view().sessions == frozenset()
    assert broker.reserve("one", "t", lost=True, at=made.position) == replace(made, existed=False)
    assert sorted(canal.drain("one")) == [b"0", b"1", b"2"]
    assert broker.view().lag("one", "t", []) == 3
    assert broker.reserve("one", "t", at={}) == replace(made, existed=True), "it is there"

    canal.lose("one", "t")
    assert broker.reserve("one", "t").position == broker.view().ends["t"], "nothing is known of it"


def test_a_position_that_was_deleted_is_told_as_missing(canal: LogBench) -> None:
    broker = canal.open()
    made = broker.reserve("one", "t")
    canal.publish("t", [b"%d" % number for number in range(9)])
    canal.lose("one", "t")
    deleted = canal.trim("t", 2)
    broker.reserve("one", "t", at=made.position)
    missing = broker.view().taken["one"].missing
    assert sum(number for epochs in missing.values() for number in epochs.values()) == deleted


@pytest.mark.parametrize("way", ["cut", "make_anew"])
def test_a_place_behind_the_end_of_a_log_is_lost(canal: LogBench, way: str) -> None:
    """Nothing of the log counts as taken, neither for a lag nor for a drain."""
    broker = canal.open()
    canal.publish("t", [b"%d" % number for number in range(9)])
    seen = broker.reserve("one", "t").position
    canal.cut("t") if way == "cut" else canal.make_anew("t")
    canal.publish("t", [b"a", b"b"])
    view = broker.view()
    total = sum(view.ends["t"].values())
    assert ("one", "t") not in view.sessions
    assert view.lag("one", "t", []) == total
    assert not view.has_last("one", view.find_last("t", []))
    canal.publish("t", [b"c"] * 20)  # grown past the place, it looks as before
    if way == "make_anew":
        assert broker.view().lag("one", "t", []) == 22
        assert not broker.reserve("one", "t", lost=True, at=seen).existed
        assert len(canal.drain("one")) == 22


def test_each_log_with_a_place_has_its_end(canal: LogBench) -> None:
    broker = canal.open()
    broker.reserve("one", "t")
    broker.reserve("one", "other")
    canal.publish("other", [b"x"])
    view = broker.view()
    assert (view.lag("one", "t", ["sink"]), view.lag("one", "other", [])) == (0, 1)
    assert view.knows("t", "sink")


def test_a_part_that_is_added_is_read_from_its_beginning(canal: LogBench) -> None:
    broker = canal.open()
    made = broker.reserve("one", "t")
    canal.add_part("t", [b"new"])
    assert broker.view().lag("one", "t", []) == 1
    canal.lose("one", "t")
    broker.reserve("one", "t", at=made.position)
    assert canal.drain("one") == [b"new"]


def test_a_call_of_a_capability_that_it_does_not_have_is_refused_by_its_name(bench: Bench) -> None:
    broker = bench.open()
    calls = {
        BrokerCapability.REPORTS: lambda: broker.forget("one"),
        BrokerCapability.MARKS: lambda: broker.mark("one", "0a"),
        **_measure(broker),
    }
    for capability in calls.keys() - broker.capabilities:
        with pytest.raises(BrokerRefusedError, match=rf"no capability `{capability}`"):
            calls[capability]()


def _measure(broker: MessageBroker) -> dict[BrokerCapability, Callable[[], object]]:
    return {BrokerCapability.METRICS: broker.measure}


def test_a_reserved_session_keeps_what_is_published_while_its_reader_is_away(bench: Bench) -> None:
    payloads = [b"%d" % number for number in range(500)]

    bench.open().reserve("speck-abc-merge-1", bench.topic("traffic/a"))
    bench.publish(bench.topic("traffic/a"), payloads)

    assert bench.drain("speck-abc-merge-1") == payloads


def test_reserving_again_takes_nothing_and_keeps_the_order(bench: Bench) -> None:
    broker = bench.open()
    payloads = [b"%d" % number for number in range(300)]
    broker.reserve("speck-abc-merge-1", bench.topic("traffic/a"))

    for start in range(0, 300, 100):
        bench.publish(bench.topic("traffic/a"), payloads[start : start + 100])
        broker.reserve("speck-abc-merge-1", bench.topic("traffic/a"))
        broker.reserve("speck-abc-merge-1", bench.topic("traffic/a"))

    assert bench.drain("speck-abc-merge-1") == payloads


def test_a_fresh_session_holds_nothing_of_one_that_was_there(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("speck-abc-merge-1", bench.topic("traffic/a"))
    bench.publish(bench.topic("traffic/a"), [b"old"])
    broker.reserve("speck-abc-merge-1", bench.topic("traffic/a"), fresh=True)
    bench.publish(bench.topic("traffic/a"), [b"new"])
    assert bench.drain("speck-abc-merge-1") == [b"new"]


def test_reserving_says_whether_the_session_was_there(bench: Bench) -> None:
    broker = bench.open()

    assert not broker.reserve("speck-abc-merge-1", bench.topic("traffic/a")).existed
    assert broker.reserve("speck-abc-merge-1", bench.topic("traffic/a")).existed
    broker.release("speck-abc-merge-1", bench.topic("traffic/a"), last_reader=True)
    assert not broker.reserve("speck-abc-merge-1", bench.topic("traffic/a")).existed


def test_each_reservation_says_for_how_long_the_session_is_kept(bench: Bench) -> None:
    """From then on, whether it was made, made anew or found, and whoever asks; None: until it is
    released. Nobody can keep a session in time that is kept for no time."""
    broker, link = bench.open(), ("speck-abc-merge-1", bench.topic("traffic/a"))
    kept_s = broker.reserve(*link).kept_s
    assert kept_s is None or 0 < kept_s < math.inf
    again = [
        broker.reserve(*link),
        broker.reserve(*link, fresh=True),
        broker.reserve(*link, lost=True),
        bench.open().reserve(*link),
        broker.reserve("another", link[1]),
    ]
    assert {each.kept_s for each in again} == {kept_s}


@pytest.mark.usefixtures("uptime")
def test_view_tells_how_long_the_broker_runs_and_what_it_dropped(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.METRICS)
    view = broker.view()

    assert view.uptime_s is not None
    assert view.uptime_s >= 0
    assert view.dropped == 0


@pytest.mark.usefixtures("totals")
def test_it_tells_of_its_own_work(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.METRICS)
    broker.reserve("one", bench.topic("traffic/a"))
    limit_s = 5.0 if isinstance(bench, OtherBench) else LIMIT_S
    before = wait_for(lambda: _with_messages(broker.measure()[0]), "totals", limit_s)
    bench.publish(bench.topic("traffic/a"), [b"x"] * 20)
    assert before.messages_in is not None
    expected = before.messages_in + 20

    def counted() -> BrokerMeasures | None:
        measures, view = broker.measure()
        assert bench.keeps_logs or view.readers == {bench.topic("traffic/a"): True}
        # a broker may count while a poll is under way, whose own message it then holds, too
        is_counted = (measures.messages_in or 0) >= expected and measures.queued in (20, 21, 22)
        return measures if is_counted else None

    measures = wait_for(counted, "20 messages more, which wait")
    assert measures.dropped == 0
    assert bench.keeps_logs or (measures.uptime_s or 0) >= (before.uptime_s or 0)


def _with_messages(measures: BrokerMeasures) -> BrokerMeasures | None:
    return measures if measures.messages_in is not None else None


def test_each_view_of_a_binder_is_what_the_broker_has_now(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    assert broker.view().sent == {}
    bench.tell_sent("sink", SENT)
    bench.tell_sent("other", SENT)
    assert broker.view().sent == {"sink": SENT, "other": SENT}
    later = replace(SENT, number=45)
    bench.tell_sent("sink", later)
    broker.forget("other")
    assert broker.view().sent == {"sink": later}
    assert broker.measure()[1].sent == {"sink": later}
    broker.forget("sink")
    assert broker.view().sent == {}


def test_a_view_of_a_few_clients_has_their_numbers_and_the_identity(
    bench: Bench, need: Need
) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    identity = broker.identify("0" * 32)
    for name in ("one", "two", "three"):
        bench.tell_sent(name, SENT)
        bench.tell_taken(name, TAKEN)
    view = broker.view(["one", "two", "unknown", "no/+/topic"])
    assert (view.sent, view.taken) == (
        dict.fromkeys(["one", "two"], SENT),
        {"one": TAKEN, "two": TAKEN},
    )
    assert view.identity == identity
    many = [f"client-{number}" for number in range(500)]
    assert broker.view([*many, "three"]).sent["three"] == SENT
    nobody = broker.view([])
    assert (nobody.sent, nobody.taken, nobody.identity) == ({}, {}, identity)


def test_view_tells_which_links_are_announced_to_have_readers(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    broker.reserve("one", bench.topic("traffic/a"))
    broker.reserve("two", bench.topic("traffic/b/c"))
    broker.release("two", bench.topic("traffic/b/c"), last_reader=True)

    readers = broker.view().readers
    assert readers.pop(bench.topic("traffic/b/c"), False) is False
    assert readers == {bench.topic("traffic/a"): True}


def test_view_tells_which_sessions_were_made(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("one", bench.topic("traffic/a"), fresh=True)
    broker.reserve("two", bench.topic("traffic/b/c"))
    broker.reserve("three", bench.topic("traffic/a"))
    broker.release("three", bench.topic("traffic/a"), last_reader=False)
    assert broker.view().sessions == {
        ("one", bench.topic("traffic/a")),
        ("two", bench.topic("traffic/b/c")),
    }


def test_a_session_that_is_made_again_changes_nothing_that_is_announced(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("one", bench.topic("traffic/a"))
    before = broker.view()
    bench.publish(bench.topic("traffic/a"), [b"1"])

    assert broker.reserve("one", bench.topic("traffic/a"), lost=True).existed

    after = broker.view()
    assert (after.readers, after.sessions) == (before.readers, before.sessions)
    check_readers(bench, bench.topic("traffic/a"), "some")
    assert bench.drain("one") == [b"1"]


def test_the_sessions_of_a_link_are_confirmed_if_all_are_there(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    broker.reserve("one", bench.topic("traffic/a"))
    broker.reserve("two", bench.topic("traffic/a/b"))
    assert broker.confirm_sessions(bench.topic("traffic/a"), ["one"])
    assert not broker.confirm_sessions(bench.topic("traffic/a"), ["one", "two"])
    assert broker.confirm_sessions(bench.topic("traffic/c"), [])
    check_readers(bench, bench.topic("traffic/a"), "some")
    check_readers(bench, bench.topic("traffic/c"), None)


def test_each_session_on_a_topic_gets_everything(bench: Bench) -> None:
    broker = bench.open()
    for client_id in ("one", "two"):
        broker.reserve(client_id, bench.topic("traffic/a"))

    bench.publish(bench.topic("traffic/a"), [b"1", b"2"])

    assert bench.drain("one") == [b"1", b"2"]
    assert bench.drain("two") == [b"1", b"2"]


def test_readers_are_announced_until_the_last_is_released(bench: Bench) -> None:
    broker = bench.open()
    check_readers(bench, bench.topic("traffic/a"), None)

    broker.reserve("one", bench.topic("traffic/a"))
    broker.reserve("two", bench.topic("traffic/a"))
    check_readers(bench, bench.topic("traffic/a"), "some")

    broker.release("one", bench.topic("traffic/a"), last_reader=False)
    check_readers(bench, bench.topic("traffic/a"), "some")

    broker.release("two", bench.topic("traffic/a"), last_reader=True)
    check_readers(bench, bench.topic("traffic/a"), "none")


def test_release_ends_the_session(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("one", bench.topic("traffic/a"))
    bench.publish(bench.topic("traffic/a"), [b"before"])

    broker.release("one", bench.topic("traffic/a"), last_reader=True)
    bench.publish(bench.topic("traffic/a"), [b"between"])
    broker.reserve("one", bench.topic("traffic/a"))
    bench.publish(bench.topic("traffic/a"), [b"after"])

    assert bench.drain("one") == [b"after"]


def test_releasing_a_session_that_is_not_there_is_harmless(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("one", bench.topic("traffic/a"))
    bench.publish(bench.topic("traffic/a"), [b"1"])

    broker.release("nobody", bench.topic("traffic/a"), last_reader=False)

    check_readers(bench, bench.topic("traffic/a"), "some")
    assert bench.drain("one") == [b"1"]
    assert not broker.reserve("nobody", bench.topic("traffic/a")).existed, (
        "the release made a session"
    )


@pytest.mark.parametrize("last_reader", [True, False])
def test_release_clears_the_numbers_of_its_reader_only(bench: Bench, last_reader: bool) -> None:
    broker = bench.open()
    for client_id in ("gone", "stays"):
        broker.reserve(client_id, bench.topic("traffic/a"))
        if not bench.keeps_logs:
            bench.tell_taken(client_id, TAKEN)
            bench.tell_sent(client_id, SENT)

    for _ in range(2):  # the first answer may have been lost
        broker.release("gone", bench.topic("traffic/a"), last_reader=last_reader)

        view = broker.view()
        assert set(view.taken) == {"stays"}
        if not bench.keeps_logs:
            assert set(view.sent) == {"gone", "stays"}
            assert view.readers == {bench.topic("traffic/a"): not last_reader}


def test_view_reads_the_numbers_of_readers_and_sinks(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    assert broker.view().taken == {}

    bench.tell_taken("speck-abc-merge-1", TAKEN)
    bench.tell_sent("speck-abc-clean-1-out", SENT)

    view = broker.view()
    assert view.taken == {"speck-abc-merge-1": TAKEN}
    assert view.sent == {"speck-abc-clean-1-out": SENT}
    assert view.lag("speck-abc-merge-1", bench.topic("traffic/a"), ["speck-abc-clean-1-out"]) == 4


def test_view_reads_what_was_taken_past_a_hole_and_what_was_sent_where(
    bench: Bench, need: Need
) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    epoch = (3 << 32) + 5
    taken = replace(TAKEN, above={"abc-clean": {epoch: ((43, 43), (45, 60))}}, mark="0af9")
    sent = replace(SENT, topic=bench.topic("traffic/a"))
    bench.tell_taken("speck-abc-merge-1", taken)
    bench.tell_taken("speck-abc-old-1", TAKEN)
    bench.tell_sent("speck-abc-clean-1-out", sent)
    bench.tell_sent("speck-abc-old-1-out", SENT)

    view = broker.view()

    assert view.taken == {
        "speck-abc-merge-1": taken,
        "speck-abc-old-1": TAKEN,
    }
    assert view.taken["speck-abc-merge-1"].epochs() == (
        TakenEpoch("abc-clean", epoch, 40, ((43, 43), (45, 60))),
    )
    assert view.find_sent(bench.topic("traffic/a"), "speck-abc-clean-1-out") == sent
    assert view.find_sent(bench.topic("traffic/b"), "speck-abc-clean-1-out") is None
    assert view.find_sent(bench.topic("traffic/b"), "speck-abc-old-1-out") == SENT


def test_a_mark_goes_through_the_session_of_its_reader_behind_what_waits_there(
    bench: Bench,
    need: Need,
) -> None:
    broker = need(bench.open(), BrokerCapability.MARKS)
    for client_id in ("one", "two"):
        broker.reserve(client_id, bench.topic("traffic/a"))
        bench.attach(client_id, bench.topic("traffic/a"))
    payloads = [b"%d" % number for number in range(100)]
    bench.publish(bench.topic("traffic/a"), payloads)
    assert broker.mark("one", "0af9")
    bench.publish(bench.topic("traffic/a"), [b"later"])
    assert broker.mark("one", "1b")

    broker.reserve("one", bench.topic("traffic/a"))

    assert bench.drain_with_marks("one") == [*payloads, b"0af9", b"later", b"1b"]
    assert bench.drain_with_marks("two") == [*payloads, b"later"]


def test_a_session_takes_no_marks_before_its_reader_was_there(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.MARKS)
    assert not broker.mark("nobody", "0af9")
    broker.reserve("one", bench.topic("traffic/a"))
    assert not broker.mark("one", "0af9")
    bench.attach("one", bench.topic("traffic/a"))
    assert broker.mark("one", "0af9")
    broker.release("one", bench.topic("traffic/a"), last_reader=True)
    assert not broker.mark("one", "0af9")


def test_forget_clears_the_numbers_of_one_sink_only(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    for client_id in ("gone", "stays"):
        bench.tell_taken(client_id, TAKEN)
        bench.tell_sent(client_id + "-out", SENT)

    broker.forget("gone-out")
    broker.forget("never-was")

    view = broker.view()
    assert set(view.taken) == {"gone", "stays"}
    assert set(view.sent) == {"stays-out"}


def test_forget_clears_the_numbers_of_many_at_once(bench: Bench, need: Need) -> None:
    broker = need(bench.open(), BrokerCapability.REPORTS)
    sinks = [f"gone-{number}-out" for number in range(30)]
    for client_id in (*sinks, "stays-out"):
        bench.tell_sent(client_id, SENT)

    for _ in range(2):  # the first answer may have been lost
        broker.forget("never-was", *sinks, sinks[0])

        assert set(broker.view().sent) == {"stays-out"}


def test_to_forget_nobody_asks_nothing_of_the_broker(bench: Bench, need: Need) -> None:
    need(bench.open(), BrokerCapability.REPORTS).forget()
    need(bench.open_absent(), BrokerCapability.REPORTS).forget()


def test_calls_may_overlap(bench: Bench) -> None:
    broker = bench.open()
    threads = 4
    together = threading.Barrier(threads)

    def work(number: int) -> None:
        together.wait(60)
        for round_ in range(2):
            broker.reserve(f"job-{number}-{round_}", bench.topic(f"topic/{number}"))
            broker.view()

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(work, range(threads)))

    for number in range(threads):
        bench.publish(bench.topic(f"topic/{number}"), [b"x"])
        assert bench.drain(f"job-{number}-1") == [b"x"]


@pytest.mark.parametrize(
    "call",
    [
        "reach",
        "reserve",
        "release",
        "confirm_sessions",
        "mark",
        "publish",
        "tap",
        "view",
        "forget",
        "measure",
        "check",
    ],
)
def test_no_answer_is_unreachable(bench: Bench, need: Need, call: str) -> None:
    broker = bench.open_absent()
    for name, capability in BROKER_CALLS.items():
        if name == call:
            broker = need(broker, capability)
    calls = {
        "reach": broker.reach,
        "reserve": lambda: broker.reserve("one", bench.topic("traffic/a")),
        "release": lambda: broker.release("one", bench.topic("traffic/a"), last_reader=True),
        "confirm_sessions": lambda: broker.confirm_sessions(bench.topic("traffic/a"), ["one"]),
        "mark": lambda: broker.mark("one", "0af9"),
        "publish": lambda: broker.publish(bench.topic("traffic/a"), [b"x"]),
        "tap": lambda: broker.tap(bench.topic("traffic/a"), lambda _: None, lambda: False),
        "view": broker.view,
        "forget": lambda: broker.forget("one"),
        "measure": lambda: broker.measure(),
        "check": broker.check,
    }

    with pytest.raises(UnreachableError, match=r"^cannot reach"):
        calls[call]()


def test_published_records_reach_readers_in_order_and_those_without_one_are_counted(
    bench: Bench,
) -> None:
    broker = bench.open()
    payloads = [b"%d" % number for number in range(100)]
    assert broker.publish(bench.topic("traffic/a"), payloads) == 100
    broker.reserve("one", bench.topic("traffic/a"))
    assert broker.publish(bench.topic("traffic/a"), payloads) == 0
    assert bench.drain("one") == payloads


def test_a_tap_sees_what_is_published_and_leaves_the_readers_alone(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("one", bench.topic("traffic/a"))
    payloads = [b"\x00\xff", b"", "\u00e9".encode()]
    seen: list[Record] = []
    until = time.monotonic() + 30

    def go_on() -> bool:  # published again and again: the tap says not when it has begun
        bench.publish(bench.topic("traffic/a"), payloads)
        return len(seen) < 6 and time.monotonic() < until

    bench.open().tap(bench.topic("traffic/a"), seen.append, go_on)
    assert [record.payload for record in seen[:6]] == payloads * 2
    assert {record.stamp for record in seen} == {None}
    waiting = bench.drain("one")
    assert waiting == payloads * (len(waiting) // 3)
    assert broker.publish(bench.topic("traffic/b"), [b"x"]) == 1, "something of the tap is left"


def test_a_tap_ends_when_it_is_told_to(bench: Bench) -> None:
    asked = iter([True, True, False])
    bench.open().tap(bench.topic("traffic/a"), lambda _: None, lambda: next(asked))
    assert next(asked, None) is None


def test_close_may_come_twice(bench: Bench) -> None:
    broker = bench.open()
    broker.reserve("one", bench.topic("traffic/a"))

    broker.close()
    broker.close()

    bench.publish(bench.topic("traffic/a"), [b"1"])
    assert bench.open().reserve("one", bench.topic("traffic/a")).existed, "the session is gone"
    check_readers(bench, bench.topic("traffic/a"), "some")
    assert bench.drain("one") == [b"1"]


def test_a_broker_keeps_the_first_identity_that_it_was_given(bench: Bench) -> None:
    broker = bench.open()
    first = broker.identify("1" * 32)
    assert first is not None and broker.identify() == first
    assert broker.identify("2" * 32) == first
    assert bench.open().identify() == first
    assert broker.view().identity == first


def test_what_a_log_has_deleted_before_it_was_taken_is_lost_and_counted() -> None:
    """By the places alone: the reader need not even come."""
    with third_party():
        bench = CanalBench()
        broker = bench.open()
        broker.reserve("one", "raw")
        bench.publish("raw", [b"x"] * 10)
        (part,) = bench.canal.ends("raw")
        bench.canal.commit("one", "raw", {part: 3})
        readers = {"site": [ReaderOf("one", "raw", None, "c")]}
        memory, news = judge_links(0.0, {"site": broker.view()}, readers, LinkMemory())
        assert news == []
        bench.canal.trim("raw", 7)
        counts = []
        for now in (1.0, FOR_GOOD_S + 2.0):
            memory, news = judge_links(now, {"site": broker.view()}, readers, memory)
            counts.append([(each.kind, each.count) for each in news])
        assert counts == [[("lost", 4)], []], "at once: what was deleted does not come later"


@pytest.mark.parametrize("kind", ["memory", "mqtt", "canal", "kafka"])
def test_a_topic_fits_a_pattern_that_is_the_topic_and_no_other_topic(kind: str) -> None:
    """Whatever the syntax of patterns is: a binder without one has topics alone."""
    with third_party():
        assert topic_matches(kind, "traffic.a", "traffic.a")
        assert not topic_matches(kind, "traffic.a", "traffic.b")
        assert not topic_matches(kind, "traffic.a", "traffic")


@pytest.mark.parametrize(
    ("kind", "pattern", "is_fit"),
    [
        ("mqtt", "traffic/#", True),
        ("mqtt", "+/a", True),
        ("mqtt", "#", True),
        ("mqtt", "other/#", False),
        ("mqtt", "traffic/*", False),
        ("canal", "traffic/#", False),
        ("canal", "#", False),
    ],
)
def test_patterns_of_topics_are_those_of_their_kind(kind: str, pattern: str, is_fit: bool) -> None:
    with third_party():
        assert topic_matches(kind, "traffic/a", pattern) is is_fit
