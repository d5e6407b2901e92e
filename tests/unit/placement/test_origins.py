"""Where data enters, in graphs of any shape."""

from __future__ import annotations

import pytest

from speck.placement.origins import Mix, Origin, Tracer, sum_by_edge

A, B = Origin("site", "a"), Origin("site", "b")


def test_a_chain_longer_than_python_s_stack_is_walked() -> None:
    tracer: Tracer[int] = Tracer()
    tracer.enter(0, A, None)
    for number in range(3000):
        tracer.flow(number, number + 1, 1.0)
    assert tracer.trace(3000) == Mix({A: 1.0}, True)


def test_many_ways_to_a_node_are_walked_once() -> None:
    tracer: Tracer[int] = Tracer()
    tracer.enter(0, A, 3.0)
    tracer.enter(0, B, 1.0)
    for number in range(40):  # 10^40 ways
        for _ in range(10):
            tracer.flow(number, number + 1, 1.0)
    shares, known = tracer.trace(40)
    assert shares == pytest.approx({A: 0.75, B: 0.25})
    assert known


def test_a_cycle_of_compositions_ends() -> None:
    tracer: Tracer[str] = Tracer()
    tracer.flow("x", "y", 5.0)
    tracer.flow("y", "x", 5.0)
    tracer.enter("x", A, 1.0)
    assert tracer.trace("y") == Mix({A: 1.0}, True)
    assert tracer.trace("x") == Mix({A: 1.0}, True)
    assert Tracer[str]().trace("z") == Mix({}, False)


def test_shares_follow_bytes_and_a_missing_rate_leaves_the_names() -> None:
    tracer: Tracer[str] = Tracer()
    tracer.enter("in-a", A, None)  # all that enters there, however much
    tracer.enter("in-b", B, None)
    tracer.flow("in-a", "mid", 30.0)
    tracer.flow("in-b", "mid", 10.0)
    tracer.flow("mid", "out", 4.0)
    tracer.flow("in-b", "out", 4.0)
    tracer.flow("in-a", "half", None)
    tracer.flow("in-b", "half", 1.0)
    assert tracer.trace("out").shares == pytest.approx({A: 0.375, B: 0.625})
    assert tracer.trace("half").shares.keys() == {A, B}
    assert not tracer.trace("half").is_known


def test_what_jobs_without_input_produce_is_of_no_site() -> None:
    mix = Mix({A: 0.5, Origin("site", "cloud"): 0.2, Origin("job", "made"): 0.3}, True)
    assert sum_by_edge(mix, {"a", "b"}) == {"a": 0.5, None: 0.2}
