"""Numbers as the page writes them."""

from __future__ import annotations

from typing import Any

import pytest

from bench.page.words import mean, number, table


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "–"),
        (0.0, "0"),
        (0.95, "0.95"),
        (0.0123456, "0.0123"),
        (1.0048, "1.00"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (99.96, "100"),
        (23.456, "23.5"),
        (4123.6, "4,124"),
        (1219772, "1,219,772"),
        (True, "yes"),
    ],
)
def test_three_figures(value: float | None, text: str) -> None:
    assert number(value) == text


def make_interval(
    mean: float | None, low: float | None = None, high: float | None = None, n: int = 5
) -> Any:
    return {"n": n, "mean": mean, "low": low, "high": high}


def test_a_mean_with_its_interval() -> None:
    assert mean(make_interval(0.25, 0.2, 0.3), "ms", 1000) == "250 ms (200 to 300)"
    assert mean(make_interval(1.084, 0.9996, 1.2)) == "1.08 (1.00 to 1.20)"
    assert mean(make_interval(-2e-17, -0.8956, 0.8956)) == "0.000 (-0.896 to 0.896)"
    assert mean(make_interval(0.0, 0.0, 0.0), "s") == "0 s (0 to 0)"
    assert mean(make_interval(None), "s") == "–"


def test_a_mean_of_two_runs_has_no_interval() -> None:
    assert mean(make_interval(2.0, -10, 14, n=2), "s") == "2 s"
    assert mean(make_interval(2.0, n=1), "s") == "2 s"


def test_a_table_with_what_would_break_it() -> None:
    assert table(["a", ">b"], [("x|y", None)]) == "| a | b |\n|---|--:|\n| x\\|y | – |"
