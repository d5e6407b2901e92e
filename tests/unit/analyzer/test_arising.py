"""Where what comes over links arises."""

from __future__ import annotations

import pytest

from speck.analyzer.arising import Arising


def test_a_chain_longer_than_python_s_stack_is_walked() -> None:
    arising = Arising({"edge"})
    arising.add(("edge", "in"), ("cloud", "0"), 1.0)
    for number in range(3000):
        arising.add(("cloud", str(number)), ("cloud", str(number + 1)), 1.0)
    assert arising.at(("cloud", "3000")) == ({"edge": 1.0}, True)


def test_many_ways_to_a_link_are_walked_once() -> None:
    arising = Arising({"a", "b"})
    arising.add(("a", "in"), ("cloud", "0"), 3.0)
    arising.add(("b", "in"), ("cloud", "0"), 1.0)
    for number in range(40):  # 10^40 ways
        for _ in range(10):
            arising.add(("cloud", str(number)), ("cloud", str(number + 1)), 1.0)
    shares, known = arising.at(("cloud", "40"))
    assert shares == pytest.approx({"a": 0.75, "b": 0.25})
    assert known


def test_a_cycle_of_compositions_ends() -> None:
    arising = Arising({"a"})
    arising.add(("cloud", "x"), ("cloud", "y"), 5.0)
    arising.add(("cloud", "y"), ("cloud", "x"), 5.0)
    arising.add(("a", "in"), ("cloud", "x"), 1.0)
    assert arising.at(("cloud", "y")) == ({"a": 1.0}, True)
    assert arising.at(("cloud", "x")) == ({"a": 1.0}, True)
    assert Arising({"a"}).at(("cloud", "z")) == ({None: 1.0}, True)
