"""How a record is shown to users: what `api/` renders and documents follows from its fields."""

from __future__ import annotations

from collections.abc import Mapping, Set
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


def render(value: Any) -> Any:
    """A record, or a collection of such, as JSON. Fields keep their names, unless `Shown` gives
    another one."""
    if is_dataclass(value) and not isinstance(value, type):
        return {
            shown.name or name: render(content)
            for name, shown in shown_fields(type(value)).items()
            if (content := getattr(value, name)) is not None or not shown.left_out
        }
    if isinstance(value, Mapping):
        return {key: render(content) for key, content in value.items()}
    if isinstance(value, Set):
        return sorted(map(render, value))
    if isinstance(value, list | tuple):
        return list(map(render, value))
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
