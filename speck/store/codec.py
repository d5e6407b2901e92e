"""Converts records to compact JSON for the store, which holds thousands of them, and back.

The form follows from the records' dataclasses: a field that is added to one is stored. Fields at
their defaults are omitted, and small values are lists instead of objects.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import TypeVar

from cattrs import Converter
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn

from speck.model.incarnation import StaleSink, StateCopy, UsedState
from speck.model.link import JobLinks, Link
from speck.model.observation import TakenEpoch
from speck.model.values import JsonObject

_T = TypeVar("_T")

_CONVERTER = Converter(omit_if_default=True, detailed_validation=False)


def _store_as_list(of: type) -> None:
    names = tuple(field.name for field in fields(of))
    to_object: Callable[[object], JsonObject] = make_dict_unstructure_fn(
        of, _CONVERTER, _cattrs_omit_if_default=False
    )
    from_object: Callable[[JsonObject, type], object] = make_dict_structure_fn(of, _CONVERTER)
    _CONVERTER.register_unstructure_hook(of, lambda value: list(to_object(value).values()))
    _CONVERTER.register_structure_hook(
        of, lambda values, _: from_object(dict(zip(names, values, strict=True)), of)
    )


_CONVERTER.register_unstructure_hook(Link, list)
_CONVERTER.register_structure_hook(Link, lambda values, _: Link(*values))
for _each in (StateCopy, UsedState, StaleSink, TakenEpoch, JobLinks):
    _store_as_list(_each)


def to_json(record: object) -> JsonObject:
    """A record, a dataclass of the model, as it is stored."""
    data: JsonObject = _CONVERTER.unstructure(record)
    return data


def from_json(data: JsonObject, of: type[_T]) -> _T:
    """The inverse of `to_json`. Raises an exception of cattrs for any other data."""
    return _CONVERTER.structure(data, of)
