"""Topics of links: what holds at every broker, and when two of them look alike."""

from __future__ import annotations

import re
import unicodedata

from speck.model.values import cut

MAX_TOPIC_BYTES = 65_535 - 256
"""Of any topic, in UTF-8. Brokers of a kind may take less, see `topic_fault` of its binder."""

_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]")


def plain_fault(topic: str) -> str | None:
    """Return why no link of speck has this topic, whatever its broker is; None if one may."""
    if not topic:
        return "must not be empty"
    if _CONTROL.search(topic):
        return "must hold no control characters"
    if len(topic.encode("utf-8", "surrogatepass")) > MAX_TOPIC_BYTES:
        return f"must be at most {MAX_TOPIC_BYTES} bytes of UTF-8"
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
