"""Real Kafka for tests: one broker for the session, which each test finds empty."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import OffsetSpec
from kafka.structs import OffsetAndMetadata

from speck.fog.kafka import Kafka, start
from tests.waiting import wait_for


@pytest.fixture(scope="session")
def kafka_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kafka]:
    """One broker for all tests that leave it running."""
    with start(tmp_path_factory.mktemp("kafka")) as broker:
        yield broker


@pytest.fixture(scope="session")
def kafka_side(kafka_server: Kafka) -> Iterator[KafkaSide]:
    """It, as its own clients see it."""
    side = KafkaSide(kafka_server)
    yield side
    side.close()


@pytest.fixture
def empty_kafka(kafka_side: KafkaSide) -> KafkaSide:
    """The same, without topics and groups."""
    kafka_side.clear()
    return kafka_side


class KafkaSide:
    """Kafka as its own clients see it."""

    def __init__(self, server: Kafka) -> None:
        self.address = server.address
        self.servers = [f"{server.host}:{server.port}"]
        self.admin = KafkaAdminClient(bootstrap_servers=self.servers)
        self.producer = KafkaProducer(bootstrap_servers=self.servers, acks="all")

    def close(self) -> None:
        self.producer.close(timeout=5)
        self.admin.close()

    def clear(self) -> None:
        """Delete all topics and groups."""
        groups = [each["group_id"] for each in self.admin.list_groups()]
        for topic in self.topics():
            self.delete(topic)
        if groups:
            self.admin.delete_groups(groups)

    def topics(self) -> list[str]:
        return [topic for topic in self.admin.list_topics() if not topic.startswith("__")]

    def make(self, topic: str, parts: int = 1) -> None:
        """Make a topic, and wait until it is there."""
        self.admin.create_topics({topic: {"num_partitions": parts}}, wait_for_metadata=True)

    def delete(self, topic: str) -> None:
        """Delete a topic, and wait until it is gone."""
        self.admin.delete_topics([topic])
        wait_for(lambda: topic not in self.topics(), f"the end of the topic {topic}")

    def delete_group(self, group: str) -> None:
        """As when its offsets have expired."""
        assert self.admin.delete_groups([group]) == {group: "OK"}

    def parts(self, topic: str) -> list[Any]:
        (found,) = self.admin.describe_topics([topic])
        numbers = sorted(part["partition_index"] for part in found["partitions"])
        return [TopicPartition(topic, part) for part in numbers]

    def add_part(self, topic: str) -> int:
        """The number of a new partition."""
        count = len(self.parts(topic))
        self.admin.create_partitions({topic: count + 1})
        wait_for(lambda: len(self.parts(topic)) > count, f"a partition of {topic}")
        self.producer.close(timeout=5)  # it would learn of the partition in five minutes
        self.producer = KafkaProducer(bootstrap_servers=self.servers, acks="all")
        return count

    def offsets(self, topic: str, which: Any) -> dict[Any, int]:
        found = self.admin.list_partition_offsets(dict.fromkeys(self.parts(topic), which))
        return {part: each.offset for part, each in found.items()}

    def trim(self, topic: str, count: int) -> int:
        """Delete the oldest records of each partition; returns how many."""
        starts = self.offsets(topic, OffsetSpec.EARLIEST)
        ends = self.offsets(topic, OffsetSpec.LATEST)
        wanted = {part: min(count, end) for part, end in ends.items()}
        self.admin.delete_records(wanted)
        return sum(max(0, offset - starts[part]) for part, offset in wanted.items())

    def put_behind_end(self, topic: str) -> None:
        """Move the places of all groups on a topic behind its end."""
        ends = self.offsets(topic, OffsetSpec.LATEST)
        behind = {part: OffsetAndMetadata(end + 9, "", None) for part, end in ends.items()}
        for each in self.admin.list_groups():
            if topic in self.places(each["group_id"]):
                self.admin.alter_group_offsets(each["group_id"], behind)

    def publish(
        self,
        topic: str,
        payloads: list[bytes],
        part: int = 0,
        stamp: Callable[[int], str] | None = None,
    ) -> None:
        """Publish; a record's stamp is that of its index."""
        for index, payload in enumerate(payloads):
            headers = [("speck", stamp(index).encode())] if stamp is not None else None
            self.producer.send(topic, payload, headers=headers, partition=part)
        self.producer.flush(60)

    def places(self, group: str) -> dict[str, dict[int, int]]:
        """The committed offsets of a group, by topic and partition."""
        places: dict[str, dict[int, int]] = {}
        for part, each in self.admin.list_group_offsets([group])[group].items():
            if each.offset >= 0:
                places.setdefault(part.topic, {})[part.partition] = each.offset
        return places

    def drain(self, group: str, *, commits: bool = False) -> list[bytes]:
        """Read from a group's only place to the end; with `commits` its place is then behind the
        last record."""
        ((topic, places),) = self.places(group).items()
        ends = self.offsets(topic, OffsetSpec.LATEST)
        consumer = KafkaConsumer(
            bootstrap_servers=self.servers, group_id=None, isolation_level="read_committed"
        )
        consumer.assign(list(ends))
        for part in ends:
            consumer.seek(part, places.get(part.partition, 0))
        records: list[Any] = []

        def read_on() -> bool:
            for found in consumer.poll(timeout_ms=500).values():
                records.extend(found)
            return all(consumer.position(part) >= end for part, end in ends.items())

        wait_for(read_on, f"the end of {topic}")
        consumer.close()
        if commits and records:
            last = {
                TopicPartition(topic, each.partition): OffsetAndMetadata(each.offset + 1, "", None)
                for each in records
            }
            self.admin.alter_group_offsets(group, last)
        return [each.value or b"" for each in records]
