"""The Kafka binder on real Kafka: what its contract suite does not ask of all brokers."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.structs import OffsetAndMetadata

from binders.kafka.places import write_report
from speck.binding import MessageBroker, Outgoing, Target, WriterOptions, open_broker, open_links
from speck.errors import BrokerRefusedError, TransientError, UnreachableError
from speck.fog.kafka import start
from speck.model.record import Record
from speck.monitor.links import LinkMemory, ReaderOf, judge_links
from tests.kafka_server import KafkaSide
from tests.waiting import wait_for


@pytest.fixture
def broker(empty_kafka: KafkaSide) -> Iterator[MessageBroker]:
    with closing(open_broker("kafka", Target(empty_kafka.address, timeout_s=30))) as broker:
        yield broker


def test_a_reader_behind_the_last_record_of_a_transaction_has_read_everything(
    empty_kafka: KafkaSide, broker: MessageBroker
) -> None:
    """The marker of a transaction takes an offset: by offsets alone no drain would end."""
    broker.reserve("speck-a", "t")
    producer = KafkaProducer(bootstrap_servers=empty_kafka.servers, transactional_id="x")
    producer.init_transactions()
    producer.begin_transaction()
    for _ in range(5):
        producer.send("t", b"x", partition=0)
    producer.flush()
    assert broker.view().lag("speck-a", "t", []) == 0, "what is not committed does not count"
    producer.commit_transaction()
    producer.close(timeout=5)
    wait_for(lambda: broker.view().lag("speck-a", "t", []) == 6, "the records and the marker")
    assert empty_kafka.drain("speck-a", commits=True) == [b"x"] * 5
    assert empty_kafka.places("speck-a") == {"t": {0: 5}}
    last = broker.view().find_last("t", [])
    wait_for(lambda: broker.view().has_last("speck-a", last), "that it has read everything")
    assert broker.view().lag("speck-a", "t", []) == 0
    empty_kafka.publish("t", [b"y"])
    for _ in range(3):
        assert broker.view().lag("speck-a", "t", []) in (1, 2), "there is a record again"
    assert empty_kafka.drain("speck-a") == [b"y"]


def test_what_a_job_reports_beside_its_place_is_shown(
    empty_kafka: KafkaSide, broker: MessageBroker
) -> None:
    position = broker.reserve("speck-a", "t").position
    ((series, _),) = position
    empty_kafka.publish("t", [b"x"] * 4)
    report = write_report(
        id=series.partition("/")[0], at=5, checkpoint=9, messages=3, missing={"p": {"1": 2}}
    )
    part = TopicPartition("t", 0)
    empty_kafka.admin.alter_group_offsets("speck-a", {part: OffsetAndMetadata(3, report, 2)})
    taken = broker.view(["speck-a"]).taken["speck-a"]
    assert (taken.checkpoint, taken.messages, taken.at_ms) == (9, 3, 5)
    assert (taken.taken, taken.missing) == ({series: {0: 3}}, {"p": {1: 2}})
    assert broker.reserve("speck-a", "t").position == {(series, 0): 3}
    assert broker.view(["speck-a"]).taken["speck-a"] == taken, "to renew it loses nothing"
    assert _read_epoch(empty_kafka, "speck-a") == 2


def test_a_new_place_has_the_epoch_of_the_logs_end(
    empty_kafka: KafkaSide, broker: MessageBroker
) -> None:
    """Else a reader that has read nothing yet does not notice that the log was cut."""
    broker.reserve("speck-a", "t")
    assert _read_epoch(empty_kafka, "speck-a") >= 0


def _read_epoch(kafka: KafkaSide, group: str) -> int:
    (place,) = kafka.admin.list_group_offsets([group])[group].values()
    return int(place.leader_epoch)


def test_the_link_client_goes_on_behind_what_was_deleted(empty_kafka: KafkaSide) -> None:
    links = open_links("kafka", empty_kafka.address)
    came: list[Record] = []
    with links.reader("t", "checker", came.append, lambda _: None):
        pass
    empty_kafka.publish("t", [b"x"] * 9)
    empty_kafka.trim("t", 4)
    with links.reader("t", "checker", came.append, lambda _: None):
        wait_for(lambda: len(came) == 5, "what is left")


def test_deleted_records_are_counted_as_lost(empty_kafka: KafkaSide, broker: MessageBroker) -> None:
    broker.reserve("speck-a", "t")
    empty_kafka.publish("t", [b"x"] * 9)
    readers = {"site": [ReaderOf("speck-a", "t", None, "c")]}
    memory, news = judge_links(0.0, {"site": broker.view()}, readers, LinkMemory())
    assert news == []
    empty_kafka.trim("t", 4)
    _, news = judge_links(1.0, {"site": broker.view()}, readers, memory)
    assert [(each.kind, each.count) for each in news] == [("lost", 4)]


def join(side: KafkaSide, group: str, instance: str | None) -> KafkaConsumer | None:
    """A consumer that has joined its group. None if it has not within 10 s: on a busy machine one
    in some hundred waits for ever, of which its group knows nothing."""
    consumer = KafkaConsumer(
        "t",
        bootstrap_servers=side.servers,
        group_id=group,
        group_instance_id=instance,
        enable_auto_commit=False,
        # a member that joins waits for what is left of another for as long as these
        session_timeout_ms=6000,
        heartbeat_interval_ms=1000,
        max_poll_interval_ms=8000,
    )
    end = time.monotonic() + 10
    while time.monotonic() < end:
        consumer.poll(timeout_ms=50)
        if consumer.assignment():
            return consumer
    consumer.close()
    return None


@contextmanager
def member(side: KafkaSide, group: str, instance: str | None = None) -> Iterator[KafkaConsumer]:
    """A reader outside speck that subscribes, as most do."""
    consumer = wait_for(lambda: join(side, group, instance), "that it has joined")
    over = threading.Event()

    def poll() -> None:
        while not over.is_set():
            consumer.poll(timeout_ms=50)

    thread = threading.Thread(target=poll, daemon=True)
    thread.start()
    try:
        yield consumer
    finally:
        over.set()
        thread.join()
        consumer.close()


def test_the_place_of_a_member_that_lives_is_left_alone(
    empty_kafka: KafkaSide, broker: MessageBroker
) -> None:
    broker.reserve("dashboard", "t")
    with member(empty_kafka, "dashboard"):
        assert broker.reserve("dashboard", "t").existed
        for change in (
            lambda: broker.reserve("dashboard", "t", fresh=True),
            lambda: broker.release("dashboard", "t", last_reader=True),
        ):
            with pytest.raises(TransientError, match="a consumer of that group is connected"):
                change()
    broker.release("dashboard", "t", last_reader=True)
    assert broker.view().sessions == frozenset()


def test_a_member_that_has_no_place_does_not_hold_up_a_release(
    empty_kafka: KafkaSide, broker: MessageBroker
) -> None:
    """It was there before its output, so that nothing could be reserved for it."""
    broker.reserve("speck-a", "t")
    with member(empty_kafka, "dashboard"):
        with pytest.raises(TransientError, match="a consumer of that group is connected"):
            broker.reserve("dashboard", "t")
        broker.release("dashboard", "t", last_reader=True)
    assert broker.view().sessions == {("speck-a", "t")}


def test_a_static_member_that_has_ended_does_not_hold_up_its_release(
    empty_kafka: KafkaSide, broker: MessageBroker
) -> None:
    broker.reserve("dashboard", "t")
    with member(empty_kafka, "dashboard", "one"):
        pass
    broker.release("dashboard", "t", last_reader=True)
    assert empty_kafka.places("dashboard") == {}


def test_a_group_keeps_its_places_on_other_topics(
    empty_kafka: KafkaSide, broker: MessageBroker
) -> None:
    """A reader outside speck may read what speck knows nothing of."""
    broker.reserve("dashboard", "t")
    empty_kafka.make("own")
    part = TopicPartition("own", 0)
    empty_kafka.admin.alter_group_offsets("dashboard", {part: OffsetAndMetadata(0, "", None)})
    assert broker.view().sessions == {("dashboard", "t")}
    broker.release("dashboard", "t", last_reader=True)
    assert empty_kafka.places("dashboard") == {"own": {0: 0}}
    assert not broker.reserve("dashboard", "t").existed


def test_a_link_keeps_what_is_not_read_and_check_says_which_topic_does_not(
    empty_kafka: KafkaSide, broker: MessageBroker
) -> None:
    broker.reserve("speck-a", "t")
    assert broker.check() == []
    empty_kafka.make("many", 3)
    broker.reserve("speck-b", "many")
    settings = sorted(finding.setting for finding in broker.check())
    assert settings == ["partitions of many", "retention.ms of many"]


def test_records_go_through_the_link_client_with_their_stamps(empty_kafka: KafkaSide) -> None:
    links = open_links("kafka", empty_kafka.address)
    came: list[Record] = []
    acked: list[Outgoing] = []
    with links.reader("t", "checker", came.append, lambda _: None):
        writer = links.writer(WriterOptions("w", "site a"), lambda record, _: acked.append(record))
        writer.connect()
        sent = [Outgoing("t", f"w/1/{n}", b"%d" % n) for n in range(1, 501)]
        for record in sent:
            wait_for(lambda: (writer.tend(), writer.ready)[1], "room")
            writer.send(record)
        wait_for(lambda: (writer.tend(), writer.drained)[1], "the acknowledgements")
        writer.close()
        wait_for(lambda: len(came) >= 500, "the records")
    assert came == [Record(each.stamp, each.payload) for each in sent]
    assert len(acked) == 500
    with links.reader("t", "checker", came.append, lambda _: None):
        empty_kafka.publish("t", [b"later"])
        wait_for(lambda: len(came) > 500, "what came later")
    assert came[500:] == [Record(None, b"later")], "its place was kept"


def test_a_record_that_is_too_large_is_refused(
    empty_kafka: KafkaSide, broker: MessageBroker
) -> None:
    with pytest.raises(BrokerRefusedError, match=r"cannot publish to t .*message\.max\.bytes"):
        broker.publish("t", [b"x" * (3 << 20)])
    assert broker.publish("t", [b"x" * (1 << 20)]) == 1


def test_a_server_that_says_nothing_is_given_up_in_time() -> None:
    before = set(threading.enumerate())
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"kafka://127.0.0.1:{server.getsockname()[1]}"
        broker = open_broker("kafka", Target(address, timeout_s=1))
        started = time.monotonic()
        with pytest.raises(UnreachableError, match=r"^cannot reach the broker"):
            broker.view()
        assert time.monotonic() - started < 30
    assert set(threading.enumerate()) <= before


def test_no_thread_is_left_behind(empty_kafka: KafkaSide, broker: MessageBroker) -> None:
    before = set(threading.enumerate())
    broker.reserve("speck-a", "t")
    broker.publish("t", [b"x"])
    broker.view()
    asked = iter([True, False])
    broker.tap("t", lambda _: None, lambda: next(asked))
    broker.close()
    wait_for(lambda: set(threading.enumerate()) <= before, "the end of its threads")


@pytest.mark.long
def test_sessions_and_records_survive_kills(tmp_path: Path) -> None:
    with start(tmp_path) as server:
        broker = open_broker("kafka", Target(server.address, timeout_s=30))
        identity = broker.identify()
        at = broker.reserve("speck-a", "t").position
        assert broker.publish("t", [b"before"]) == 0
        server.kill()
        with pytest.raises(UnreachableError, match=r"^cannot reach the broker"):
            broker.view()
        with start(tmp_path, port=server.port) as again:
            view = broker.view()
            assert view.sessions == {("speck-a", "t")}
            assert (view.identity, view.find_position("speck-a", "t")) == (identity, at)
            side = KafkaSide(again)
            assert side.drain("speck-a") == [b"before"]
            side.close()


def scram(folder: Path) -> dict[str, str]:
    """Settings of a broker whose users have passwords."""
    jaas = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    users = 'username="admin" password="a" user_admin="a" user_edge="p";'
    return {
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": f"{jaas} {users}",
    }


@pytest.mark.long
def test_credentials_let_in_and_their_absence_does_not(tmp_path: Path) -> None:
    with start(tmp_path / "kafka", settings=scram(tmp_path), protocol="SASL_PLAINTEXT") as server:

        def open_with(*lines: str) -> Any:
            file = tmp_path / "edge"
            file.write_text("\n".join(lines))
            file.chmod(0o600)
            return open_broker("kafka", Target(server.address, file, timeout_s=10))

        broker = open_with("user=edge", "password=p", "mechanism=PLAIN")
        broker.reserve("speck-a", "t")
        assert broker.publish("t", [b"x"]) == 0
        assert "SASL_PLAINTEXT" not in [each.value for each in broker.check()], "it is loopback"
        for lines in (
            ("user=edge", "password=wrong", "mechanism=PLAIN"),
            ("user=edge", "password=p"),
        ):
            started = time.monotonic()
            with pytest.raises(BrokerRefusedError, match=r"check the site's broker\.credentials"):
                open_with(*lines).view()
            assert time.monotonic() - started < 60
        with pytest.raises(UnreachableError, match=r"^cannot reach the broker"):
            open_broker("kafka", Target(server.address, timeout_s=3)).view()
