"""Converts records to compact JSON for the store, which holds thousands of them, and back.

The form follows from the records' dataclasses: a field that is added to one is stored. Fields at
their defaults are omitted, and small values are lists instead of objects. Reading is strict: what
`to_json` would not have written is refused with the name of the field.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from cattrs import Converter, ForbiddenExtraKeysError, transform_error
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn
from cattrs.v import format_exception

from speck.errors import StoreError
from speck.model.incarnation import StaleSink, StateCopy, UsedState
from speck.model.link import JobLinks, Link
from speck.model.observation import TakenEpoch
from speck.model.values import JsonObject

_T = TypeVar("_T")


class RecordError(ValueError):
    """JSON that is no record of the wanted type; the message names the fields at fault."""


def _make_converter(*, explains: bool) -> Converter:
    """One that `explains` finds the names of the fields at fault, and is slower."""
    converter = Converter(
        omit_if_default=True, forbid_extra_keys=True, detailed_validation=explains
    )
    for scalar in (str, int, bool):
        converter.register_structure_hook(scalar, _checked(scalar))
    converter.register_structure_hook(float, _read_float)
    converter.register_structure_hook_factory(_is_list, _make_list_hook)
    converter.register_structure_hook_factory(_is_optional, _make_optional_hook)
    converter.register_unstructure_hook(Link, list)
    converter.register_structure_hook(Link, _read_link)
    for each in (StateCopy, UsedState, StaleSink, TakenEpoch, JobLinks):
        _store_as_list(converter, each)
    return converter


def _checked(scalar: type) -> Callable[[object, type], Any]:
    """The hook that takes values of exactly this type: `int("7")` and `int(True)` would be read."""

    def check(value: object, of: type) -> object:
        if type(value) is not scalar:
            raise _wrong(value, scalar)
        return value if of is scalar else of(value)  # an enum of strings

    return check


def _read_float(value: object, _: object) -> float:
    if type(value) not in (float, int):  # a calculation may have given a whole number
        raise _wrong(value, float)
    return float(value)  # type: ignore[arg-type]


def _read_link(value: object, _: object) -> Link:
    if isinstance(value, list) and [type(each) for each in value] == [str, str]:
        return Link(*value)
    raise ValueError(f"must be a list of site and topic, is {value!r:.80}")


def _is_optional(of: object) -> bool:
    return get_origin(of) in (Union, UnionType) and get_args(of)[1:] == (NoneType,)


def _make_optional_hook(of: object, converter: Converter) -> Callable[[object, object], object]:
    """Looks up once how the value is read, if there is one: cattrs does for each."""
    content = get_args(of)[0]
    read = converter.get_structure_hook(content)
    return lambda value, _: None if value is None else read(value, content)


def _is_list(of: object) -> bool:
    return get_origin(of) is tuple and get_args(of)[1:] == (...,)


def _make_list_hook(of: object, converter: Converter) -> Callable[[object, object], object]:
    """Reads a tuple of any length: from a list only, since a string is a sequence as well."""
    item = get_args(of)[0]
    read = converter.get_structure_hook(item)

    def read_list(values: object, _: object) -> object:
        if not isinstance(values, list):
            raise _wrong(values, list)
        return tuple([read(value, item) for value in values])

    return read_list


def _store_as_list(converter: Converter, of: type) -> None:
    names = tuple(field.name for field in fields(of))
    to_object: Callable[[object], JsonObject] = make_dict_unstructure_fn(
        of, converter, _cattrs_omit_if_default=False
    )
    from_object: Callable[[JsonObject, type], object] = make_dict_structure_fn(of, converter)

    def read(values: object, _: object) -> object:
        if not isinstance(values, list) or len(values) != len(names):
            raise ValueError(f"must be a list of {', '.join(names)}, is {values!r:.80}")
        return from_object(dict(zip(names, values, strict=True)), of)

    converter.register_unstructure_hook(of, lambda value: list(to_object(value).values()))
    converter.register_structure_hook(of, read)


def _wrong(value: object, of: type) -> ValueError:
    return ValueError(f"must be {_NAMES[of]}, is {value!r:.80}")


_NAMES = {
    str: "a string",
    int: "an integer",
    bool: "true or false",
    float: "a number",
    list: "a list",
}
_CONVERTER = _make_converter(explains=False)
_EXPLAINER = _make_converter(explains=True)


def to_json(record: object) -> JsonObject:
    """A record, a dataclass of the model, as it is stored."""
    data: JsonObject = _CONVERTER.unstructure(record)
    return data


def from_json(data: JsonObject, of: type[_T]) -> _T:
    """The inverse of `to_json`. Raises RecordError for any other data."""
    try:
        return _CONVERTER.structure(data, of)
    except Exception as error:  # cattrs raises what the fault happens to cause
        raise RecordError(_explain(data, of) or repr(error)) from error


def read_record(key: str, data: JsonObject, of: type[_T]) -> _T:
    """The record that is stored at a key. Raises StoreError, which names it."""
    try:
        return from_json(data, of)
    except RecordError as error:
        raise StoreError(
            f"cannot read the record {key}: {error}; restore a backup with `speck restore`"
        ) from error


def _explain(data: JsonObject, of: type) -> str:
    """Each field at fault with what is wrong with it."""
    try:
        _EXPLAINER.structure(data, of)
    except Exception as error:
        faults = transform_error(error, path="", format_exception=_describe)
        return "; ".join(map(_begin_with_path, faults))
    return ""


def _begin_with_path(fault: str) -> str:
    what, _, path = fault.rpartition(" @ ")
    return f"{path.removeprefix('.')}: {what}" if path else what


def _describe(error: BaseException, of: type | None) -> str:
    if isinstance(error, KeyError):
        return "is missing"
    if isinstance(error, ForbiddenExtraKeysError):
        return f"no such field: {', '.join(sorted(error.extra_fields))}"
    return str(error) if isinstance(error, ValueError) else format_exception(error, of)
