"""The meaning of the states of an incarnation."""

from __future__ import annotations

from itertools import product

import pytest

from speck.model.incarnation import EndState, Incarnation, StartState
from tests.sample_job import JOB


def test_a_new_incarnation_is_requested_and_may_still_arrive() -> None:
    new = Incarnation(JOB, 1, "1" * 32)
    assert (new.start, new.end) == (StartState.REQUESTED, EndState.NONE)
    assert new.may_arrive


@pytest.mark.parametrize(("start", "end"), list(product(StartState, EndState)))
def test_each_question_is_answered_by_one_state(start: StartState, end: EndState) -> None:
    deployed = Incarnation(JOB, 1, "1" * 32, start, end)
    answers = (deployed.accepted, deployed.confirmed, deployed.void)
    assert sum(answers) == (start is not StartState.REQUESTED)
    assert not (deployed.stopping and deployed.ended)
    assert deployed.ended or not deployed.finished
    awaited = start is StartState.REQUESTED and not deployed.ended
    assert deployed.may_arrive == awaited
