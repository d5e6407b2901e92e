"""Schemas of a job's options, derived from the model (`speck.model.job.Option`)."""

from __future__ import annotations

from enum import StrEnum
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from marshmallow import Schema, fields, post_load

from speck.model.job import Batching, JobOptions, Option, options_of
from speck.model.values import JsonObject
from speck.spec.fields import Arguments, Choice, Flag, Whole
from speck.spec.strict_schema import StrictSchema


def derive_fields(model: type) -> dict[str, fields.Field[Any]]:
    """Derive a marshmallow field from each option of a model's dataclass."""
    return {name: _derive(*option) for name, option in options_of(model).items()}


def _derive(kind: Any, option: Option) -> fields.Field[Any]:
    optional = get_origin(kind) is UnionType
    (plain,) = set(get_args(kind)) - {NoneType} if optional else {get_origin(kind) or kind}
    common: dict[str, Any] = {"metadata": {"description": option.about}, "allow_none": optional}
    if plain is bool:
        return Flag(**common)
    if plain is int:
        return Whole(option.least, option.most, **common)
    if plain is tuple:
        return Arguments(**common)
    if issubclass(plain, StrEnum):
        return Choice(plain, **common)
    return fields.Nested(_NESTED[plain], **common)


class BatchingSchema(StrictSchema):
    """`link` of a job: how its sink sends."""

    vars().update(derive_fields(Batching))

    @post_load
    def _make(self, data: dict[str, Any], **kwargs: Any) -> Batching:
        return Batching(**data)


_NESTED: dict[type, type[Schema]] = {Batching: BatchingSchema}


class _OptionsSchema(Schema):
    vars().update(derive_fields(JobOptions))


DEFAULTS: JsonObject = dict(_OptionsSchema().dump(JobOptions()))
"""The default of each option, as YAML and JSON spell it."""
