"""Addresses of MQTT's brokers, which topics they take for links, and which they take at all."""

from __future__ import annotations

from paho.mqtt.client import topic_matches_sub

from speck.binding import AddressRules, Scheme
from speck.model.topics import MAX_TOPIC_BYTES, plain_fault
from speck.model.values import show

ADDRESSES = AddressRules(
    {
        "tcp": Scheme(1883),
        "mqtt": Scheme(1883, means="tcp"),
        "ssl": Scheme(8883, encrypted=True),
        "mqtts": Scheme(8883, means="ssl", encrypted=True),
    },
    "tcp://host:1883",
)

# MQTT has 65 535 bytes; MAX_TOPIC_BYTES leaves room: readers and sessions of a link are announced
# on topics with a prefix before the link's, and the client id of a session behind it.
MAX_TOPIC_LEVELS = 190
"""Mosquitto has 201, and ends the connection of a client that names a deeper topic. Derived topics
have up to three more."""


def topic_fault(topic: str) -> str | None:
    """Return why `topic` cannot be the topic of a link, or None if it can."""
    if not topic:
        return "must not be empty"
    if topic == "$share" or topic.startswith("$share/"):
        return "must not begin with $share: sharing would split a job's input"
    if topic.startswith("$"):
        return "must not begin with $: such topics belong to the broker"
    if "+" in topic or "#" in topic:
        return f"{show(topic)} holds a wildcard (+ or #); name one topic"
    if topic.startswith("speck/"):
        return "must not lie below speck/: such topics belong to speck"
    return plain_fault(topic) or size_fault(topic)


def topic_matches(topic: str, pattern: str) -> bool:
    """Whether an MQTT filter fits a topic."""
    return topic_matches_sub(pattern, topic)


def plain_topic_fault(topic: str) -> str | None:
    """Return why a broker takes no message on `topic`, or None if it does."""
    if not topic or any(c in topic for c in "+#\0"):
        return "is no plain MQTT topic"
    return size_fault(topic)


def size_fault(topic: str) -> str | None:
    """Return why `topic`, or one that is derived from it, is too large for brokers, or None."""
    if len(topic.encode("utf-8", "surrogatepass")) > MAX_TOPIC_BYTES:
        return f"must be at most {MAX_TOPIC_BYTES} bytes of UTF-8"
    if (levels := topic.count("/") + 1) > MAX_TOPIC_LEVELS:
        return (
            f"has {levels} levels, the parts between slashes; brokers take some 200, of which speck"
            f" needs a few: at most {MAX_TOPIC_LEVELS}"
        )
    return None
