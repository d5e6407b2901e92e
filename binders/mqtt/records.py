"""The records of MQTT messages: their stamps are user properties, and batches a content type."""

from __future__ import annotations

from typing import Any

from binders.mqtt.batches import STAMP, unpack
from speck.model.record import Record


def read_records(message: Any) -> list[Record]:
    """Return the records of a paho message, in order. Raises PermanentError for a damaged batch."""
    properties = message.properties
    stamps = dict(getattr(properties, "UserProperty", ()))
    content_type = getattr(properties, "ContentType", None)
    return list(unpack(stamps.get(STAMP), content_type, bytes(message.payload)))
