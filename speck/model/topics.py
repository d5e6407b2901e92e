"""Topics of links: which ones speck takes, and when two of them look alike."""

from __future__ import annotations

import re
import unicodedata

from speck.model.values import cut, show

MAX_TOPIC_BYTES = 65_535 - 256
"""MQTT has 65 535. Readers and sessions of a link are announced on topics that speck derives from
the link's: with a prefix before it, and the client id of a session behind it."""
MAX_TOPIC_LEVELS = 190
"""Mosquitto has 201, and ends the connection of a client that names a deeper topic. Derived topics
have up to three more."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


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
    if _CONTROL.search(topic):
        return "must hold no control characters"
    if topic.startswith("speck/"):
        return "must not lie below speck/: such topics belong to speck"
    return size_fault(topic)


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


def look_of(topic: str) -> str:
    """What two topics have in common that look alike: other cases, compositions of accents, widths
    and invisible characters are one to the eye, but other topics to a broker."""
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", topic).casefold())
    visible = "".join(c for c in folded if unicodedata.category(c) not in ("Cf", "Zs"))
    return visible.strip("/")


def difference_between(one: str, other: str) -> str:
    """How two topics that look alike differ, as the end of a sentence."""
    forms = f"{cut(one)!a} and {cut(other)!a}"
    if unicodedata.normalize("NFC", one) == unicodedata.normalize("NFC", other):
        return f"their accents are composed in different ways, {forms}"
    if one.casefold() == other.casefold():
        return "differ in upper and lower case"
    if one.strip("/") == other.strip("/"):
        return "differ in slashes at the ends"
    return f"differ in characters that look alike or are invisible, {forms}"
