"""flink-placement's file: how the fork reads it, and its faults by line."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.schedulercfg import Subtask, Task, dump, from_placement, load, tasks_of
from speck.errors import PermanentError
from speck.placement.model import Placement

# as the project's own scripts write it
TEXT = """\
Latency Sink (1/1); 192.168.1.180
Mapper (2/2); 192.168.1.181
Mapper (1/2); 192.168.1.181
Source: Bids Source (1/1); 192.168.1.180"""


def read_by_the_fork(text: str) -> dict[str, str]:
    """Line breaks first, then "; ": items 0 and 1."""
    return dict(line.split("; ")[:2] for line in text.split("\n"))  # type: ignore[misc]


def test_the_projects_own_example() -> None:
    subtasks = load(TEXT)
    assert subtasks == (
        Subtask("Latency Sink", 1, 1, "192.168.1.180"),
        Subtask("Mapper", 2, 2, "192.168.1.181"),
        Subtask("Mapper", 1, 2, "192.168.1.181"),
        Subtask("Source: Bids Source", 1, 1, "192.168.1.180"),
    )
    assert dump(subtasks) == TEXT
    assert load(TEXT + "\n") == subtasks
    assert load("") == ()


def test_a_subtask_that_is_not_named_gets_any_slot() -> None:
    assert load("A (2/2); 10.0.0.1") == (Subtask("A", 2, 2, "10.0.0.1"),)


names = st.text(string.ascii_letters + string.digits + " ;:()/#->\n", min_size=1, max_size=12)
addresses = st.sampled_from(["10.0.0.1", "::1", "10.0.0.1:6122", "worker-3", "10.0.0.2 ", ""])


@given(st.dictionaries(names, st.integers(1, 3), max_size=4), addresses)
def test_what_is_written_is_what_the_fork_reads(tasks: dict[str, int], address: str) -> None:
    subtasks = tuple(
        Subtask(name, number, width, address)
        for name, width in tasks.items()
        for number in range(1, width + 1)
    )
    try:
        text = dump(subtasks)
    except PermanentError:
        assert address not in ("10.0.0.1", "::1") or any(
            "; " in f"{name} (" or "\n" in name for name in tasks
        )
        return
    assert load(text) == subtasks
    if subtasks:
        expected = {f"{s.task} ({s.number}/{s.of})": s.address for s in subtasks}
        assert read_by_the_fork(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("A (1/1); ::1\nB (1/1) ::1", "line 2: write it as 'Task name (i/n); IP address'"),
        ("# by hand\nA (1/1); ::1", "line 1: write it as"),
        ("A (1/1); ::1; now", "line 1: write it as"),
        ("A (1/1);", "line 1: write it as"),
        ("A (1/1); ::1\n\nB (1/1); ::1", "line 2: delete the empty line"),
        ("A (1/1); 10.0.0.1:6122", "line 1: write the IP address of a TaskManager, without a port"),
        ("A (1/1); worker-3", "line 1: write the IP address"),
        ("A (1/1); 10.0.0.1\r\n", "line 1: write the IP address"),
        ("A (3/2); ::1", "line 1: i of '(i/n)' goes from 1 to n: 'A (3/2); ::1'"),
        ("A (0/2); ::1", "line 1: i of"),
        ("A (1/2); ::1\nA (2/3); ::1", "line 2: 'A' has 2 subtasks in line 1"),
        ("A (1/1); ::1\nA (1/1); ::2", "line 2: line 1 places the same subtask; delete one"),
    ],
)
def test_a_line_that_the_fork_would_misread_is_named(text: str, message: str) -> None:
    with pytest.raises(PermanentError) as error:
        load(text)
    assert str(error.value).startswith(f"cannot use as a schedulercfg, {message}")


def test_a_placement_takes_task_names_from_flink() -> None:
    answer = {
        "jid": "ee99de6cd0df7765aaa1906ed1808aa7",
        "vertices": [
            {"id": "a", "name": "Source: mqtt-source -> Map", "parallelism": 1},
            {"id": "b", "name": "Window -> Sink: Writer", "parallelism": 2},
        ],
    }
    tasks = {"A": tasks_of(answer), "B": (Task("Sink", 1),)}
    placement = Placement("milp", {"A": "edge", "t": "edge", "B": "edge"})
    subtasks = from_placement(placement, tasks, {"edge": ["10.0.0.1", "10.0.0.2", "10.0.0.3"]})
    assert dump(subtasks).splitlines() == [
        "Source: mqtt-source -> Map (1/1); 10.0.0.1",
        "Window -> Sink: Writer (1/2); 10.0.0.2",
        "Window -> Sink: Writer (2/2); 10.0.0.3",
        "Sink (1/1); 10.0.0.1",
    ]
    with pytest.raises(PermanentError, match="site edge has no TaskManager address"):
        from_placement(placement, tasks, {"edge": []})
