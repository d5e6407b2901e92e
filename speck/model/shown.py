"""How a record is shown to users: what `api/` renders and documents follows from its fields."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass, fields, is_dataclass
from functools import cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints


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
        return lambda value: list(map(render, value))
    return _render_plain


def _record_renderer(record_type: type) -> Callable[[Any], dict[str, Any]]:
    shown = [(name, it.name or name, it.left_out) for name, it in shown_fields(record_type).items()]

    def render_record(record: Any) -> dict[str, Any]:
        rendered = {}
        for name, key, left_out in shown:
            content = getattr(record, name)
            kind: type = type(content)
            if kind not in _SCALARS:
                content = _renderer(kind)(content)
            elif content is None and left_out:
                continue
            rendered[key] = content
        return rendered

    return render_record


def _render_plain(value: Any) -> Any:
    return value


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
