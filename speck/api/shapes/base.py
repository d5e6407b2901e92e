"""Building blocks of shapes: their base class and the kinds of fields.

A field is required unless its helper says otherwise.
"""

from __future__ import annotations

from typing import Any

from marshmallow import RAISE, Schema, fields
from marshmallow.validate import OneOf


class Shape(Schema):
    """A response body with exactly these fields."""

    class Meta:
        unknown = RAISE


def text(description: str = "", **more: Any) -> fields.String:
    return fields.String(required=True, metadata={"description": description}, **more)


def nullable_text(description: str = "") -> fields.String:
    return text(description, allow_none=True)


def optional_text(description: str = "") -> fields.String:
    return fields.String(metadata={"description": description})


def integer(description: str = "", **more: Any) -> fields.Integer:
    return fields.Integer(required=True, strict=True, metadata={"description": description}, **more)


def number(description: str = "", **more: Any) -> fields.Float:
    return fields.Float(required=True, metadata={"description": description}, **more)


def flag(description: str = "") -> fields.Boolean:
    return fields.Boolean(required=True, metadata={"description": description})


def one_of(values: Any, description: str = "") -> fields.String:
    choices = OneOf([str(value) for value in values])
    return fields.String(required=True, validate=choices, metadata={"description": description})


def list_of(inner: Any) -> fields.List[Any]:
    return fields.List(fields.Nested(inner) if is_shape(inner) else inner, required=True)


def is_shape(inner: Any) -> bool:
    return isinstance(inner, type) and issubclass(inner, Schema)


def list_shape(noun: str, inner: Any) -> Any:
    """The shape of a list response, `{noun: [inner]}`."""
    name = f"{noun.title().replace('_', '')}List"
    return type(name, (Shape,), {noun: list_of(inner)})
