"""Sessions: consumer groups that nobody need be a member of.

A reader's name is the name of its group, and its place on a link the group's committed offset in
the topic. Readers of speck commit as simple consumers, without membership. Whoever lists a
cluster's groups finds those of speck's readers by their names; beside the group of a reader outside
speck, whose name can be anything, lies a marker: a group of its own that names its topics. One more
marker, of no reader, names all links: their ends matter also when a reader has lost its place.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Any

from kafka import TopicPartition
from kafka.admin import MemberToRemove
from kafka.errors import GroupIdNotFoundError, NoError, UnknownTopicOrPartitionError
from kafka.structs import OffsetAndMetadata

from binders.kafka.answers import LiveReaderError, is_passing, raise_refused
from binders.kafka.client import Call
from binders.kafka.places import MOST_METADATA, Log, Place, Places, epoch_of, read_report

OWN = "speck-"
MARKER = "speck-session:"
LINKS = MARKER
"""The marker that names all links."""

NO_EPOCHS: Mapping[int, int | None] = MappingProxyType({})

Group = Mapping[str, Places]
"""A group's places, by topic."""


def list_readers(call: Call) -> set[str]:
    """The readers whose groups, or markers, the cluster knows."""
    names = {
        str(group["group_id"])
        for group in call.ask("list the groups", lambda admin: admin.list_groups())
    }
    own = {name for name in names if name.startswith(OWN) and not name.startswith(MARKER)}
    marked = {name.removeprefix(MARKER) for name in names - {LINKS} if name.startswith(MARKER)}
    return own | marked


def read_groups(call: Call, readers: Collection[str]) -> tuple[dict[str, Group], set[str]]:
    """The places of readers, by reader, and the topics of all links. Those of a reader outside
    speck count only where it has a session."""
    outside = [MARKER + reader for reader in readers if not reader.startswith(OWN)]
    groups = read_offsets(call, [*readers, *outside, LINKS])
    places_of: dict[str, Group] = {}
    for reader in readers:
        topics = groups[reader]
        if not reader.startswith(OWN):
            marked = groups[MARKER + reader]
            topics = {topic: places for topic, places in topics.items() if topic in marked}
        places_of[reader] = topics
    return places_of, {
        *groups[LINKS],
        *(topic for topics in places_of.values() for topic in topics),
    }


def read_offsets(call: Call, groups: Collection[str]) -> dict[str, Group]:
    """The committed offsets of groups; none of a group that is not there."""
    if not groups:
        return {}
    answer = call.ask(
        "read the places of readers", lambda admin: admin.list_group_offsets(list(groups))
    )
    return {group: _by_topic(answer.get(group, {})) for group in groups}


def _by_topic(offsets: Mapping[Any, Any]) -> Group:
    topics: dict[str, dict[int, Place]] = defaultdict(dict)
    for part, committed in offsets.items():
        if committed.offset >= 0:
            report = read_report(committed.metadata)
            place = Place(committed.offset, report, epoch_of(committed))
            topics[part.topic][part.partition] = place
    return topics


def commit(
    call: Call,
    group: str,
    topic: str,
    offsets: Mapping[int, int],
    metadata: str,
    epochs: Mapping[int, int | None] = NO_EPOCHS,
) -> None:
    """Commit offsets, with their leader epochs, for a group without members. Raises LiveReaderError
    if it has some. What is wrong stands in the answers for the partitions alone."""
    beside = metadata[:MOST_METADATA]
    wanted = {
        TopicPartition(topic, part): OffsetAndMetadata(offset, beside, epochs.get(part))
        for part, offset in offsets.items()
    }
    doing = f"set the place of {group} on {topic}"

    def ask(admin: Any) -> None:
        for refusal in admin.alter_group_offsets(group, wanted).values():
            if is_passing(refusal()):
                raise refusal()
            raise_refused(refusal, call.address, doing)

    call.ask(doing, ask)


def announce(call: Call, reader: str, topic: str, log: Log) -> None:
    """Commit to the markers of a session: what they hold is the topic alone."""
    offsets = dict.fromkeys(log.parts, 0)
    for marker in [LINKS] if reader.startswith(OWN) else [LINKS, MARKER + reader]:
        commit(call, marker, topic, offsets, "")


def release(call: Call, group: str, topic: str) -> None:
    """Delete a group's place on a topic, and with its last place the group. Members that do not
    leave when they end, as static ones do not, are removed. Raises LiveReaderError while others
    read, unless the group has no place there: then there is nothing to release."""
    topics = read_offsets(call, [group])[group]
    parts = [TopicPartition(topic, part) for part in topics.get(topic, ())]
    doing = f"release {group}"

    def ask(admin: Any) -> None:
        try:
            if set(topics) <= {topic}:
                (outcome,) = admin.delete_groups([group]).values()
                _raise_by_name(outcome, call.address, doing)
            elif parts:
                for refusal in admin.delete_group_offsets(group, parts).values():
                    if refusal not in (NoError, UnknownTopicOrPartitionError):
                        raise_refused(refusal, call.address, doing)
        except GroupIdNotFoundError:
            return

    try:
        call.ask(doing, ask)
    except LiveReaderError:
        if topic not in topics:
            return
        if not _remove_static_members(call, group):
            raise
        call.ask(doing, ask)


def _raise_by_name(outcome: str, address: str, doing: str) -> None:
    """Deletions are answered by names of errors."""
    from kafka import errors

    if outcome == "OK":
        return
    kind = getattr(errors, outcome, errors.UnknownError)
    if kind is GroupIdNotFoundError or is_passing(kind()):
        raise kind()
    raise_refused(kind, address, doing)


def _remove_static_members(call: Call, group: str) -> bool:
    """Whether all members of a group were static, and are gone now."""

    def ask(admin: Any) -> bool:
        described = admin.describe_groups([group])[group]
        instances = [member.get("group_instance_id") for member in described["members"]]
        if not instances or None in instances:
            return False
        admin.remove_group_members(
            group, [MemberToRemove(group_instance_id=name) for name in instances]
        )
        return True

    return call.ask(f"remove the members of {group}", ask)
