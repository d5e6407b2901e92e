"""Shapes of records: each follows from the fields of a dataclass, as `speck.model.shown` shows
them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import is_dataclass
from enum import StrEnum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, get_args, get_origin

from marshmallow import fields
from marshmallow.validate import OneOf

from speck.api.shapes.base import Shape
from speck.model.shown import hints_of, shown_fields

_FIELDS: Mapping[type, tuple[type[fields.Field[Any]], dict[str, Any]]] = {
    str: (fields.String, {}),
    bool: (fields.Boolean, {}),
    int: (fields.Integer, {"strict": True}),
    float: (fields.Float, {}),
}


def record_shape(record: type, name: str, /, **others: Any) -> type[Shape]:
    """The shape of a dataclass; `others` are fields that do not follow from its types."""
    derived = {
        shown.name or each: _field(hints_of(record)[each], shown.about, shown.left_out)
        for each, shown in shown_fields(record).items()
        if (shown.name or each) not in others
    }
    return type(name, (Shape,), {**derived, **others})


@cache
def nested_shape(record: type) -> type[Shape]:
    """The shape of a record within others: one for all, so that it has one name in OpenAPI."""
    return record_shape(record, f"{record.__name__}Shape")


def _field(hint: Any, about: str, left_out: bool) -> fields.Field[Any]:
    """The field of a type; one that is left out while it is None may be missing."""
    plain, optional = _plain(hint)
    more: dict[str, Any] = {"metadata": {"description": about}} if about else {}
    more |= {"required": not left_out, "allow_none": optional and not left_out}
    origin = get_origin(plain) or plain
    if origin in (tuple, list, frozenset):
        return fields.List(_field(get_args(plain)[0], "", False), **more)
    if origin is Literal:
        return fields.String(validate=OneOf(get_args(plain)), **more)
    if plain is Any:
        return fields.Raw(**more)
    if issubclass(origin, Mapping):
        _, value = get_args(plain)
        return fields.Dict(keys=fields.String(), values=_field(value, "", False), **more)
    if is_dataclass(plain):
        nested: Any = plain
        return fields.Nested(lambda: nested_shape(nested)(), **more)  # a record may hold its like
    if issubclass(plain, StrEnum):
        return fields.String(validate=OneOf(list(map(str, plain))), **more)
    kind, options = _FIELDS[plain]
    return kind(**options, **more)


def _plain(hint: Any) -> tuple[Any, bool]:
    """A type without its annotations, and whether it may be None."""
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    if get_origin(hint) is UnionType:
        (hint,) = set(get_args(hint)) - {NoneType}
        return _plain(hint)[0], True
    return hint, False
