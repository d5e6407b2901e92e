"""Requests to a running change, and their effect."""

from __future__ import annotations

from typing import cast

import pytest

from speck.clock import SystemClock
from speck.deploy.changes import Running
from speck.deploy.execution import Execution
from speck.model.change import Change, ChangeState
from speck.model.plan import Gate, Plan


class Calls:
    """An execution that only records its calls."""

    failure = None

    def __init__(self) -> None:
        self.calls: list[str] = []

    def cancel(self) -> None:
        self.calls.append("cancel")

    def halt(self) -> None:
        self.calls.append("halt")


def running(calls: Calls | None, state: ChangeState = ChangeState.RUNNING) -> Running:
    change = Change("1", Plan("c", (), ()), 1, "", state=state, leave=frozenset("AB"))
    return Running(change, "c", SystemClock(), cast(Execution, calls) if calls else None)


def test_an_execution_is_asked_to_end_or_to_halt() -> None:
    ended, halted = Calls(), Calls()
    running(ended).end_early()
    running(halted).halt()
    assert (ended.calls, halted.calls) == (["cancel"], ["halt"])


@pytest.mark.parametrize("wish", ["end_early", "halt"])
def test_what_was_asked_while_it_is_planned_anew_is_not_forgotten(wish: str) -> None:
    planned = running(None)
    getattr(planned, wish)()
    assert not planned.take_up(cast(Execution, Calls()))
    assert planned.execution is None


def test_a_blocked_change_begins_anew_and_leaves_fewer_jobs_alone() -> None:
    calls = Calls()
    blocked = running(calls, ChangeState.BLOCKED)
    blocked.ask_to_begin_anew(frozenset("BC"))
    assert calls.calls == ["halt"]
    assert blocked.change.leave == frozenset("B")
    assert blocked.put_down()
    assert blocked.execution is None
    assert blocked.take_up(cast(Execution, Calls()))
    assert blocked.is_resumed
    assert not blocked.put_down(), "it was asked once"


@pytest.mark.parametrize("state", [ChangeState.RUNNING, ChangeState.DONE])
def test_a_change_that_is_not_blocked_does_not_begin_anew(state: ChangeState) -> None:
    calls = Calls()
    other = running(calls, state)
    other.ask_to_begin_anew(frozenset())
    assert calls.calls == []
    assert other.change.leave == frozenset("AB")
    assert not other.put_down()


def test_a_change_that_is_to_end_does_not_begin_anew() -> None:
    calls = Calls()
    blocked = running(calls, ChangeState.BLOCKED)
    blocked.end_early()
    blocked.ask_to_begin_anew(frozenset())
    assert calls.calls == ["cancel"]
    assert not blocked.put_down()


def test_a_change_whose_plan_has_a_gate_is_planned_once_more() -> None:
    change = Change("1", Plan("c", (), (), gate=Gate()), 1, "", state=ChangeState.DONE)
    change_run = Running(change, "c", SystemClock(), cast(Execution, Calls()))
    assert change_run.put_down()
    assert change.state is ChangeState.RUNNING
    assert not change.plan.gate


def test_the_gate_to_the_next_stage_opens_when_this_one_is_done_or_may_fail() -> None:
    def has_next(gate: Gate | None, state: ChangeState) -> bool:
        return Change("1", Plan("c", (), (), gate=gate), 1, "", state=state).has_next_stage

    assert has_next(Gate(), ChangeState.DONE)
    assert not has_next(Gate(), ChangeState.FAILED)
    assert has_next(Gate(failed_too=True), ChangeState.FAILED)
    for ended in (ChangeState.BLOCKED, ChangeState.CANCELLED, ChangeState.RUNNING):
        assert not has_next(Gate(failed_too=True), ended)
    assert not has_next(None, ChangeState.DONE)
