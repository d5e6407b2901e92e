"""Topics: which there are, where they begin and end, and how a link's is made."""

from __future__ import annotations

import base64
from collections.abc import Collection, Mapping
from typing import Any
from uuid import UUID

from kafka import IsolationLevel, TopicPartition
from kafka.admin import OffsetSpec
from kafka.errors import (
    AuthorizationError,
    NoError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)

from binders.kafka.answers import explain
from binders.kafka.client import Call, pause
from binders.kafka.places import Extent, Log, epoch_of
from binders.kafka.topics import LINK_SETTINGS

Ids = Mapping[str, tuple[str, list[int]]]
"""The id of each topic, and its partitions."""


def list_topics(call: Call, topics: Collection[str]) -> Ids:
    """Those topics that are there and have leaders. Raises SpeckError if one may not be seen."""
    if not topics:
        return {}
    wanted = sorted(topics)
    answer = call.ask("look for topics", lambda admin: admin.describe_topics(wanted))
    topics_there = {}
    for topic in answer:
        name, parts, kind = topic["name"], topic["partitions"], for_code(topic["error_code"])
        if issubclass(kind, AuthorizationError):
            raise explain(kind(), call.address, f"look for the topic {name}")
        if kind is NoError and all(part["leader_id"] >= 0 for part in parts):
            numbers = [part["partition_index"] for part in parts]
            topics_there[name] = (_text_of(topic["topic_id"]), numbers)
    return topics_there


def _text_of(topic_id: Any) -> str:
    """As Kafka itself writes it."""
    return base64.urlsafe_b64encode(UUID(str(topic_id)).bytes).decode().rstrip("=")


def read_logs(call: Call, topics: Collection[str]) -> dict[str, Log]:
    """Those topics that are there, with their extents."""

    def ask(admin: Any) -> dict[str, Log]:
        there = list_topics(call, topics)
        parts = [TopicPartition(topic, part) for topic in there for part in there[topic][1]]
        starts = _ask_offsets(admin, parts, OffsetSpec.EARLIEST)
        ends = _ask_offsets(admin, parts, OffsetSpec.LATEST)
        extents = {
            part: Extent(starts[part].offset, ends[part].offset, epoch_of(ends[part]))
            for part in parts
        }
        return {
            topic: Log(id_, {part: extents[topic, part] for part in numbers})
            for topic, (id_, numbers) in there.items()
        }

    # a topic that is deleted in between fails the second request, and is missing the next time
    return call.ask("read the ends of its logs", ask)


def _ask_offsets(admin: Any, parts: Collection[Any], which: Any) -> Mapping[Any, Any]:
    if not parts:
        return {}
    answer: Mapping[Any, Any] = admin.list_partition_offsets(
        dict.fromkeys(parts, which), isolation_level=IsolationLevel.READ_COMMITTED
    )
    return answer


def make_link(call: Call, topic: str) -> Log:
    """The log of a link, whose topic is made unless it is there, of one partition: so there is an
    order. Topics of others may have many."""
    sleep_s, is_made = 0.005, False
    while True:
        logs = read_logs(call, [topic])
        if topic in logs:
            return logs[topic]
        if not is_made:
            _make(call, topic)
            is_made = True
        if not call.rest_s:
            error = UnknownTopicOrPartitionError("it has no leader")
            raise explain(error, call.address, f"use the topic {topic}")
        sleep_s = pause(sleep_s)


def _make(call: Call, topic: str) -> None:
    wanted = {topic: {"num_partitions": 1, "replication_factor": -1, "configs": LINK_SETTINGS}}

    def ask(admin: Any) -> None:
        try:
            admin.create_topics(wanted)
        except TopicAlreadyExistsError:
            return

    call.ask(f"make the topic {topic}", ask)
