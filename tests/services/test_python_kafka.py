"""The Python client of the job contract on real Kafka: what its contract suite does not ask."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kafka import KafkaProducer

from speck.binding import Target, open_broker
from speck.fog.kafka import Kafka, start
from speck.fog.mosquitto import Mosquitto
from speck.model.record import Record
from speck.tls.identity import SERVICE, Identity, issue_all
from tests.kafka_server import KafkaSide
from tests.python_jobs import CLIENT_ID, PythonJob, build_programs, publisher, reading
from tests.waiting import wait_for

SECOND = "speck-1234abcd-K-bbbbbbbb"
EXACT = ("--delivery", "exactly_once", "--checkpoint-interval", "100ms")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_programs(tmp_path_factory.mktemp("programs"))


@contextmanager
def ended(*jobs: PythonJob) -> Iterator[None]:
    """End what still runs."""
    try:
        yield
    finally:
        for job in jobs:
            if job.process is not None and job.process.poll() is None:
                job.kill()


def numbered(first: int, last: int) -> list[bytes]:
    return [b"r%d" % number for number in range(first, last + 1)]


def once(records: list[Record]) -> list[bytes]:
    """Their payloads, each stamp once."""
    return [record.payload for record in {each.stamp: each for each in records}.values()]


def test_records_go_from_mosquitto_into_kafka_and_back(
    archive: Path, mosquitto_server: Mosquitto, empty_kafka: KafkaSide, tmp_path: Path
) -> None:
    mqtt, kafka = mosquitto_server.address, empty_kafka.address
    there, back = f"in/{tmp_path.name}", f"out/{tmp_path.name}"
    first = PythonJob(archive, tmp_path / "first", (mqtt, there), (kafka, "mid"))
    second = PythonJob(archive, tmp_path / "second", (kafka, "mid"), (mqtt, back))
    topics = open_broker("mqtt", Target(mqtt))
    topics.reserve(CLIENT_ID, there)
    topics.reserve("spy", back)
    logs = open_broker("kafka", Target(kafka, timeout_s=30))
    logs.reserve(SECOND, "mid")
    with ended(first, second), publisher(mqtt) as publish, reading(mqtt, back) as records:
        first.start("forward", *EXACT)
        second.start("forward", "--client-id", SECOND, *EXACT)
        publish(there, numbered(1, 200))
        wait_for(lambda: len(records) > 50, "some records", 60)
        second.kill()
        publish(there, numbered(201, 300), 201)
        second.start("forward", "--client-id", SECOND, *EXACT)
        wait_for(lambda: len(once(records)) == 300, lambda: len(once(records)), 60)
        assert once(records) == numbered(1, 300)
        wait_for(lambda: logs.view().taken[SECOND].messages == 300, "its place", 60)
        assert logs.view().lag(SECOND, "mid", []) == 0
        first.stop()
        second.stop()
    for reader, topic in ((CLIENT_ID, there), ("spy", back)):
        topics.release(reader, topic, last_reader=True)


@pytest.mark.long
def test_records_without_numbers_come_once(
    archive: Path, empty_kafka: KafkaSide, tmp_path: Path
) -> None:
    """The state knows where in the log it ends, also when it was killed."""
    address = empty_kafka.address
    job = PythonJob(archive, tmp_path / "job", (address, "in"), (address, "out"))
    logs = open_broker("kafka", Target(address, timeout_s=30))
    logs.reserve(CLIENT_ID, "in")
    logs.reserve("spy", "out")
    with ended(job), reading(address, "out") as records:
        for kill in range(3):
            job.start("forward", *EXACT)
            empty_kafka.publish("in", numbered(100 * kill + 1, 100 * kill + 100))
            wait_for(lambda: len(records) > 30, "some records", 60)
            job.kill()
        job.start("forward", *EXACT)
        wait_for(lambda: len(once(records)) >= 300, "all records", 60)
        assert once(records) == numbered(1, 300)


@pytest.mark.long
def test_a_reader_passes_the_markers_of_transactions(
    archive: Path, empty_kafka: KafkaSide, tmp_path: Path
) -> None:
    address = empty_kafka.address
    job = PythonJob(archive, tmp_path / "job", (address, "in"), (address, "out"))
    logs = open_broker("kafka", Target(address, timeout_s=30))
    logs.reserve(CLIENT_ID, "in")
    with ended(job):
        job.start("forward", *EXACT)
        producer = KafkaProducer(bootstrap_servers=empty_kafka.servers, transactional_id="x")
        producer.init_transactions()
        for commits in (True, False):
            producer.begin_transaction()
            for _ in range(5):
                producer.send("in", b"x", partition=0)
            producer.flush()  # what is not sent yet would never be, where it is taken back
            (producer.commit_transaction if commits else producer.abort_transaction)()
        producer.close(timeout=5)
        places = {"in": {0: 12}}
        wait_for(lambda: empty_kafka.places(CLIENT_ID) == places, "the end of the log", 60)
        wait_for(lambda: job.report()["records_in"] >= 5, "the report", 60)
        assert job.report()["records_in"] == 5, "what was taken back is not read"


@pytest.mark.long
def test_a_reader_whose_place_is_lost_knows_what_it_has_taken(
    archive: Path, empty_kafka: KafkaSide, tmp_path: Path
) -> None:
    address = empty_kafka.address
    job = PythonJob(archive, tmp_path / "job", (address, "in"), (address, "out"))
    open_broker("kafka", Target(address, timeout_s=30)).reserve(CLIENT_ID, "in")
    with ended(job):
        job.start("forward", *EXACT)
        empty_kafka.publish("in", numbered(1, 50), stamp=lambda index: f"src/1/{index + 1}")
        wait_for(lambda: empty_kafka.places(CLIENT_ID) == {"in": {0: 50}}, "its place", 60)
        job.stop()
        empty_kafka.delete_group(CLIENT_ID)
        empty_kafka.publish("in", numbered(51, 60), stamp=lambda index: f"src/1/{index + 51}")
        job.start("forward", *EXACT)
        wait_for(lambda: empty_kafka.places(CLIENT_ID) == {"in": {0: 60}}, "its place", 60)
        wait_for(lambda: job.report()["records_out"] >= 10, "the report", 60)
        report = job.report()
        assert (report["counters"]["sessionsLost"], report["records_out"]) == (1, 10)


def cut_log(server: Kafka, topic: str, batches: int) -> None:
    """Take from the log of a topic all but its first batches, as the loss of power may."""
    with (server.folder / "data" / f"{topic}-0" / f"{0:020}.log").open("r+b") as file:
        for _ in range(batches):
            _, size = struct.unpack(">qi", file.read(12))
            file.seek(size, os.SEEK_CUR)
        file.truncate()


@contextmanager
def grown_again(server: Kafka, batches: int, payloads: list[bytes]) -> Iterator[Kafka]:
    """The broker after it was killed, its log `in` was cut and has grown by other records."""
    server.kill()
    cut_log(server, "in", batches)
    with start(server.folder, port=server.port) as again:
        side = KafkaSide(again)
        for payload in payloads:
            side.publish("in", [payload])  # a batch each
        yield again
        side.close()


@pytest.mark.long
def test_a_reader_reads_all_that_came_after_its_log_was_cut(
    archive: Path, mosquitto_server: Mosquitto, tmp_path: Path
) -> None:
    """A machine loses power, and its log the records that no disk had: it grows past the places of
    readers with other records. Nobody sends again what was lost here."""
    mqtt, out = mosquitto_server.address, f"out/{tmp_path.name}"
    topics = open_broker("mqtt", Target(mqtt))
    topics.reserve("spy", out)
    before, after, last = ([b"%s%d" % (name, n) for n in range(10)] for name in (b"a", b"b", b"c"))
    with start(tmp_path / "kafka") as server, reading(mqtt, out) as records:
        job = PythonJob(archive, tmp_path / "job", (server.address, "in"), (mqtt, out))
        open_broker("kafka", Target(server.address, timeout_s=30)).reserve(CLIENT_ID, "in")
        side = KafkaSide(server)
        with ended(job):
            job.start("forward", *EXACT)
            for payload in before:
                side.publish("in", [payload])
            side.close()
            wait_for(lambda: len(once(records)) == 10, lambda: once(records), 60)
            wait_for(lambda: KafkaSide(server).places(CLIENT_ID) == {"in": {0: 10}}, "place", 60)
            with grown_again(server, 6, after) as again:
                wait_for(lambda: len(once(records)) == 20, lambda: once(records), 60)
                wait_for(lambda: KafkaSide(again).places(CLIENT_ID) == {"in": {0: 16}}, "it", 60)
                job.kill()
                with grown_again(again, 8, last):  # six of the first, two of the others
                    job.start("forward", *EXACT)
                    wait_for(lambda: len(once(records)) == 30, lambda: once(records), 60)
    assert once(records) == [*before, *after, *last]
    topics.release("spy", out, last_reader=True)


@pytest.mark.long
def test_a_broker_refuses_until_the_credentials_are_right(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    settings = {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": (
            f'{jaas} username="admin" password="a" user_admin="a" user_edge="p";'
        ),
    }
    folder = tmp_path / "credentials"
    folder.mkdir()
    monkeypatch.setenv("SPECK_CREDENTIALS_DIR", str(folder))
    with start(tmp_path / "kafka", settings=settings, protocol="SASL_PLAINTEXT") as server:
        login = f"address={server.address}\nuser=edge\nmechanism=PLAIN\npassword="
        (folder / "edge").write_text(login + "wrong\n")
        job = PythonJob(archive, tmp_path / "job", (server.address, "in"), (server.address, "out"))
        with ended(job):
            job.start("forward", awaited=False)
            problem = wait_for(
                lambda: p if "AUTH" in (p := job.report().get("problem") or "") else "", "it", 60
            )
            assert problem.startswith(f"cannot read in at {server.address}: the broker refuses")
            assert "AUTHENTICATION_FAILED" in problem
            (folder / "edge").write_text(login + "p\n")
            wait_for(lambda: job.report().get("ready"), "it to get in", 60)
            wait_for(lambda: job.report().get("problem") is None, "both ends", 60)


@pytest.mark.long
def test_a_broker_that_asks_for_certificates(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authorities = tmp_path / "ours", tmp_path / "others"
    for each in authorities:
        issue_all(each, {"cloud": "127.0.0.1"})
    ours, others = (Identity(each, SERVICE) for each in authorities)
    credentials = tmp_path / "credentials"
    monkeypatch.setenv("SPECK_CREDENTIALS_DIR", str(credentials))
    with start(tmp_path / "kafka", tls=Identity.of_site(ours.authority, "cloud")) as server:
        assert server.address.startswith("kafka+ssl://")
        others.write_credentials(credentials / "cloud", [server.address])
        job = PythonJob(archive, tmp_path / "job", (server.address, "in"), (server.address, "out"))
        with ended(job):
            job.start("forward", *EXACT, awaited=False)
            wait_for(lambda: "certificate" in (job.report().get("problem") or ""), "mistrust", 60)
            ours.write_credentials(credentials / "cloud", [server.address])
            wait_for(lambda: job.report().get("ready"), "it to get in", 60)
            producer = KafkaProducer(
                bootstrap_servers=[f"{server.host}:{server.port}"],
                security_protocol="SSL",
                ssl_context=ours.context(),
            )
            for payload in numbered(1, 50):
                producer.send("in", payload, partition=0)
            producer.close(timeout=30)
            wait_for(lambda: job.report()["records_out"] == 50, "the records", 60)
            job.stop()


@pytest.mark.long
def test_it_fits_into_40_mb(archive: Path, empty_kafka: KafkaSide, tmp_path: Path) -> None:
    """Kafka's client takes some 12 MB of them."""
    address = empty_kafka.address
    job = PythonJob(archive, tmp_path / "job", (address, "in"), (address, "out"))
    open_broker("kafka", Target(address, timeout_s=30)).reserve(CLIENT_ID, "in")
    with ended(job):
        job.start("clean")
        assert job.process is not None
        empty_kafka.publish("in", numbered(1, 1000))
        wait_for(lambda: empty_kafka.places(CLIENT_ID) == {"in": {0: 1000}}, "its place", 60)
        rollup = Path(f"/proc/{job.process.pid}/smaps_rollup").read_text()
        (pss,) = (int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
        assert pss < 40 * 1024
