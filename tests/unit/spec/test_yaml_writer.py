"""Written YAML loads to the data that it was written from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speck.spec.yaml_loader import load
from speck.spec.yaml_writer import to_yaml

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp")))
NUMBERS = st.integers(-(10**9), 10**9) | st.floats(-1e6, 1e6, allow_nan=False, width=32)
DATA = st.recursive(
    st.booleans() | NUMBERS | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=12,
)


@pytest.mark.parametrize("text", ["1e3", "0x1f", "0o17", "on", "~", "null", "1_000", "-", "=", ""])
def test_text_stays_text(text: str) -> None:
    assert load(to_yaml({"args": [text]})).data == {"args": [text]}


@given(st.dictionaries(TEXT, DATA, min_size=1, max_size=4))
def test_it_loads_to_the_same(data: dict[str, Any]) -> None:
    assert load(to_yaml(data)).data == data
