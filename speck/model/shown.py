"""How a record is shown to users: what `api/` renders and documents follows from its fields.

It is here, below the API: the annotations are those of the model's fields, the store reads by their
names, and commands that need no service show records without loading one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import cache
from operator import attrgetter
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints


@dataclass(frozen=True, slots=True)
class Shown:
    """An annotation of a field: what it means, its name for users if it has another one (`from` is
    no name in Python), and whether it is left out while it is None, or always (`hidden`)."""

    about: str = ""
    name: str | None = None
    left_out: bool = False
    hidden: bool = False


_PLAIN = Shown()
_SCALARS = frozenset({str, int, float, bool, type(None)})


def render(value: Any) -> Any:
    """A record, or a collection of such, as JSON. Fields keep their names, unless `Shown` gives
    another one."""
    kind: type = type(value)
    return _renderer(kind)(value)


@cache
def _renderer(kind: type) -> Callable[[Any], Any]:
    """How values of a type are rendered: asking each of many thousands what it is takes longer."""
    if is_dataclass(kind):
        return _record_renderer(kind)
    if issubclass(kind, Mapping):
        return lambda value: {key: render(content) for key, content in value.items()}
    if issubclass(kind, Set):
        return lambda value: sorted(map(render, value))
    if issubclass(kind, list | tuple):
        return _render_list
    return _render_plain


def _render_list(values: Sequence[Any]) -> list[Any]:
    if _SCALARS.issuperset(map(type, values)):
        return list(values)
    return list(map(render, values))


def _record_renderer(record_type: type) -> Callable[[Any], dict[str, Any]]:
    shown = shown_fields(record_type)
    keys = [each.name or name for name, each in shown.items()]
    left_out = [each.name or name for name, each in shown.items() if each.left_out]
    hints = hints_of(record_type)
    deep = [each.name or name for name, each in shown.items() if not _is_plain(hints[name])]
    read = _reader(tuple(shown))

    def render_fields(record: Any) -> dict[str, Any]:
        rendered = dict(zip(keys, read(record), strict=True))
        for key in deep:
            rendered[key] = render(rendered[key])
        for key in left_out:
            if rendered[key] is None:
                del rendered[key]
        return rendered

    return render_fields


def _reader(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    """Reads the attributes of these names."""
    if len(names) > 1:
        return attrgetter(*names)
    return lambda record: tuple(getattr(record, name) for name in names)


def _render_plain(value: Any) -> Any:
    return value


def _is_plain(hint: Any) -> bool:
    """Whether values of this type are rendered as they are, whichever they are."""
    if get_origin(hint) is Annotated:
        return _is_plain(get_args(hint)[0])
    if get_origin(hint) in (Union, UnionType):
        return all(map(_is_plain, get_args(hint)))
    return hint in _SCALARS or (isinstance(hint, type) and issubclass(hint, StrEnum))


@cache
def shown_fields(record: type) -> dict[str, Shown]:
    """How each field of a dataclass is shown, by its name; those that are hidden are left out."""
    hints = hints_of(record)
    shown = {each.name: _shown(hints[each.name]) for each in fields(record)}
    return {name: each for name, each in shown.items() if not each.hidden}


@cache
def hints_of(record: type) -> dict[str, Any]:
    """The type of each field of a dataclass, with its annotations."""
    return get_type_hints(record, include_extras=True)


def _shown(hint: Any) -> Shown:
    if get_origin(hint) is Annotated:
        return next((each for each in get_args(hint)[1:] if isinstance(each, Shown)), _PLAIN)
    return _PLAIN
