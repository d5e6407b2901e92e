"""The Python client of the job contract on a real Mosquitto: what it promises of its two links."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from speck.binding import MessageBroker, Target, open_broker
from speck.fog.mosquitto import Mosquitto
from speck.model.observation import Sent, Taken
from speck.model.record import Record
from tests.mosquitto_server import mosquitto
from tests.python_jobs import CLIENT_ID, PythonJob, build_programs, publisher, reading
from tests.waiting import wait_for

SINK_ID = f"{CLIENT_ID}-out"
DELIVERIES = (pytest.param("at_least_once", marks=pytest.mark.long), "exactly_once")


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_programs(tmp_path_factory.mktemp("programs"))


class Place:
    """A broker, a job on it, and who writes to it and reads from it."""

    def __init__(self, broker: Mosquitto, job: PythonJob, topics: tuple[str, str]) -> None:
        self.broker, self.job, self.topics = broker, job, topics
        self.binder: MessageBroker = open_broker("mqtt", Target(broker.address))
        self.published = 0

    def publish(self, count: int, **more: Any) -> None:
        payloads = [b"r%d" % number for number in range(self.published, self.published + count)]
        with publisher(self.broker.address) as publish:
            publish(self.topics[0], payloads, self.published + 1, **more)
        self.published += count

    def publish_beside(self, topic: str) -> None:
        """Publish one more message, without a number."""
        self.binder.publish(topic, [b"end"])

    def taken(self) -> Taken | None:
        return self.binder.view().taken.get(CLIENT_ID)

    def sent(self) -> Sent | None:
        return self.binder.view().sent.get(SINK_ID)

    def await_taken(self, number: int) -> None:
        def has_taken() -> bool:
            taken = self.taken()
            return taken is not None and taken.taken.get("src", {}).get(1) == number

        wait_for(has_taken, f"number {number} to be taken", 60)


@pytest.fixture
def place(archive: Path, mosquitto_server: Mosquitto, tmp_path: Path) -> Iterator[Place]:
    topics = (f"in/{tmp_path.name}", f"out/{tmp_path.name}")
    address = mosquitto_server.address
    job = PythonJob(archive, tmp_path / "job", (address, topics[0]), (address, topics[1]))
    place = Place(mosquitto_server, job, topics)
    place.binder.reserve(CLIENT_ID, topics[0])
    place.binder.reserve("spy", topics[1])
    yield place
    if job.process is not None and job.process.poll() is None:
        job.kill()
    place.binder.release(CLIENT_ID, topics[0], last_reader=True)
    place.binder.release("spy", topics[1], last_reader=True)
    place.binder.close()


def numbers(records: list[Record]) -> list[int]:
    return [int(record.payload[1:]) for record in records]


def test_records_pass_in_order_with_stamps_and_bookkeeping(place: Place) -> None:
    place.job.start("forward")
    with reading(place.broker.address, place.topics[1]) as records:
        place.publish(300)
        wait_for(lambda: len(records) == 300, "all records", 60)
        assert numbers(records) == list(range(300))
        place.await_taken(300)
        stamps = [(record.stamp or "").split("/") for record in records]
        assert {(producer, epoch) for producer, epoch, _ in stamps} == {
            ("1234abcd-J", stamps[0][1])
        }
        assert [int(number) for _, _, number in stamps] == list(range(1, 301))
        sent = wait_for(lambda: s if (s := place.sent()) and s.number == 300 else None, "sent", 60)
        assert (sent.producer, str(sent.epoch)) == ("1234abcd-J", stamps[0][1])
        assert sent.topic == place.topics[1]
        report = place.job.report()
        assert (report["records_in"], report["records_out"]) == (300, 300)
        place.job.stop()
        place.publish(20)
        place.job.start("forward", epoch=2)
        wait_for(lambda: len(records) >= 320, "what waited", 60)
        place.job.save()
        assert numbers(records) == list(range(320)), "a stop publishes nothing twice"


def test_a_port_of_two_links_loses_nothing_when_its_program_is_killed(place: Place) -> None:
    address, first = place.broker.address, place.topics[1]
    second, second_id = f"{first}/p1", "speck-1234abcd-J-bbbbbbbb-out"
    port = f"{quote(first, safe='')}/{SINK_ID};{quote(second, safe='')}/{second_id}"
    words = ("--port", port, "--delivery", "exactly_once", "--checkpoint-interval", "100ms")
    place.binder.reserve("second", second)
    with reading(address, first) as one, reading(address, second, "second") as two:
        place.job.start("forward", *words)
        for kill in range(3):
            place.publish(200)
            wait_for(lambda kill=kill: len(one) > 100 * kill + 20, "some records", 60)
            place.job.kill()
            place.job.start("forward", *words)
        place.await_taken(600)

        def once() -> list[dict[str | None, Record]]:
            return [{record.stamp: record for record in records} for records in (one, two)]

        wait_for(lambda: sum(map(len, once())) == 600, lambda: [len(one), len(two)], 60)
        both = once()
        assert sorted(numbers([*both[0].values(), *both[1].values()])) == list(range(600))
        for records, producer in zip(
            both, ("1234abcd-J-aaaaaaaa", "1234abcd-J-bbbbbbbb"), strict=True
        ):
            stamps = [(stamp or "").rsplit("/", 2) for stamp in records]
            assert {(name, epoch) for name, epoch, _ in stamps} == {(producer, stamps[0][1])}
            assert [int(n) for *_, n in stamps] == list(range(1, len(records) + 1))
        sent = place.binder.view().sent
        wait_for(lambda: {SINK_ID, second_id} <= place.binder.view().sent.keys(), lambda: sent, 60)
        place.job.stop()
    place.binder.release("second", second, last_reader=True)


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_program_that_is_killed_loses_nothing(place: Place, delivery: str) -> None:
    with reading(place.broker.address, place.topics[1]) as records:
        for kill in range(4):
            place.job.start("forward", "--delivery", delivery, "--checkpoint-interval", "200ms")
            place.publish(150)
            if kill % 2:
                wait_for(lambda: len(records) > place.published // 2, "some records", 60)
            place.job.kill()
        place.job.start("forward", "--delivery", delivery)
        wait_for(lambda: set(numbers(records)) == set(range(600)), "all records", 60)
        place.await_taken(600)
        place.job.stop()
        if delivery == "exactly_once":
            firsts = {record.stamp: record.payload for record in records}
            assert len(firsts) == 600, "a repeat has the same stamp and the same bytes"
            assert {record.payload for record in records} == set(firsts.values())
        taken = place.taken()
        assert taken is not None
        assert taken.missing == {"src": {1: 0}}


@pytest.mark.parametrize("delivery", DELIVERIES)
def test_a_broker_that_is_killed_gets_again_what_it_forgot(
    archive: Path, mosquitto_server: Mosquitto, tmp_path: Path, delivery: str
) -> None:
    source = mosquitto_server.address, f"in/{tmp_path.name}"
    with ExitStack() as stack:

        def start(port: int | None = None) -> Mosquitto:
            settings = {"autosave_interval": "3600", "log_type": "error"}
            return stack.enter_context(mosquitto(tmp_path / "sink", port=port, **settings))

        sink = start()
        job = PythonJob(archive, tmp_path / "job", source, (sink.address, "out"))
        binder = open_broker("mqtt", Target(sink.address))
        open_broker("mqtt", Target(source[0])).reserve(CLIENT_ID, source[1])
        binder.reserve("spy", "out")
        binder.close()
        sink.stop()  # it saves the session, and nothing from then on
        sink = start(sink.port)
        args = ("--delivery", delivery, "--sink-readers", "some")
        job.start("forward", *args)
        payloads = [b"r%d" % number for number in range(200)]
        with publisher(source[0]) as publish:
            publish(source[1], payloads)
        wait_for(lambda: job.report()["records_out"] == 200, "all to be sent", 60)
        job.save()
        sink.kill()
        job.kill()  # engine and broker of a site may fall together
        sink = start(sink.port)
        job.start("forward", *args)
        with reading(sink.address, "out") as records:
            wait_for(lambda: set(numbers(records)) == set(range(200)), "all records", 60)
        assert job.report()["counters"]["recordsResent"] >= 200
        job.stop()


def test_batches_are_written_and_read(place: Place) -> None:
    place.job.start(
        "forward",
        *("--batch-records", "50", "--linger-ms", "50", "--compression", "zstd"),
        *("--delivery", "exactly_once"),
    )
    with reading(place.broker.address, place.topics[1]) as records:
        place.publish(500)
        wait_for(lambda: len(records) >= 500, "all records", 60)
        assert numbers(records) == list(range(500))
        sent = place.job.report()["bytes_out"]
        place.job.stop()
    assert 0 < sent < sum(len(record.payload) + 60 for record in records) / 3


@pytest.mark.long
def test_a_batch_is_taken_record_by_record(place: Place, archive: Path, tmp_path: Path) -> None:
    """Another program reads what the first has sent in batches, and is killed in between."""
    address, end = place.broker.address, f"end/{tmp_path.name}"
    place.binder.reserve("spy-2", end)
    second = PythonJob(archive, tmp_path / "second", (address, place.topics[1]), (address, end))
    place.job.start("forward", "--batch-records", "20", "--linger-ms", "100")
    with reading(address, end, "spy-2") as records:
        taken_from = ("--client-id", "speck-1234abcd-K-bbbbbbbb", "--delivery", "exactly_once")
        second.start("forward", *taken_from)
        place.publish(200)
        wait_for(lambda: len(records) > 20, "some records", 60)
        second.kill()
        place.publish(100)
        second.start("forward", *taken_from)
        wait_for(lambda: len({record.stamp for record in records}) == 300, "all records", 60)
        assert set(numbers(records)) == set(range(300))
        second.stop()
    place.binder.release("spy-2", end, last_reader=True)
    place.binder.release("speck-1234abcd-K-bbbbbbbb", place.topics[1], last_reader=True)


def test_what_another_reader_has_taken_is_dropped(place: Place) -> None:
    place.publish(100)
    place.job.start("forward", "--taken", "src/1/40/61-80")
    with reading(place.broker.address, place.topics[1]) as records:
        place.await_taken(100)
        wait_for(lambda: len(records) == 40, "the rest", 60)
        assert numbers(records) == [*range(40, 60), *range(80, 100)]


def test_nothing_is_read_beyond_the_numbers_to_read(place: Place) -> None:
    place.publish(100)
    place.job.start("forward", "--until", "src/1/30")
    with reading(place.broker.address, place.topics[1]) as records:
        place.await_taken(30)
        place.job.save()
        assert numbers(records) == list(range(30))
        place.job.stop()
        place.job.start("forward", epoch=2)
        wait_for(lambda: len(records) == 100, "what was left", 60)
        assert numbers(records) == list(range(100))


def test_a_mark_says_that_all_before_it_is_taken(place: Place) -> None:
    place.job.start("forward")
    place.publish(50)
    assert place.binder.mark(CLIENT_ID, "abc123")
    taken = wait_for(lambda: t if (t := place.taken()) and t.mark else None, "the mark", 60)
    assert (taken.mark, taken.messages) == ("abc123", 50)


def test_records_without_a_reader_are_held_until_there_is_one(place: Place) -> None:
    place.binder.release("spy", place.topics[1], last_reader=False)
    place.job.start("forward", "--sink-readers", "some")
    place.publish(10)
    wait_for(lambda: (s := place.sent()) is not None and s.unread > 0, "the announcement", 60)
    place.binder.reserve("spy", place.topics[1], first=True)
    with reading(place.broker.address, place.topics[1]) as records:
        wait_for(lambda: len(records) >= 10, "what was held", 60)
        wait_for(lambda: (s := place.sent()) is not None and s.unread == 0, "the announcement", 60)
        place.job.stop()  # and with it whatever it might still send
        place.publish_beside(place.topics[1])
        wait_for(lambda: records[-1].payload == b"end", "what was published last", 60)
    assert numbers(records[:-1]) == list(range(10)), "each once, in order"


@pytest.mark.long
def test_records_that_are_too_large_are_left_out_and_counted(place: Place) -> None:
    place.job.start("forward", "--max-record-bytes", "3")
    place.publish(102)
    with reading(place.broker.address, place.topics[1]) as records:
        wait_for(lambda: len(records) == 100, "those that fit", 60)
        wait_for(lambda: place.job.report()["left_out"] == 2, "the count", 60)
    sent = wait_for(lambda: s if (s := place.sent()) and s.left_out else None, "sent", 60)
    assert sent.left_out == 2


@pytest.mark.long
def test_a_session_that_is_lost_is_made_again_and_announced(place: Place) -> None:
    place.binder.release(CLIENT_ID, place.topics[0], last_reader=False)
    place.job.start("forward")
    sessions = place.binder.view().sessions
    assert (CLIENT_ID, place.topics[0]) in sessions
    assert place.job.report()["counters"]["sessionsLost"] == 1


@pytest.mark.long
def test_a_link_that_was_the_jobs_before_gets_what_is_left(
    place: Place, archive: Path, tmp_path: Path
) -> None:
    """Records that a checkpoint holds go to the link that they were made for."""
    place.job.start("forward", "--delivery", "exactly_once", "--sink-client-id", SINK_ID)
    place.publish(20)
    place.await_taken(20)
    place.job.kill()
    state = place.job.folder / "state/state.db"
    import sqlite3

    with sqlite3.connect(state) as database:  # as if it had died before it could publish
        database.execute("UPDATE messages SET sent = 1")
    other = f"other/{tmp_path.name}"
    place.binder.reserve("spy-2", other)
    place.job._links = place.job._links[0], (place.broker.address, other)
    with (
        reading(place.broker.address, place.topics[1]) as before,
        reading(place.broker.address, other, "spy-2") as after,
    ):
        place.job.start(
            "forward", "--delivery", "exactly_once", "--sink-client-id", f"{CLIENT_ID}-2-out"
        )
        place.publish(10)
        wait_for(lambda: len(after) == 10, "new records at the new link", 60)
        assert set(numbers(before)) == set(range(20))
        assert numbers(after) == list(range(20, 30))
    place.binder.release("spy-2", other, last_reader=True)


def test_an_argument_that_is_wrong_is_named(place: Place) -> None:
    with pytest.raises(AssertionError, match="it has failed"):
        place.job.start("forward", "--delivery", "twice")
    assert place.job.process is not None
    assert place.job.process.returncode == 2


def test_clean_drops_what_no_sensor_can_have_meant(place: Place) -> None:
    place.job.start("clean")
    good = {
        "id": 1,
        "stream": "A1",
        "time_ms": 1000,
        "sensor": "A1-03",
        "vehicle": "v",
        "speed_mps": 13.2,
        "length_m": 4.5,
        "type": "car",
    }
    sent = [json.dumps(good).encode(), b"no JSON", json.dumps({**good, "id": 0}).encode()]
    with (
        publisher(place.broker.address) as publish,
        reading(place.broker.address, place.topics[1]) as records,
    ):
        publish(place.topics[0], sent)
        place.await_taken(3)
        wait_for(lambda: len(records) == 1, "the good one", 60)
        assert records[0].payload == sent[0]
    counters = wait_for(
        lambda: c if (c := place.job.report()["counters"])["malformed"] else None, "counters", 60
    )
    assert (counters["malformed"], counters["impossible"]) == (1, 1)


def test_it_fits_into_40_mb(place: Place) -> None:
    """With state, marks and zstd."""
    place.job.start("clean", "--compression", "zstd", "--batch-records", "100")
    assert place.job.process is not None
    place.publish(1000)
    place.await_taken(1000)
    rollup = Path(f"/proc/{place.job.process.pid}/smaps_rollup").read_text()
    (pss,) = (int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Pss:"))
    assert pss < 40 * 1024
