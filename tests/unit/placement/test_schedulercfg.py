"""flink-placement's file: there and back, and what is wrong with it by line."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speck.errors import PermanentError
from speck.placement.model import Kind, Load, Placement
from speck.placement.schedulercfg import Subtask, dump, load, of_placement

TEXT = """Source: bids (1/2); 10.0.0.1
Source: bids (2/2); 10.0.0.2
Filter; (a/b) (1/1); worker-3:6122
"""


def test_there_and_back() -> None:
    found = load(TEXT)
    assert found == (
        Subtask("Source: bids", 1, 2, "10.0.0.1"),
        Subtask("Source: bids", 2, 2, "10.0.0.2"),
        Subtask("Filter; (a/b)", 1, 1, "worker-3:6122"),
    )
    assert dump(found) == TEXT


def test_comments_empty_lines_and_carriage_returns_are_passed_over() -> None:
    assert load("# by hand\r\n\r\n" + TEXT.replace("\n", "\r\n")) == load(TEXT)


names = st.text(string.ascii_letters + string.digits + " ;:()/#->", min_size=1, max_size=12)
addresses = st.text(string.ascii_lowercase + string.digits + ".:-[]", min_size=1, max_size=12)


@given(st.dictionaries(names, st.integers(1, 3)), addresses)
def test_what_is_written_is_read_as_it_was(tasks: dict[str, int], address: str) -> None:
    subtasks = tuple(
        Subtask(name, number, width, address)
        for name, width in tasks.items()
        for number in range(1, width + 1)
    )
    if any(name.strip() != name or name.startswith("#") for name in tasks):
        with pytest.raises(PermanentError, match="cannot write"):
            dump(subtasks)
    else:
        assert load(dump(subtasks)) == subtasks


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A (1/1); h\nB (1/1) h\n", "line 2: write it as 'Task name (i/n); address', not as 'B"),
        ("A (1/1);\n", "line 1: write it as"),
        ("A (3/2); h\n", "line 1: i of '(i/n)' goes from 1 to n: 'A (3/2); h'"),
        ("A (0/2); h\n", "line 1: i of"),
        ("A (1/2); h\n\nA (2/3); h\n", "line 3: 'A' has 2 subtasks in line 1"),
        ("A (1/1); h\nA (1/1); i\n", "line 2: line 1 places the same subtask; delete one"),
        ("\nA (2/2); h\n", "line 2: add a line for 'A' (1/2): it has none"),
    ],
)
def test_a_bad_line_is_named_with_its_mend(text: str, message: str) -> None:
    with pytest.raises(PermanentError) as refused:
        load(text)
    assert str(refused.value).startswith(f"cannot read a schedulercfg, {message}")


def test_what_could_not_be_read_again_is_not_written() -> None:
    with pytest.raises(PermanentError, match="line 1: add a line for 'A'"):
        dump([Subtask("A", 2, 2, "h")])
    with pytest.raises(PermanentError, match="cannot write"):
        dump([Subtask("A", 1, 1, "h o")])


def test_a_placement_goes_round_the_task_managers_of_each_site() -> None:
    loads = [Load("A", slots=2), Load("t", Kind.TOPIC), Load("B", slots=2)]
    placement = Placement("milp", {"A": "edge", "t": "edge", "B": "edge"})
    found = of_placement(placement, loads, {"edge": ["h1", "h2", "h3"]})
    assert dump(found) == "A (1/2); h1\nA (2/2); h2\nB (1/2); h3\nB (2/2); h1\n"
    with pytest.raises(PermanentError, match="no TaskManager of edge is given"):
        of_placement(placement, loads, {"edge": []})
