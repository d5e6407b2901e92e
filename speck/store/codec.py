"""Converts records to compact JSON for the store, which holds thousands of them, and back.

The form follows from the records' dataclasses: a field that is added to one is stored. Fields at
their defaults are omitted, and small values are lists instead of objects. Reading is strict: what
`to_json` would not have written is refused with the name of the field. Records in files that users
read as well (`from_shown`) are read in the same way, with the names that users see.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, TypeVar, Union, get_args, get_origin

from cattrs import (
    AttributeValidationNote,
    ClassValidationError,
    Converter,
    ForbiddenExtraKeysError,
    IterableValidationError,
    IterableValidationNote,
    transform_error,
)
from cattrs.gen import make_dict_structure_fn, make_dict_unstructure_fn, override
from cattrs.v import format_exception

from speck.errors import StoreError
from speck.model.incarnation import StaleSink, StateCopy, UsedState
from speck.model.link import JobLinks, Link
from speck.model.observation import TakenEpoch
from speck.model.shown import shown_fields
from speck.model.values import JsonObject

_T = TypeVar("_T")


class RecordError(ValueError):
    """JSON that is no record of the wanted type; the message names the fields at fault."""


def _make_converter(*, explains: bool, shown: bool = False) -> Converter:
    """One that `explains` finds the names of the fields at fault, and is slower; `shown`: fields
    have the names that users see."""
    converter = Converter(
        omit_if_default=True, forbid_extra_keys=True, detailed_validation=explains
    )
    for scalar in (str, int, bool):
        converter.register_structure_hook(scalar, _checked(scalar))
    converter.register_structure_hook(float, _read_float)
    converter.register_structure_hook_factory(_is_list, _make_list_hook)
    converter.register_structure_hook_factory(_is_optional, _make_optional_hook)
    if shown:
        converter.register_structure_hook_factory(_is_renamed, _make_renamed_reader)
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


def _is_renamed(of: object) -> bool:
    return isinstance(of, type) and is_dataclass(of) and bool(_names_of(of))


def _names_of(of: type) -> dict[str, Any]:
    """The fields that users see by other names, as cattrs takes them."""
    named = {name: each.name for name, each in shown_fields(of).items() if each.name}
    return {name: override(rename=other) for name, other in named.items()}


def _make_renamed_reader(of: type, converter: Converter) -> Callable[[Any, Any], object]:
    names = _names_of(of)
    read: Callable[[Any, Any], object] = make_dict_structure_fn(of, converter, **names)

    def read_naming(data: Any, kind: Any) -> object:
        try:
            return read(data, kind)
        except ClassValidationError as error:
            for fault in error.exceptions:
                for note in getattr(fault, "__notes__", ()):
                    if isinstance(note, AttributeValidationNote) and note.name in names:
                        note.name = names[note.name].rename
            raise

    return read_naming if converter.detailed_validation else read


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
        if converter.detailed_validation:
            return _read_explaining(values, item, read)
        return tuple([read(value, item) for value in values])

    return read_list


def _read_explaining(values: list[object], item: Any, read: Callable[..., object]) -> object:
    """Reads items; what is raised names the places of those at fault, as cattrs wants it."""
    records, faults = list[object](), list[Exception]()
    for index, value in enumerate(values):
        try:
            records.append(read(value, item))
        except Exception as error:  # cattrs raises what the fault happens to cause
            error.add_note(IterableValidationNote(f"at {index}", index, item))
            faults.append(error)
    if faults:
        raise IterableValidationError("items", faults, tuple)
    return tuple(records)


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
_STORED = (_CONVERTER, _make_converter(explains=True))
_SHOWN = (_make_converter(explains=False, shown=True), _make_converter(explains=True, shown=True))


def to_json(record: object) -> JsonObject:
    """A record, a dataclass of the model, as it is stored."""
    data: JsonObject = _CONVERTER.unstructure(record)
    return data


def from_json(data: JsonObject, of: type[_T]) -> _T:
    """The inverse of `to_json`. Raises RecordError for any other data."""
    return _read(data, of, _STORED)


def from_shown(data: JsonObject, of: type[_T]) -> _T:
    """A record whose fields have the names that users see. Raises RecordError as `from_json`."""
    return _read(data, of, _SHOWN)


def _read(data: JsonObject, of: type[_T], converters: tuple[Converter, Converter]) -> _T:
    """By the first; the second explains what is wrong."""
    quick, explainer = converters
    try:
        return quick.structure(data, of)
    except Exception as error:  # cattrs raises what the fault happens to cause
        raise RecordError(_explain(data, of, explainer) or repr(error)) from error


def read_record(key: str, data: JsonObject, of: type[_T]) -> _T:
    """The record that is stored at a key. Raises StoreError, which names it."""
    try:
        return from_json(data, of)
    except RecordError as error:
        raise StoreError(
            f"cannot read the record {key}: {error}; restore a backup with `speck restore`"
        ) from error


def _explain(data: JsonObject, of: type, explainer: Converter) -> str:
    """Each field at fault with what is wrong with it."""
    try:
        explainer.structure(data, of)
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
    if isinstance(error, AttributeError | TypeError):  # fields were looked up in what has none
        return "must be an object"
    return str(error) if isinstance(error, ValueError) else format_exception(error, of)
