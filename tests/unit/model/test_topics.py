"""Topics of links: their limits leave room for those that are derived from them."""

from __future__ import annotations

import pytest

from binders.mqtt.bookkeeping import READERS, session_topic
from binders.mqtt.topics import MAX_TOPIC_LEVELS, topic_fault
from speck.model.topics import MAX_TOPIC_BYTES
from speck.model.values import cut, show

MOSQUITTO_SLASHES = 200
MQTT_BYTES = 65_535
LONGEST_CLIENT_ID = "speck-12345678-" + "j" * 63 + "-12345678-out"


@pytest.mark.parametrize(
    "topic",
    ["/".join(["t"] * MAX_TOPIC_LEVELS), "/" * (MAX_TOPIC_LEVELS - 1), "t" * MAX_TOPIC_BYTES],
)
def test_what_is_derived_from_an_accepted_topic_is_accepted_by_brokers(topic: str) -> None:
    assert topic_fault(topic) is None
    for derived in (READERS + topic, session_topic(topic, LONGEST_CLIENT_ID)):
        assert derived.count("/") <= MOSQUITTO_SLASHES
        assert len(derived.encode()) <= MQTT_BYTES


@pytest.mark.parametrize(
    ("topic", "fault"),
    [
        ("/".join(["t"] * 205), "has 205 levels"),
        ("/" * MAX_TOPIC_LEVELS, f"has {MAX_TOPIC_LEVELS + 1} levels"),
        ("t" * (MAX_TOPIC_BYTES + 1), "bytes"),
    ],
)
def test_a_topic_without_room_is_refused(topic: str, fault: str) -> None:
    assert fault in (topic_fault(topic) or "")


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    text = "a" * 40 + "b" * 9_000 + "c" * 30
    assert cut(text).startswith("a" * 40) and cut(text).endswith("..." + "c" * 30)
    assert len(cut(text)) == 80 and cut("a" * 80) == "a" * 80
    assert show("a'") == '"a\'"'
