"""A link over Kafka beside the least that can stand between two topics: a bare relay with the same
client library and the same acknowledgements.

A job of Flink that passes everything on, under at_least_once, and the relay take turns; each reads
the same log of records that wait for it, on a core of its own; Kafka has the other. Both wait once
a second until Kafka has all that they have sent, and then commit their place. The rate is that of
the sink's log, from a tenth of the records to the last.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from bench.common import is_quick, say
from bench.load import Cores, JavaProgram, pinning
from bench.runner import Job, engine_settings, scratch, submitted
from speck.binding import MessageBroker, Target, open_broker
from speck.fog import flink, kafka
from speck.fog.kafka import Kafka
from speck.model.values import JsonObject

ROUNDS = 1 if is_quick() else 3
RECORDS = 20_000 if is_quick() else 200_000
BYTES = 100
SOURCE = "relay.in"
JOB, RELAY = "job", "relay"
LIMIT_S = 240.0
WANTED = 0.8


def measure() -> JsonObject:
    """`{"ratio", "records_per_s": {"job", "relay"}, "rounds", ...}`. Raises RuntimeError."""
    cores = Cores.pick()
    variants = [(number, what) for number in range(ROUNDS + 1) for what in (JOB, RELAY)]
    rates: dict[str, list[float]] = {JOB: [], RELAY: []}
    with ExitStack() as stack:
        folder = stack.enter_context(scratch())
        log = stack.enter_context(kafka.start(folder / "broker", launch=pinning(cores.load)))
        engine = flink.start(engine_settings(folder, 1.0), launch=pinning(cores.measured))
        stack.callback(engine.stop)
        broker = open_broker("kafka", Target(log.address))
        stack.callback(broker.close)
        _prepare(broker, log, variants)
        words = [_hosts(log), SOURCE, "speck-bench-relay"]
        relay = JavaProgram(cores.measured, "io.speck.kafka.bench.Relay", words)
        stack.enter_context(relay)
        for number, what in variants:
            with _running(what, number, relay, log, engine):
                rate = _await_all(log, _sink(number, what))
            say(f"kafka, round {number}, {what}: {rate:.0f}/s")
            if number > 0:  # the first one warms up
                rates[what].append(rate)
    medians = {what: statistics.median(each) for what, each in rates.items()}
    return {
        "ratio": round(medians[JOB] / medians[RELAY], 3),
        "records_per_s": {what: round(each) for what, each in medians.items()},
        "rounds": {what: [round(rate) for rate in each] for what, each in rates.items()},
        "records": RECORDS,
        "bytes": BYTES,
        "delivery": "at_least_once",
        "pinning": str(cores),
    }


def _sink(number: int, what: str) -> str:
    return f"relay.out.{number}.{what}"


def _group(number: int) -> str:
    return f"speck-bench-job-{number}"


def _prepare(broker: MessageBroker, log: Kafka, variants: Sequence[tuple[int, str]]) -> None:
    """All topics, a place of each job at the beginning of the source, and the records in it."""
    for number, what in variants:
        if what == JOB:
            broker.reserve(_group(number), SOURCE)
        broker.reserve(f"end-{number}-{what}", _sink(number, what))
    producer = KafkaProducer(bootstrap_servers=_hosts(log), linger_ms=20, batch_size=1 << 18)
    for number in range(RECORDS):
        headers = [("speck", f"relay/1/{number + 1}".encode())]
        producer.send(SOURCE, b"%08d" % number + b"x" * (BYTES - 8), headers=headers, partition=0)
    producer.flush()
    producer.close()


@contextmanager
def _running(
    what: str, number: int, relay: JavaProgram, log: Kafka, engine: flink.Flink
) -> Iterator[None]:
    sink = _sink(number, what)
    if what == RELAY:
        relay.tell(sink)
        yield
        if (line := relay.hear()) != "relayed":
            raise RuntimeError(f"the relay says: {line}")
        return
    job = Job(SOURCE, sink, "at_least_once", {"client-id": _group(number)})
    with submitted(engine, log, job):  # type: ignore[arg-type]
        yield


def _await_all(log: Kafka, topic: str) -> float:
    """Records a second in a topic, from a tenth of all to the last."""
    part = TopicPartition(topic, 0)
    began = time.monotonic()
    first: tuple[float, int] | None = None
    consumer = KafkaConsumer(bootstrap_servers=_hosts(log))
    try:
        while True:
            count, now = int(consumer.end_offsets([part])[part]), time.monotonic()
            if first is None and count >= RECORDS / 10:
                first = (now, count)
            if first is not None and count >= RECORDS:
                return (count - first[1]) / max(now - first[0], 1e-3)
            if now - began > LIMIT_S:
                raise RuntimeError(f"cannot see all of {RECORDS} records in {topic}: {count}")
            time.sleep(0.02)
    finally:
        consumer.close()


def _hosts(log: Kafka) -> str:
    return f"{log.host}:{log.port}"
