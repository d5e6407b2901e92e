"""The topic of a link, as it is now, and the places that a group has in it."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kafka import IsolationLevel, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, OffsetSpec
from kafka.errors import (
    InvalidMetadataError,
    KafkaError,
    NoError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
    for_code,
)
from kafka.structs import OffsetAndMetadata

from speck_link.transport import Place

_NO_LIMIT = 1 << 31
_THERE_S = 5.0
_LOOK_S = 0.02
_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": str(1 << 30),
    "segment.bytes": str(64 << 20),
}
"""As the control plane creates the topics of links: nothing is deleted by its age."""


@dataclass(frozen=True)
class LinkTopic:
    """A topic; by its `id` it differs from one of the same name that was there before. Batches of
    records may have `max_message_bytes` with all around them."""

    name: str
    id: str
    parts: tuple[int, ...]
    max_message_bytes: int

    def series(self, part: int) -> str:
        """The name of a partition's series of positions."""
        return f"{self.id}/{part}"

    def partition(self, part: int) -> Any:
        return TopicPartition(self.name, part)


def find_or_make(admin: Any, name: str) -> LinkTopic:
    """The topic of a link, which is made unless it is there. Raises KafkaError when that is not
    possible now."""
    described = _describe(admin, name)
    if described is None:
        _make(admin, name)
    until = time.monotonic() + _THERE_S
    while described is None:
        if time.monotonic() > until:
            raise UnknownTopicOrPartitionError("the topic was created, and has no leader yet")
        time.sleep(_LOOK_S)
        described = _describe(admin, name)
    topic_id = base64.urlsafe_b64encode(UUID(str(described["topic_id"])).bytes).decode()
    parts = sorted(int(part["partition_index"]) for part in described["partitions"])
    return LinkTopic(name, topic_id.rstrip("="), tuple(parts), _find_limit(admin, name))


def _describe(admin: Any, name: str) -> Mapping[str, Any] | None:
    """None while it is not there, or has no leader."""
    (topic,) = admin.describe_topics([name])
    kind = for_code(topic["error_code"])
    if issubclass(kind, InvalidMetadataError):
        return None
    if kind is not NoError:
        raise kind(f"the topic {name} cannot be seen")
    if any(part["leader_id"] < 0 for part in topic["partitions"]):
        return None
    described: Mapping[str, Any] = topic
    return described


def _make(admin: Any, name: str) -> None:
    wanted = {name: {"num_partitions": 1, "replication_factor": -1, "configs": _SETTINGS}}
    try:
        admin.create_topics(wanted)
    except TopicAlreadyExistsError:
        return


def _find_limit(admin: Any, name: str) -> int:
    """A broker that hides its settings says it of each record that is too large."""
    resource = ConfigResource(ConfigResourceType.TOPIC, name, ["max.message.bytes"])
    try:
        settings = admin.describe_configs([resource], config_filter="all")["topic"][name]
        return int(settings["max.message.bytes"]["value"])
    except (KafkaError, LookupError, TypeError, ValueError):
        return _NO_LIMIT


@dataclass(frozen=True)
class Extent:
    """What there is of a partition: the offset of its oldest record, and that behind its last."""

    first: int
    end: int


def read_extents(admin: Any, topic: LinkTopic) -> dict[int, Extent]:
    """By partition. What belongs to transactions that have not ended does not count."""
    starts, ends = (
        admin.list_partition_offsets(
            {topic.partition(part): which for part in topic.parts},
            isolation_level=IsolationLevel.READ_COMMITTED,
        )
        for which in (OffsetSpec.EARLIEST, OffsetSpec.LATEST)
    )
    tps = {part: topic.partition(part) for part in topic.parts}
    return {part: Extent(starts[tp].offset, ends[tp].offset) for part, tp in tps.items()}


def read_places(admin: Any, group: str, topic: LinkTopic) -> dict[int, Place]:
    """The committed places of a group in this log, by partition. The broker may keep places in a
    log that was of the same name: these do not count."""
    wanted = [topic.partition(part) for part in topic.parts]
    known = admin.list_group_offsets({group: wanted}).get(group, {})
    return {
        tp.partition: Place(place.offset, term_of(place))
        for tp, place in known.items()
        if place.offset >= 0 and _is_of(place.metadata, topic.id)
    }


def term_of(answer: Any) -> int | None:
    """The leader epoch beside a record or an offset of the library; None where there is none."""
    epoch = answer.leader_epoch
    return epoch if isinstance(epoch, int) and epoch >= 0 else None


def _is_of(metadata: str | None, topic_id: str) -> bool:
    try:
        report = json.loads(metadata or "{}")
    except ValueError:
        return True
    return not isinstance(report, dict) or report.get("id", topic_id) == topic_id


def commit(
    admin: Any, group: str, topic: LinkTopic, places: Mapping[int, Place], metadata: str
) -> None:
    """Commit places without being a member of the group. Raises KafkaError; what is wrong stands
    in the answers for the partitions alone."""
    offsets = {
        topic.partition(part): OffsetAndMetadata(place.offset, metadata, place.term)
        for part, place in places.items()
    }
    for refusal in admin.alter_group_offsets(group, offsets).values():
        if refusal is not NoError:
            raise refusal(f"the place of {group} cannot be set")
