from __future__ import annotations

from typing import Any

import pytest

from binders.process.engine import ProcessEngine
from binders.process.notes import find_notes
from binders.process.status import parse_status
from speck.binding import Target
from speck.errors import UnreachableError
from speck.model.observation import RunState, Slots

RUN: dict[str, Any] = {
    "label": "a",
    "name": "A",
    "state": "running",
    "width": 1,
    "saved": False,
    "step": 3,
    "at_ms": 5,
    "location": "file:///x",
    "failures": [],
    "triggers": {},
}
STATUS: dict[str, Any] = {
    "version": "process 1",
    "turn": 7,
    "slots": 4,
    "free": 3,
    "folder": "/x",
    "isolated": None,
    "memory_by": "watch",
    "artifacts": {},
    "runs": {"a": RUN},
}


def test_a_status_is_read() -> None:
    status = parse_status(STATUS)
    assert (status.turn, status.slots) == (7, Slots(4, 3))
    assert status.programs["a"].state is RunState.RUNNING


@pytest.mark.parametrize(
    "change",
    [
        {"turn": None},
        {"runs": [1]},
        {"runs": {"a": {**RUN, "state": "odd"}}},
        {"runs": {"a": {**RUN, "new": 1}}},
        {"slots": "many"},
    ],
)
def test_what_no_runner_writes_is_no_status(change: dict[str, Any]) -> None:
    with pytest.raises(UnreachableError, match=r"^cannot reach the runner of the site"):
        parse_status({**STATUS, **change})


def test_what_a_runner_cannot_do_is_a_note() -> None:
    assert [each.setting for each in find_notes(parse_status(STATUS))] == [
        "users of programs",
        "memory of programs",
    ]
    able = {**STATUS, "isolated": True, "memory_by": "group"}
    assert find_notes(parse_status(able)) == []


def test_without_an_agent_there_is_no_runner() -> None:
    with pytest.raises(UnreachableError, match="its site has no agent"):
        ProcessEngine(Target("")).view()


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        ("started\nValueError: x", "it ended with status 1: ValueError: x"),
        ("", "it ended with status 1"),
        (
            "java.lang.Error: a\n\tat a.B.c(B.java:1)\nCaused by: java.io.IOException: full\n"
            "\tat a.B.d(B.java:2)\n\t... 1 more\n",
            "it ended with status 1: Caused by: java.io.IOException: full",
        ),
        (
            "Traceback (most recent call last):\ncannot go on: full\n26/11/28 ERROR Hook: late\n",
            "it ended with status 1: cannot go on: full",
        ),
    ],
)
def test_the_reason_of_a_failure_is_the_line_that_says_most(log: str, reason: str) -> None:
    run = {**RUN, "failures": [[5, "it ended with status 1", log]]}
    (failure,) = parse_status({**STATUS, "runs": {"a": run}}).programs["a"].list_failures()
    assert failure.reason == reason
