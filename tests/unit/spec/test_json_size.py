"""Values of JSON, counted before it is parsed."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speck.spec.json_size import count_values, has_more_values

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=40,
)


def count(value: Any) -> int:
    """Values and keys; an empty object or list is one."""
    if isinstance(value, dict):
        return 1 + len(value) + sum(map(count, value.values()))
    if isinstance(value, list):
        return 1 + sum(map(count, value))
    return 1


@given(VALUES, st.booleans())
def test_no_fewer_values_are_counted_than_are_parsed(value: Any, ascii_only: bool) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only).encode()
    exact = count(value)
    assert has_more_values(text, exact - 1)
    assert not has_more_values(text, 2 * exact)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b'"' + b"{[,:" * 50 + b'"', 1),
        (rb'["\\", "\"{,,,,", {"a\\\"": "b"}]', 6),
        (b"[{},{},{}]", 7),
        (b"", 1),
        (b'"unterminated {,,,', 5),
    ],
)
def test_signs_within_texts_do_not_count(text: bytes, expected: int) -> None:
    assert count_values(text, 0 if text.startswith(b'"u') else 5) == expected
