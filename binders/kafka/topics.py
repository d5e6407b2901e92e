"""What is known of Kafka's brokers without a connection: their addresses, what they can do, which
topics they take for links, and how speck makes these."""

from __future__ import annotations

import re

from speck.binding import AddressRules, BrokerCapability, Scheme
from speck.model.values import show

ADDRESSES = AddressRules(
    {"kafka": Scheme(9092), "kafka+ssl": Scheme(9093, encrypted=True)},
    "kafka://host:9092",
    several_hosts=True,
)

CAPABILITIES = frozenset(
    {BrokerCapability.SESSIONS, BrokerCapability.NUMBERS, BrokerCapability.METRICS}
)

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")

RETENTION_BYTES = 1 << 30
"""Of a link: the oldest records beyond it go, whether they were taken or not."""

LINK_SETTINGS = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": str(RETENTION_BYTES),
    "segment.bytes": str(64 << 20),
}
"""Of the topics that speck makes. A link keeps records for readers that are away, so that time
alone deletes nothing; its size is bounded, as that of a queue is."""


def topic_fault(topic: str) -> str | None:
    """Return why `topic` cannot be the topic of a link, or None if it can."""
    if not topic:
        return "must not be empty"
    if "/" in topic:
        return f"{show(topic)} holds a slash, which Kafka's topics cannot: write dots instead"
    if topic in (".", "..") or not _TOPIC.fullmatch(topic):
        return f"{show(topic)} is no topic of Kafka: up to 249 of A-Z a-z 0-9 . _ -"
    if topic.startswith("__"):
        return "must not begin with __: such topics belong to Kafka"
    return None
