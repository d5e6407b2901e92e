"""The cache that is bounded by bytes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speck.model.bounded_cache import BoundedCache


def cache(most: int = 10) -> BoundedCache[str, str]:
    return BoundedCache(most, lambda key, value: len(value))


def test_a_value_is_made_once() -> None:
    kept = cache()
    assert [kept.get("a", lambda: "x"), kept.get("a", lambda: "y")] == ["x", "x"]


def test_the_values_used_longest_ago_go_first() -> None:
    kept = cache()
    for key in ("a", "b", "a", "c"):
        kept.get(key, lambda key=key: key * 4)  # type: ignore[misc]
    assert kept.bytes == 8
    assert kept.get("a", lambda: "?") == "aaaa"
    assert kept.get("b", lambda: "?") == "?"


def test_what_is_too_large_is_returned_and_not_kept() -> None:
    kept = cache()
    assert kept.get("a", lambda: "x" * 11) == "x" * 11
    assert kept.bytes == 0


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 12))))
def test_it_never_holds_more_and_returns_what_is_made(calls: list[tuple[str, int]]) -> None:
    kept = cache()
    for key, size in calls:
        value = kept.get(key, lambda key=key, size=size: key * size)  # type: ignore[misc]
        assert set(value) <= {key}
        assert 0 <= kept.bytes <= 10
