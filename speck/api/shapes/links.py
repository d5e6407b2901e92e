"""The shapes of links' records."""

from __future__ import annotations

from marshmallow import fields

from speck.api.shapes.base import Shape
from speck.api.shapes.records import record_shape
from speck.service.links import Published


def _named(description: str) -> fields.String:
    return fields.String(required=True, metadata={"description": description})


class RecordsShape(Shape):
    """What is to be published."""

    site = _named("the site of the link's broker")
    topic = _named("the link's topic")
    records = fields.List(
        fields.Raw(
            metadata={
                "anyOf": [
                    {"type": "string"},
                    {
                        "type": "object",
                        "properties": {"text": {"type": "string"}},
                        "required": ["text"],
                        "additionalProperties": False,
                    },
                    {
                        "type": "object",
                        "properties": {"base64": {"type": "string"}},
                        "required": ["base64"],
                        "additionalProperties": False,
                    },
                ]
            }
        ),
        required=True,
        metadata={"description": "1 to 1000 records, each a text or bytes in base64"},
    )


PublishedShape = record_shape(Published, "PublishedShape")


class RecordShape(Shape):
    """A record. Its payload is `text`, or `base64` when it is no UTF-8."""

    text = fields.String(metadata={"description": "its payload"})
    base64 = fields.String(metadata={"description": "its payload, if that is no UTF-8"})
    stamp = fields.String(
        required=True,
        allow_none=True,
        metadata={"description": "<producer>/<epoch>/<number>; null: its publisher gives none"},
    )


class TapShape(Shape):
    site = _named("the site of the link's broker")
    topic = _named("the link's topic")
    complete = fields.Boolean(
        required=True,
        metadata={
            "description": "whether these are all records of the time asked for; false: the limit"
            " of records or bytes was reached before"
        },
    )
    records = fields.List(fields.Nested(RecordShape), required=True)
