"""DS2's own test vectors, and what goes past them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.errors import PermanentError
from speck.placement.ds2 import Need, Operator, compute_needs


def chain(first: tuple[float, float], second: float) -> list[Operator]:
    return [
        Operator("Op1", ("s",), ("t",), *first),
        Operator("Op2", ("t",), ("u",), second, 200.0),
    ]


@pytest.mark.parametrize(
    ("rate", "sources", "first", "second", "expected"),
    [
        (100, 1, (50, 400), 100, (2, 8)),
        (200, 1, (40, 700), 99, (5, 36)),
        (200, 1, (10, 700), 201, (20, 70)),
        (100, 2, (50, 400), 100, (4, 16)),
        (200, 2, (40, 700), 99, (10, 71)),
        (200, 2, (10, 700), 201, (40, 140)),
    ],
)
def test_the_published_vectors(
    rate: float, sources: int, first: tuple[float, float], second: float, expected: tuple[int, int]
) -> None:
    operators = chain(first, second)
    topics = tuple(f"s{n}" for n in range(sources))
    operators[0] = replace(operators[0], reads=topics)
    needs = compute_needs(operators, dict.fromkeys(topics, rate))
    assert (needs["Op1"].parallelism, needs["Op2"].parallelism) == expected


def test_rates_are_those_of_all_instances_together() -> None:
    operator = Operator("A", ("s",), (), 100.0, None, parallelism=2)
    assert compute_needs([operator], {"s": 125.0}) == {"A": Need(125.0, None, 3)}


def test_each_reader_takes_all_of_a_topic_and_writers_add_up() -> None:
    needs = compute_needs(
        [
            Operator("last", ("t",), (), 10.0, 0.0),
            Operator("A", ("s",), ("t",), 100.0, 50.0),
            Operator("B", ("s",), ("t",), 100.0, 25.0),
        ],
        {"s": 100.0},
    )
    assert needs["A"].in_rate == needs["B"].in_rate == 100.0
    assert needs["last"] == Need(75.0, 0.0, 8)
    assert list(needs) == ["last", "A", "B"]


def test_without_evidence_nothing_behind_it_is_known() -> None:
    operators = chain((50, 400), 100)
    operators[0] = replace(operators[0], true_processing_rate=None)
    assert compute_needs(operators, {"s": 100.0}) == {
        "Op1": Need(100.0, None, None),
        "Op2": Need(None, None, None),
    }


def test_a_whole_number_of_instances_is_not_rounded_up() -> None:
    operator = Operator("A", ("s",), (), 0.1, None)
    assert compute_needs([operator], {"s": 0.1 * 3})["A"].parallelism == 3


def test_refused() -> None:
    circle = [Operator("A", ("t",), ("u",), 1.0, 1.0), Operator("B", ("u",), ("t",), 1.0, 1.0)]
    with pytest.raises(PermanentError, match="cannot scale a cycle of operators: "):
        compute_needs(circle, {})
    with pytest.raises(PermanentError, match="a name is used twice"):
        compute_needs([circle[0], circle[0]], {})
    with pytest.raises(
        PermanentError, match="cannot scale A: its true processing rate must be above 0"
    ):
        compute_needs([replace(circle[0], true_processing_rate=0.0)], {})
