"""What the executor does at the same time, how much of it, and what goes first."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from speck.deploy.execution import Bounds, executor
from speck.model.change import ChangeState
from speck.model.job_operations import Stop
from speck.model.plan import Operation
from tests.memory_fog import FAST
from tests.service_helpers import LIMIT_S, engine
from tests.unit.deploy.bench import DONE, SITES, Bench, join, start, states, upload
from tests.waiting import wait_for


class Gauge:
    """A hook that sees how many calls of a kind run at the same time."""

    def __init__(self, kind: str, meet: int) -> None:
        self.kind, self.now, self.most = kind, 0, 0
        self._meet = meet
        self._changed = threading.Condition()

    def __call__(self, kind: str, subject: str) -> None:
        if kind != self.kind:
            return
        with self._changed:
            self.now += 1
            self.most = max(self.most, self.now)
            self._changed.notify_all()
            # not a barrier: one call more than a multiple of `meet` would wait there alone
            assert self._changed.wait_for(lambda: self.most >= self._meet, LIMIT_S)
            self.now -= 1


def test_independent_operations_run_at_the_same_time(bench: Bench) -> None:
    meeting = threading.Barrier(6)
    for site in SITES:
        engine(site).before = lambda kind, subject: meeting.wait(LIMIT_S)
    change = bench.run(*((upload(site, jar), ()) for site in SITES for jar in "ab"))
    assert states(change) == [DONE] * 6
    assert change.state is ChangeState.DONE


def test_each_site_is_asked_for_so_much_at_once_and_no_more(bench: Bench) -> None:
    gauge = Gauge("upload", meet=3)
    engine("edge-a").before = gauge
    bounds = Bounds(per_site=3, poll_s=0.001)
    change = bench.run(*((upload("edge-a", jar), ()) for jar in "abcdefghi"), bounds=bounds)
    assert states(change) == [DONE] * 9
    assert gauge.most == 3


def test_what_ends_a_wait_is_bounded_too(bench: Bench) -> None:
    starts = [start(name) for name in "ABCDEFGHI"]
    bench.run(*((each, ()) for each in starts))
    gauge = Gauge("save_progress", meet=3)
    engine("edge-a").before = gauge
    engine("edge-a").hold_savepoints = True
    bounds = Bounds(per_site=3, poll_s=0.001)
    stops = [Stop("edge-a", each.job_name, 1, each.engine_job_id) for each in starts]
    execution, thread = bench.start(*((each, ()) for each in stops), bounds=bounds)
    wait_for(lambda: len(execution._waiting) == 9)
    engine("edge-a").let_go()
    join(thread)
    assert states(execution.change) == [DONE] * 9
    assert gauge.most == 3


def test_a_site_that_is_slow_does_not_hold_up_the_others(bench: Bench) -> None:
    stuck = threading.Event()
    for site in ("edge-a", "edge-b"):
        engine(site).before = lambda kind, subject: stuck.wait(LIMIT_S) and None
    slow = [(upload(site, jar), ()) for site in ("edge-a", "edge-b") for jar in "abcdefghijklmnop"]
    execution, thread = bench.start(*slow, (upload("cloud"), ()))
    wait_for(lambda: execution.change.operations[-1].state is DONE)
    stuck.set()
    join(thread)
    assert execution.change.state is ChangeState.DONE


def test_what_most_others_wait_for_goes_first(bench: Bench) -> None:
    steps = [(upload("edge-a", jar), ()) for jar in "bca"]
    change = bench.run(*steps, (start("A"), (3,)), (start("B"), (3,)), bounds=Bounds(per_site=1))
    assert states(change) == [DONE] * 5
    uploads = [subject[0] for kind, subject in engine("edge-a").calls if kind == "upload"]
    assert uploads == ["a", "b", "c"]


def test_the_loop_wakes_up_when_an_engine_is_to_be_polled(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(executor, "_IDLE_S", 10 * LIMIT_S)
    execution, thread = bench.start((upload("edge-a"), ()), (start("A"), (1,)))
    join(thread)
    assert states(execution.change) == [DONE, DONE]


@contextmanager
def a_slow_start(
    bench: Bench, *more: tuple[Operation, tuple[int, ...]]
) -> Iterator[Callable[[], int]]:
    """A start that takes its time at edge-a, a call that does at edge-b, and `more`; gives how
    often the engine of edge-a was looked at. All ends well with the block."""
    engine("edge-a").hold_starts = True
    stuck = threading.Event()
    engine("edge-b").before = lambda kind, subject: stuck.wait(LIMIT_S) and None
    steps = ((start("A"), ()), (upload("edge-b"), ()), *more)
    execution, thread = bench.start(*steps, bounds=replace(FAST, poll_calm_s=LIMIT_S))
    wait_for(lambda: 1 in execution._waiting)
    try:
        yield lambda: engine("edge-a").count("view")
    finally:
        stuck.set()
        engine("edge-a").let_go()
        join(thread)
    assert set(states(execution.change)) == {DONE}


def test_no_engine_is_asked_while_calls_are_under_way_and_nothing_waits_for_its_answer(
    bench: Bench,
) -> None:
    in_turn = [(upload("cloud", jar), (n - 1,)) for n, jar in enumerate("bcdefghi", 4)]
    with a_slow_start(bench, (upload("cloud"), ()), *in_turn) as looks:
        wait_for(lambda: engine("cloud").count("upload") == len(in_turn) + 1)
        assert looks() == 0


def test_an_engine_is_asked_for_what_other_steps_wait_for(bench: Bench) -> None:
    with a_slow_start(bench, (start("B"), (1,))) as looks:
        wait_for(lambda: looks() > 1)
