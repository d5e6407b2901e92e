"""Steps that wait for an engine, and when it is asked. No time passes here."""

from __future__ import annotations

import math
from collections.abc import Mapping

from speck.deploy.execution.bounds import Bounds
from speck.deploy.execution.waiting import PAUSE_POLLS, PollSchedule, WaitingSteps
from speck.deploy.operations import Done, Waiting
from speck.model.engines import ArtifactKind, EngineAt
from speck.model.observation import EngineJob

EDGE_A, EDGE_B, CLOUD = (EngineAt(s, ArtifactKind.JAR) for s in ("edge-a", "edge-b", "cloud"))
BESIDE = EngineAt("edge-a", ArtifactKind.TEXT)
BOUNDS = Bounds(poll_s=1.0, poll_most_s=8.0, poll_calm_s=20.0)


class Answer:
    """What a step waits for; a test says when it is there."""

    def __init__(self) -> None:
        self.is_there = False

    def seen_in(self, jobs: Mapping[str, EngineJob]) -> bool:
        return self.is_there


def waiting(
    engine: EngineAt | None = EDGE_A,
    limit_s: float = 10.0,
    answer: Answer | None = None,
    *,
    may_be_left: bool = False,
) -> Waiting:
    states = (answer or Answer()).seen_in
    return Waiting(engine, states, Done, limit_s, lambda: "cannot wait longer", may_be_left)


def test_a_step_waits_until_its_answer_is_there() -> None:
    steps, answer = WaitingSteps(), Answer()
    expected = waiting(answer=answer)
    steps.add(1, expected, 0.0, awaited=False)
    steps.add(2, waiting(), 0.0, awaited=False)
    assert steps.take_ready(EDGE_A, {}) == []
    answer.is_there = True
    assert steps.take_ready(EDGE_B, {}) == []
    assert steps.take_ready(EDGE_A, {}) == [(1, expected)]
    assert 1 not in steps
    assert 2 in steps


def test_steps_that_wait_for_no_engine_have_none_to_ask() -> None:
    steps, answer = WaitingSteps(), Answer()
    steps.add(1, waiting(None, answer=answer), 0.0, awaited=True)
    assert steps.engines == []
    answer.is_there = True
    assert [step_id for step_id, _ in steps.take_ready(None, {})] == [1]
    assert not steps


def test_the_engines_to_ask_are_those_of_the_steps_that_wait() -> None:
    steps = WaitingSteps()
    for step_id, engine in enumerate((EDGE_A, EDGE_A, CLOUD, None)):
        steps.add(step_id, waiting(engine), 0.0, awaited=engine == CLOUD)
    assert steps.engines == [EDGE_A, CLOUD]
    assert steps.steps_at(EDGE_A) == [0, 1]
    assert [steps.is_awaited(engine) for engine in (EDGE_A, CLOUD)] == [False, True]
    steps.remove(2)
    assert steps.engines == [EDGE_A]
    assert not steps.has_any_at(CLOUD)
    assert not steps.is_awaited(CLOUD)


def test_a_step_is_overdue_after_its_limit() -> None:
    steps = WaitingSteps()
    steps.add(1, waiting(limit_s=10.0), 100.0, awaited=False)
    steps.add(2, waiting(limit_s=50.0), 100.0, awaited=False)
    assert steps.take_overdue(110.0) == []
    assert [step_id for step_id, _ in steps.take_overdue(110.1)] == [1]
    assert [step_id for step_id, _ in steps.take_overdue(150.1)] == [2]
    assert steps.take_overdue(1e9) == []


def test_the_time_of_silence_does_not_count() -> None:
    steps = WaitingSteps()
    steps.add(1, waiting(limit_s=10.0), 0.0, awaited=False)
    assert steps.record_silence(EDGE_A) == [1]
    assert steps.take_overdue(1_000.0) == []
    assert steps.record_answer(EDGE_A, 1_000.0) == [1]
    assert steps.record_answer(EDGE_A, 1_001.0) == [], "it answers all along"
    assert steps.take_overdue(1_010.0) == []
    assert [step_id for step_id, _ in steps.take_overdue(1_010.1)] == [1]


def test_only_what_has_begun_something_at_a_site_that_answers_is_waited_for() -> None:
    steps = WaitingSteps()
    steps.add(1, waiting(EDGE_A), 0.0, awaited=False)
    steps.add(2, waiting(EDGE_B), 0.0, awaited=False)
    steps.add(3, waiting(None, may_be_left=True), 0.0, awaited=False)
    steps.record_silence(EDGE_B)
    assert steps.give_up(everything=False) == {2, 3}
    assert steps.give_up(everything=True) == {1}
    assert not steps


def test_the_pauses_between_looks_grow_up_to_the_longest() -> None:
    schedule, now, pauses = PollSchedule(BOUNDS), 0.0, []
    schedule.begin(EDGE_A, now)
    for _ in range(15):
        began = now
        while not schedule.take_due([EDGE_A], [], now)[0]:
            now += 0.125
        pauses.append(now - began)
        schedule.end(EDGE_A, now, took_s=0.0, ended_waits=False)
    assert pauses == sorted(pauses)
    assert pauses[:3] == [1.0, 1.25, 1.5]
    assert pauses[-1] == 8.0


def test_the_pause_is_short_again_after_a_look_that_ended_a_wait() -> None:
    schedule = PollSchedule(BOUNDS)
    schedule.begin(EDGE_A, 0.0)
    for now in (10.0, 20.0, 30.0):
        assert schedule.take_due([EDGE_A], [], now)[0] == [EDGE_A]
        schedule.end(EDGE_A, now, took_s=0.0, ended_waits=now == 30.0)
    assert schedule.take_due([EDGE_A], [], 31.0)[0] == [EDGE_A]


def test_an_engine_whose_answers_take_longer_than_they_did_is_asked_less_often() -> None:
    schedule = PollSchedule(BOUNDS)
    schedule.begin(EDGE_A, 0.0)
    assert schedule.take_due([EDGE_A], [], 1.0)[0]
    schedule.end(EDGE_A, 2.5, took_s=1.5, ended_waits=True)
    assert schedule.take_due([EDGE_A], [], 3.5) == ([], 4.0), "it is far away"
    assert schedule.take_due([EDGE_A], [], 4.0)[0]
    schedule.end(EDGE_A, 7.0, took_s=3.0, ended_waits=True)
    due_at = 7.0 + PAUSE_POLLS * (3.0 - 1.5)
    assert schedule.take_due([EDGE_A], [], due_at - 0.1) == ([], due_at)
    assert schedule.take_due([EDGE_A], [], due_at)[0]


def test_a_poll_without_an_answer_does_not_make_later_ones_slow() -> None:
    schedule = PollSchedule(BOUNDS)
    schedule.begin(EDGE_A, 0.0)
    assert schedule.take_due([EDGE_A], [], 1.0)[0]
    schedule.end(EDGE_A, 1.0, took_s=0.0, ended_waits=False, answered=False)
    assert schedule.take_due([EDGE_A], [], 3.0)[0]
    schedule.end(EDGE_A, 5.0, took_s=2.0, ended_waits=True)
    assert schedule.take_due([EDGE_A], [], 6.0) == ([], 7.0)


def test_no_engine_is_asked_twice_at_a_time() -> None:
    schedule = PollSchedule(BOUNDS)
    for engine in (EDGE_A, EDGE_B):
        schedule.begin(engine, 0.0)
    assert schedule.take_due([EDGE_A], [], 5.0) == ([EDGE_A], math.inf)
    assert schedule.take_due([EDGE_A, EDGE_B], [], 100.0) == ([EDGE_B], math.inf)


def test_the_next_look_is_at_the_engine_that_is_due_first() -> None:
    schedule = PollSchedule(BOUNDS)
    schedule.begin(EDGE_A, 0.0)
    schedule.begin(EDGE_B, 0.25)
    assert schedule.take_due([EDGE_A, EDGE_B], [], 0.5) == ([], 1.0)
    assert schedule.take_due([EDGE_A, EDGE_B], [EDGE_A], 0.5) == ([], 1.25)
    assert schedule.take_due([EDGE_A, EDGE_B], [], 1.0) == ([EDGE_A], 1.25)


def test_where_nothing_else_waits_for_the_answer_an_engine_is_left_in_peace() -> None:
    schedule = PollSchedule(BOUNDS)
    schedule.begin(EDGE_A, 0.0)
    assert schedule.take_due([EDGE_A], [EDGE_A], 19.0) == ([], 20.0)
    assert schedule.take_due([EDGE_A], [EDGE_A], 20.0)[0]


def test_engines_at_one_site_answer_and_are_silent_on_their_own() -> None:
    steps = WaitingSteps()
    steps.add(1, waiting(EDGE_A), 0.0, awaited=False)
    steps.add(2, waiting(BESIDE), 0.0, awaited=False)
    assert steps.record_silence(EDGE_A) == [1]
    assert [step_id for step_id, _ in steps.take_overdue(11.0)] == [2]
