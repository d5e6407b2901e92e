"""Records as they come out of links, whatever messages carried them."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass

from speck.model.values import JsonObject


@dataclass(frozen=True, slots=True)
class Record:
    """One record of a link. `stamp` is `<producer>/<epoch>/<number>`, or None if the record was not
    sent by speck's sink."""

    stamp: str | None
    payload: bytes


def render_record(record: Record) -> JsonObject:
    """`{text}`, or `{base64}` when the payload is no UTF-8; with the `stamp` that speck's sinks
    give their records (`<producer>/<epoch>/<number>`), or null. It is here, below the API, since
    `speck sub` shows records of a broker without a service, and loads none."""
    try:
        payload = {"text": record.payload.decode()}
    except UnicodeDecodeError:
        payload = {"base64": b64encode(record.payload).decode()}
    return {**payload, "stamp": record.stamp}
