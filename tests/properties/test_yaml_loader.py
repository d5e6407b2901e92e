"""Whatever is sent, the reader answers with plain data or an InvalidError, and means it."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from speck.errors import InvalidError
from speck.spec.schema import composition_from_data, load_composition
from speck.spec.yaml_loader import load, load_json

SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(10**17), 10**17),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(exclude_categories=["Cs"])),
)
KEYS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
DATA = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=30,
)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
TEXTS = st.recursive(
    TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=30,
)
STRUCTURE = ["jobs: ", "- ", "\n", "  ", ": ", "[", "]", "{", "}", ",", "? ", "---\n", "...\n"]
MARKS = ["'", '"', "&x ", "*x", "!!str", ">-\n", "#", "\t", "%YAML 1.1\n", "\\", "\\u0000"]
PIECES = st.sampled_from([*STRUCTURE, *MARKS, "a", "1", "null", "é"])


class _NoAliases(yaml.SafeDumper):
    def ignore_aliases(self, data: Any) -> bool:
        return True


def plain(value: Any) -> bool:
    """Whether `value` is made of plain types only."""
    if isinstance(value, dict):
        return all(type(key) is str and plain(inner) for key, inner in value.items())
    if isinstance(value, list):
        return all(plain(inner) for inner in value)
    return value is None or type(value) in (bool, int, float, str)


@given(DATA)
def test_json_reads_what_was_written(data: Any) -> None:
    assert load_json(json.dumps(data)).data == data
    assert load_json(json.dumps(data, ensure_ascii=False).encode()).data == data


@given(TEXTS)
def test_yaml_reads_what_was_written_in_quotes(data: Any) -> None:
    for style in ("'", '"'):
        text = yaml.dump(data, Dumper=_NoAliases, default_style=style, allow_unicode=False)
        assert load(text).data == data


@given(st.lists(PIECES, max_size=40).map("".join) | st.text() | st.binary())
def test_no_text_gets_past_the_reader(text: str | bytes) -> None:
    for read in (load, load_json):
        refusal = None
        try:
            assert plain(read(text).data)
        except InvalidError as exc:
            refusal = exc
        if refusal is not None:
            assert refusal.status == 400
            assert refusal.problems
            assert all(problem.message for problem in refusal.problems)


@given(st.lists(PIECES, max_size=40).map("".join))
def test_no_text_gets_past_the_schema(text: str) -> None:
    for media in ("application/yaml", "application/json"):
        with contextlib.suppress(InvalidError):
            load_composition(text.encode(), media)


@given(
    DATA
    | st.fixed_dictionaries({"jobs": DATA | st.lists(DATA)})
    | st.fixed_dictionaries({"jobs": st.lists(st.fixed_dictionaries({"job_name": DATA}))})
    | st.fixed_dictionaries({"jobs": st.just([]), "defaults": DATA, "inputs": DATA})
)
def test_no_data_gets_past_the_schema(data: Any) -> None:
    with contextlib.suppress(InvalidError):
        composition_from_data(data)


@given(DATA)
def test_every_place_has_a_line(data: Any) -> None:
    text = json.dumps(data, indent=1)
    try:
        document = load(text)
    except InvalidError:
        return
    last = text.count("\n") + 1

    def walk(value: Any, path: str) -> None:
        line = document.line_of(path)
        assert line is not None
        assert 1 <= line <= last
        if isinstance(value, dict):
            for key, inner in value.items():
                walk(inner, f"{path}.{key}" if path else key)
        elif isinstance(value, list):
            for index, inner in enumerate(value):
                walk(inner, f"{path}[{index}]")

    walk(document.data, "")
