"""The job contract, from outside: a program is started by its arguments, and only the broker is
looked at. Every kind of program that passes records on keeps it, over every kind of broker.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import pytest

from speck.binding import (
    BrokerCapability,
    LinkReader,
    LinkWriter,
    MessageBroker,
    Outgoing,
    Target,
    WriterOptions,
    open_broker,
    open_links,
)
from speck.errors import UnreachableError
from speck.fog import kafka
from speck.fog.kafka import Kafka
from speck.model.observation import Taken, TakenEpoch
from speck.model.record import Record
from speck.spec.job_contract import render_taken
from tests.flink_server import FlinkServer
from tests.job_programs import Program, flink_pass_through
from tests.mosquitto_server import mosquitto
from tests.process_programs import python_forward, spark_program
from tests.waiting import wait_for

SPY = "spy"
"""The reader behind the program, outside speck."""

LONG = pytest.mark.long
DELIVERIES = [pytest.param("at_least_once", marks=LONG), "exactly_once"]

_LINKS = count(1)
_NEVER = "3600"


class Server(Protocol):
    """A real broker that a test may kill."""

    kind: str

    @property
    def address(self) -> str: ...

    def save(self) -> None:
        """Wait until what it has now outlives a kill."""

    def restart(self) -> None:
        """Kill it, and start it again in its place."""


class MosquittoServer:
    kind = "mqtt"

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._broker = stack.enter_context(mosquitto(folder, autosave_interval=_NEVER))

    @property
    def address(self) -> str:
        return self._broker.address

    def save(self) -> None:
        before = self._saved_ns()
        os.kill(self._broker.pid, signal.SIGUSR1)
        wait_for(lambda: self._saved_ns() > before, "an autosave")

    def _saved_ns(self) -> int:
        files = self._folder.rglob("mosquitto.db")
        return max((file.stat().st_mtime_ns for file in files), default=0)

    def restart(self) -> None:
        port = self._broker.port
        self._broker.kill()
        again = mosquitto(self._folder, port=port, autosave_interval=_NEVER)
        self._broker = self._stack.enter_context(again)


class KafkaServer:
    kind = "kafka"

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._broker = stack.enter_context(kafka.start(folder))

    @property
    def address(self) -> str:
        return self._broker.address

    def save(self) -> None:
        """What it has acknowledged is in its files."""

    def restart(self) -> None:
        port = self._broker.port
        self._broker.kill()
        self._broker = self._stack.enter_context(kafka.start(self._folder, port=port))
        wait_for(self._answers, "Kafka to answer: its port is open earlier")

    def _answers(self) -> bool:
        broker = open_broker("kafka", Target(self.address))
        try:
            return bool(broker.reach())
        except UnreachableError:
            return False
        finally:
            broker.close()


@dataclass(frozen=True)
class SharedKafka:
    """The one of all tests, which goes on."""

    address: str
    kind: str = "kafka"

    def save(self) -> None:
        """What it has acknowledged is in its files."""

    def restart(self) -> None:
        raise NotImplementedError("others use it, too: take `mortal kafka`")


@dataclass
class Bench:
    """A program between two links of a broker: `source` and `sink`."""

    server: Server
    program: Program
    broker: MessageBroker
    source: str
    sink: str
    epochs: Iterator[int] = field(default_factory=lambda: count(1))
    producer: str = field(default_factory=lambda: f"test-{uuid4().hex[:8]}")
    sent: int = 0
    records: list[Record] = field(default_factory=list)

    @property
    def reader(self) -> str:
        return f"speck-0a1b2c3d-pass-{self.source}"

    @property
    def writer(self) -> str:
        return f"speck-0a1b2c3d-pass-{self.sink}-out"

    def start(self, state: str | None = None, **more: str) -> None:
        """Start the program as the control plane does: readers before those that send to them."""
        self.broker.reserve(SPY, self.sink)
        self.broker.reserve(self.reader, self.source)
        self.program.start(self._arguments(**more), state)

    def resend(self, state: str, **more: str) -> None:
        """Start the program's sink alone, as the control plane does for a program that has ended,
        and wait for its end."""
        self.program.resend(self._arguments(**more), state)

    def _arguments(self, **more: str) -> tuple[str, ...]:
        args = {
            "job_name": "pass",
            "source_broker": self.server.address,
            "source_topic": self.source,
            "sink_broker": self.server.address,
            "sink_topic": self.sink,
            "client_id": self.reader,
            "sink_client_id": self.writer,
            "epoch": str(next(self.epochs)),
            "delivery": "exactly_once",
            "sink_readers": "some",
            **more,
        }
        return tuple(text for key, value in args.items() for text in (f"--{_flag(key)}", value))

    def feed(self, number: int) -> None:
        """Publish numbered records, and wait until the broker has them."""
        links = open_links(self.server.kind, self.server.address)
        options = WriterOptions(f"feeder-{uuid4().hex[:8]}", self.server.address)
        writer = links.writer(options, lambda record, first: None)
        writer.connect()
        for _ in range(number):
            self.sent += 1
            stamp = f"{self.producer}/1/{self.sent}"
            _drive(writer, lambda: writer.ready)
            writer.send(Outgoing(self.source, stamp, b"r%d" % self.sent, order=(self.sent,)))
        _drive(writer, lambda: writer.drained)
        writer.close()

    def read(self) -> LinkReader:
        """Read the sink's link until the end of a `with`."""
        links = open_links(self.server.kind, self.server.address)

        def refuse(payload: bytes) -> None:
            raise AssertionError(f"no record of ours: {payload!r}")

        return links.reader(self.sink, SPY, self.records.append, refuse)

    def once(self) -> list[Record]:
        """What came, each stamp once: the broker may bring records again."""
        return list({record.stamp: record for record in self.records}.values())

    def await_all(self) -> None:
        """All that was fed has come out, once, in order, numbered without a gap."""
        wait_for(lambda: len(self.once()) >= self.sent, lambda: f"{self.sent}: {self.once()}")
        payloads = [record.payload for record in self.once()]
        assert payloads == [b"r%d" % number for number in range(1, self.sent + 1)]

    def stamps(self) -> list[tuple[str, int, int]]:
        """Producer, epoch and number of what came."""
        stamps = []
        for record in self.once():
            assert record.stamp is not None
            producer, epoch, number = record.stamp.rsplit("/", 2)
            stamps.append((producer, int(epoch), int(number)))
        return stamps

    def taken(self) -> Taken | None:
        return self.broker.view().taken.get(self.reader)

    def await_taken(self) -> Taken:
        """What its reader says once it has said that all was taken."""

        def look() -> Taken | None:
            taken = self.taken()
            return taken if taken is not None and taken.messages >= self.sent else None

        return wait_for(look, lambda: f"{self.sent} records to be taken: {self.taken()}")

    def await_sent(self) -> None:
        """The broker is known to have all that was fed."""

        def sent() -> int:
            return sum(self.broker.view().find_last(self.sink, [self.writer]).values())

        wait_for(lambda: sent() >= self.sent, lambda: f"{self.sent} records to be sent: {sent()}")


def _flag(name: str) -> str:
    return name.replace("_", "-")


def _drive(writer: LinkWriter, until: Callable[[], bool]) -> None:
    """A writer has no thread of its own."""

    def step() -> bool:
        writer.tend()
        number = writer.fileno()
        if number >= 0:
            wanted = [number] if writer.want_write() else []
            readable, writable, _ = select.select([number], wanted, [], 0.02)
            if readable:
                writer.read()
            if writable:
                writer.write()
        return bool(until())

    wait_for(step, "the broker to take records")


@pytest.fixture(scope="module")
def mqtt(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ExitStack() as stack:
        yield MosquittoServer(tmp_path_factory.mktemp("mqtt"), stack)


@pytest.fixture(scope="module")
def mortal_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with ExitStack() as stack:
        yield KafkaServer(tmp_path_factory.mktemp("kafka"), stack)


@pytest.fixture
def shared_kafka(kafka_server: Kafka) -> Server:
    return SharedKafka(kafka_server.address)


RUNS = {
    "mqtt-flink": "mqtt",
    "mqtt-process": "mqtt",
    "mqtt-spark": "mqtt",
    "kafka-flink": "shared_kafka",
    "kafka-process": "shared_kafka",
    "kafka-spark": "shared_kafka",
    "mortal kafka-flink": "mortal_kafka",
    "mortal kafka-process": "mortal_kafka",
    "mortal kafka-spark": "mortal_kafka",
}
"""A kind of broker and a kind of program -> the fixture of the broker."""


def quick(*runs: str, kafka: str = "kafka") -> pytest.MarkDecorator:
    """Every kind of program over every kind of broker; what is not named here is long. (Quick, over
    Kafka, of Flink: tests/e2e/test_kafka.py.)"""
    rows = [
        pytest.param(f"{broker}-{program}", marks=() if f"{broker}-{program}" in runs else LONG)
        for broker in ("mqtt", kafka)
        for program in ("flink", "process", "spark")
    ]
    return pytest.mark.parametrize("bench", rows, indirect=True)


def _open_program(request: pytest.FixtureRequest, kind: str) -> AbstractContextManager[Program]:
    if kind == "process":
        return python_forward()
    if kind == "spark":
        return spark_program("pass_through")
    flink: FlinkServer = request.getfixturevalue("flink")
    return flink_pass_through(flink)


@pytest.fixture
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    server: Server = request.getfixturevalue(RUNS[request.param])
    number = next(_LINKS)
    broker = open_broker(server.kind, Target(server.address))
    with _open_program(request, request.param.rpartition("-")[2]) as program:
        bench = Bench(server, program, broker, f"in{number}", f"out{number}")
        yield bench
    broker.release(SPY, bench.sink, last_reader=True)
    broker.close()


@quick("mqtt-flink", "mqtt-process")
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_records_pass_once_in_order_and_are_numbered(bench: Bench, delivery: str) -> None:
    bench.start(delivery=delivery)
    bench.feed(500)
    with bench.read():
        bench.await_all()
    stamps = bench.stamps()
    assert {(producer, epoch) for producer, epoch, _ in stamps} == {stamps[0][:2]}
    assert stamps[0][0] == "0a1b2c3d-pass"
    assert [number for _, _, number in stamps] == list(range(1, 501))


@quick()
def test_what_was_taken_and_sent_is_known_at_the_broker(bench: Bench) -> None:
    bench.start()
    bench.feed(20)
    taken = bench.await_taken()
    assert not taken.missing.get(bench.producer, {}).get(1, 0)
    bench.await_sent()
    view = bench.broker.view()
    feeder = {(bench.producer, 1): bench.sent}
    last = view.find_last(bench.source, ()) or feeder
    assert view.untaken(bench.reader, last) == 0
    assert view.has_last(bench.reader, last)


@quick()
def test_marks_are_reported_behind_what_was_before_them(bench: Bench) -> None:
    if BrokerCapability.MARKS not in bench.broker.capabilities:
        assert bench.broker.view().ends, "positions take their place"
        return
    bench.start()
    bench.feed(10)
    mark = uuid4().hex
    wait_for(lambda: bench.broker.mark(bench.reader, mark), "a session that takes marks")
    wait_for(lambda: (taken := bench.taken()) is not None and taken.mark == mark, "the mark")
    assert bench.await_taken().messages == 10
    with bench.read():
        bench.await_all()


@quick("mqtt-flink")
@pytest.mark.parametrize("compression", [pytest.param("none", marks=LONG), "zstd"])
def test_records_that_share_messages_are_the_same_records(bench: Bench, compression: str) -> None:
    bench.start(batch_records="50", linger_ms="20", compression=compression)
    bench.feed(300)
    with bench.read():
        bench.await_all()
    assert [number for _, _, number in bench.stamps()] == list(range(1, 301))


@quick("mqtt-flink", "mqtt-process", "kafka-process")
def test_a_program_goes_on_from_its_state(bench: Bench) -> None:
    bench.start()
    bench.feed(50)
    bench.await_sent()
    state = bench.program.stop()
    bench.feed(50)  # waits in the session
    bench.start(state)
    with bench.read():
        bench.await_all()
    epochs = {epoch for _, epoch, _ in bench.stamps()}
    assert len(epochs) == 1, "the numbers go on"


@quick()
def test_a_killed_program_repeats_nothing_under_another_number(bench: Bench) -> None:
    bench.start()
    with bench.read():
        for _ in range(3):
            bench.feed(100)
            state = bench.program.kill()
            bench.start(state)
        bench.await_all()
    assert [number for _, _, number in bench.stamps()] == list(range(1, 301))


@quick()
def test_numbers_of_another_start_are_of_another_epoch(bench: Bench) -> None:
    """Under at_least_once a record may get another number after a restore."""
    bench.start(delivery="at_least_once")
    bench.feed(10)
    bench.await_sent()
    state = bench.program.stop()
    bench.start(state, delivery="at_least_once")
    bench.feed(10)
    with bench.read():
        bench.await_all()
    epochs = list(dict.fromkeys(epoch for _, epoch, _ in bench.stamps()))
    assert len(epochs) == 2
    assert epochs == sorted(epochs)


@quick("mqtt-flink", kafka="mortal kafka")
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_what_a_killed_broker_had_acknowledged_is_sent_again(bench: Bench, delivery: str) -> None:
    bench.start(delivery=delivery)
    bench.feed(10)
    bench.await_sent()
    bench.server.save()  # the sessions, above all
    bench.feed(200)
    bench.await_sent()
    bench.server.restart()
    with bench.read():
        bench.await_all()


@quick(kafka="mortal kafka")
@pytest.mark.parametrize("delivery", DELIVERIES)
def test_the_sink_alone_sends_what_a_killed_broker_has_forgotten(
    bench: Bench, delivery: str
) -> None:
    bench.start(delivery=delivery)
    bench.feed(10)
    bench.await_sent()
    bench.server.save()
    bench.feed(200)
    bench.await_sent()
    state = bench.program.stop()
    bench.server.restart()
    bench.resend(state, delivery=delivery)
    with bench.read():
        bench.await_all()
    assert len({epoch for _, epoch, _ in bench.stamps()}) == 1


@quick()
def test_what_was_handed_over_is_left_out(bench: Bench) -> None:
    """`--taken`: an earlier reader of the link has taken it."""
    bench.broker.reserve(bench.reader, bench.source)
    bench.feed(10)
    view = bench.broker.view()
    if bench.source in view.ends:
        ((series, epoch),) = view.ends[bench.source]
        taken = _render(series, epoch, min(view.ends[bench.source].values()) - 4)
    else:
        taken = _render(bench.producer, 1, 6)
    bench.start(taken=taken)
    with bench.read():
        wait_for(lambda: len(bench.once()) >= 4, lambda: bench.once())
    assert [record.payload for record in bench.once()] == [b"r7", b"r8", b"r9", b"r10"]


def _render(producer: str, epoch: int, upto: int) -> str:
    return render_taken((TakenEpoch(producer, epoch, upto),))
