"""All types of records: each is read back, anything else is refused with the name of the field, and
none changes without a new version of the store."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, fields, is_dataclass, make_dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from speck.clock import SystemClock
from speck.errors import StoreError
from speck.model.link import Link
from speck.store.codec import RecordError, from_json, read_record, to_json
from speck.store.leveldb import VERSION
from speck.store.record_types import TABLES, all_types, type_at
from speck.store.records import Records

SHAPES = Path(__file__).with_name(f"record_shapes_{VERSION}.txt")
KINDS = tuple(dict.fromkeys(all_types().values()))
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 2**40) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner),
    max_leaves=3,
)
SCALARS: Mapping[object, st.SearchStrategy[Any]] = {
    str: st.text(max_size=3),
    int: st.integers(-5, 2**40),
    bool: st.booleans(),
    float: st.floats(allow_nan=False, allow_infinity=False),
    type(None): st.none(),
    Any: JSON,
    object: JSON,
}


@cache
def values_of(of: Any) -> st.SearchStrategy[Any]:
    """The values of a type that a record's field may have."""
    if of in SCALARS:
        return SCALARS[of]
    origin, inner = get_origin(of), get_args(of)
    if origin is Annotated:
        return values_of(inner[0])
    if origin in (Union, types.UnionType):
        return st.one_of(*map(values_of, inner))
    if origin is Literal:
        return st.sampled_from(inner)
    if origin is tuple and inner[1:] == (...,):
        return st.lists(values_of(inner[0]), max_size=2).map(tuple)
    if origin is tuple:
        return st.tuples(*map(values_of, inner))
    if origin is not None and issubclass(origin, Mapping):
        return st.dictionaries(values_of(inner[0]), values_of(inner[1]), max_size=2)
    if of is Link:
        return st.builds(Link, SCALARS[str], SCALARS[str])
    if is_dataclass(of):
        return st.deferred(lambda: st.builds(of, **fields_of(of)))
    assert issubclass(of, Enum), of
    return st.sampled_from(list(of))


def fields_of(of: Any) -> dict[str, st.SearchStrategy[Any]]:
    hints = get_type_hints(of, include_extras=True)
    return {field.name: values_of(hints[field.name]) for field in fields(of) if field.init}


def stored(record: object) -> Any:
    """As the store gives it back."""
    return json.loads(json.dumps(to_json(record)))


quick = settings(
    max_examples=8,
    deadline=None,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[Phase.generate],
)


@pytest.mark.parametrize("of", KINDS, ids=lambda of: of.__name__)
def test_a_record_is_read_back(of: type[object]) -> None:
    @quick
    @given(values_of(of))
    def check(record: object) -> None:
        assert from_json(stored(record), of) == record

    check()


WRONG = (7, -1.5, "7", "false", "abc", True, None, [], [7], {}, {"zzz": 7})


@pytest.mark.parametrize("of", KINDS, ids=lambda of: of.__name__)
def test_anything_else_is_refused_with_the_name_of_the_field(of: Any) -> None:
    @quick
    @given(values_of(of), st.sampled_from(WRONG))
    def check(record: object, wrong: object) -> None:
        data = stored(record)
        with pytest.raises(RecordError, match="no such field: zzz"):
            from_json({**data, "zzz": 1}, of)
        for field in fields(of):
            check_wrong_type(of, data, field, wrong)
            if default_of(field) is MISSING:
                rest = {name: value for name, value in data.items() if name != field.name}
                with pytest.raises(RecordError, match=rf"\b{field.name}: is missing"):
                    from_json(rest, of)

    check()


def check_wrong_type(of: type[object], data: Any, field: Field[Any], wrong: object) -> None:
    """A value is refused by name, or it is of the right type, and nothing is made of it."""
    try:
        read = from_json({**data, field.name: wrong}, of)
    except RecordError as error:
        assert field.name in str(error)
    else:
        assert same(as_stored(read, field), wrong), field.name


def default_of(field: Field[Any]) -> object:
    factory: Any = field.default_factory
    return factory() if factory is not MISSING else field.default


def as_stored(record: Any, field: Field[Any]) -> object:
    """A field in JSON, whether or not it holds its default, which is left out."""
    data = stored(record)
    if field.name in data:
        return data[field.name]
    value = getattr(record, field.name)
    return value if value is None else json.loads(json.dumps(to_json(value)))


def same(one: object, other: object) -> bool:
    """Equal, and of one type of JSON: `True == 1` in Python."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    return one == other


def test_a_record_that_cannot_be_read_is_named_with_the_remedy() -> None:
    with pytest.raises(StoreError) as error:
        read_record("pilot/demo", {"settings": {"on": "false"}}, TABLES["pilot"])
    assert str(error.value) == (
        "cannot read the record pilot/demo: settings.on: must be true or false, is 'false';"
        " restore a backup with `speck restore`"
    )


# -- the tables ---------------------------------------------------------------------------


def test_the_type_of_each_table_is_known(tmp_path: Path) -> None:
    records = Records.open(tmp_path / "store", SystemClock())
    try:
        assert records.tables.types == TABLES
        assert all(type_at(f"{noun}/a") is of for noun, of in TABLES.items())
        assert {key for key, _ in records.store.scan("meta/")} - {"meta/store"} <= set(all_types())
    finally:
        records.store.close()


# -- the version --------------------------------------------------------------------------


def describe(of: Any) -> str:
    """A type by its form in the store."""
    if get_origin(of) is Annotated:
        return describe(get_args(of)[0])
    if get_origin(of) in (Union, types.UnionType):
        return " | ".join(map(describe, get_args(of)))
    if get_origin(of) is not None:
        name = getattr(get_origin(of), "__name__", str(get_origin(of)))
        inner = ("..." if each is ... else describe(each) for each in get_args(of))
        return f"{name}[{', '.join(inner)}]"
    if isinstance(of, type) and issubclass(of, Enum):
        return f"{of.__name__}({', '.join(str(each.value) for each in of)})"
    return getattr(of, "__name__", None) or repr(of)


def describe_shapes(kinds: Mapping[str, type[object]]) -> str:
    """All types of records, those within them too, with their fields and what is left out."""
    named: dict[str, Any] = {}

    def collect(of: Any) -> None:
        for inner in get_args(of):
            collect(inner)
        if not isinstance(of, type) or not is_dataclass(of) or of.__name__ in named:
            return
        named[of.__name__] = of
        for hint in get_type_hints(of, include_extras=True).values():
            collect(hint)

    for kind in kinds.values():
        collect(kind)
    lines = [f"{key}: {kind.__name__}" for key, kind in sorted(kinds.items())]
    for name, of in sorted(named.items()):
        hints = get_type_hints(of, include_extras=True)
        lines += ["", name]
        for field in fields(of):
            default = default_of(field)
            end = "" if default is MISSING else f" = {default!r}"
            lines.append(f"  {field.name}: {describe(hints[field.name])}{end}")
    return "\n".join(lines) + "\n"


def test_no_type_of_a_record_changes_without_a_new_version(tmp_path: Path) -> None:
    """A store of another shape is to be refused, not misread."""
    shapes = describe_shapes(all_types())
    expected = SHAPES.read_text() if SHAPES.exists() else ""
    if shapes != expected:
        new = tmp_path / f"record_shapes_{VERSION + 1}.txt"
        new.write_text(shapes)
        assert shapes == expected, (
            "the types of records have changed: raise VERSION in speck/store/leveldb.py, and"
            f" replace {SHAPES.name} by {new}"
        )


def replace_field(of: Any) -> type[object]:
    """The type with another default in one of its fields."""
    old = fields(of)[-1]
    return make_dataclass(of.__name__, [(old.name, int, 7)], bases=(of,), frozen=True)


def test_a_changed_type_changes_the_description() -> None:
    sites = describe_shapes({"site": TABLES["site"]})
    assert "  credentials: str | NoneType = None" in sites  # of a type within the type
    assert sites != describe_shapes({"site": replace_field(TABLES["site"])})
