"""The sites at which the data of links arises."""

from __future__ import annotations

import pytest

from speck.analyzer.data_origins import DataOrigins


def test_a_chain_longer_than_python_s_stack_is_walked() -> None:
    origins = DataOrigins({"edge"})
    origins.add(("edge", "in"), ("cloud", "0"), 1.0)
    for number in range(3000):
        origins.add(("cloud", str(number)), ("cloud", str(number + 1)), 1.0)
    assert origins.origins_of(("cloud", "3000")) == ({"edge": 1.0}, True)


def test_many_ways_to_a_link_are_walked_once() -> None:
    origins = DataOrigins({"a", "b"})
    origins.add(("a", "in"), ("cloud", "0"), 3.0)
    origins.add(("b", "in"), ("cloud", "0"), 1.0)
    for number in range(40):  # 10^40 ways
        for _ in range(10):
            origins.add(("cloud", str(number)), ("cloud", str(number + 1)), 1.0)
    shares, known = origins.origins_of(("cloud", "40"))
    assert shares == pytest.approx({"a": 0.75, "b": 0.25})
    assert known


def test_a_cycle_of_compositions_ends() -> None:
    origins = DataOrigins({"a"})
    origins.add(("cloud", "x"), ("cloud", "y"), 5.0)
    origins.add(("cloud", "y"), ("cloud", "x"), 5.0)
    origins.add(("a", "in"), ("cloud", "x"), 1.0)
    assert origins.origins_of(("cloud", "y")) == ({"a": 1.0}, True)
    assert origins.origins_of(("cloud", "x")) == ({"a": 1.0}, True)
    assert DataOrigins({"a"}).origins_of(("cloud", "z")) == ({None: 1.0}, True)
