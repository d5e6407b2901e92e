"""Figure 6: order of the ways, and when bare calls give up."""

from __future__ import annotations

from typing import Any

import pytest

from bench import chains
from bench.chains import Bare
from bench.fig6 import MOST, Series, _ratio, ways_of


def test_each_way_is_as_often_before_another_as_after_it() -> None:
    series = Series("wan", {}, (1,), 10, 2)
    orders = [ways_of(series, n) for n in range(1, 11)]
    first = [order.index("speck") < order.index("floor") for order in orders]
    assert first.count(True) == first.count(False)
    slow = [order.index("one_by_one") == 0 for order in orders if "one_by_one" in order]
    assert slow == [False, True]


def test_one_slow_floor_makes_no_figure() -> None:
    rows = [
        {"way": way, "round": n, "deploy_s": {str(MOST): seconds}}
        for n, floor in enumerate((1.0, 1.0, 10.0))
        for way, seconds in (("speck", 1.2), ("floor", floor))
    ]
    ratios = _ratio(rows, "deploy")
    assert ratios["median"] == 1.2
    assert ratios["mean"] < 1.0


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> Bare:
    monkeypatch.setattr(chains, "MOST_S", 0.2)
    driver = Bare.__new__(Bare)
    driver.engines = {"edge-a": "http://127.0.0.1:1"}
    driver.running = {"job-1": ("a1", {"site": "edge-a"})}
    return driver


def answers(bare: Bare, jobs: list[dict[str, Any]]) -> None:
    class Http:
        def get(self, *_: object, **__: object) -> Http:
            return self

        def json(self) -> dict[str, Any]:
            return {"jobs": jobs}

    bare.http = Http()  # type: ignore[assignment]


def test_a_job_that_fails_ends_the_wait(bare: Bare) -> None:
    tasks = {"total": 1, "running": 0}
    answers(bare, [{"jid": "a1", "name": "job-1", "state": "FAILED", "tasks": tasks}])
    with pytest.raises(RuntimeError, match="job-1 is FAILED"):
        bare.await_running()


def test_a_wait_for_what_never_comes_ends(bare: Bare) -> None:
    answers(bare, [])
    with pytest.raises(RuntimeError, match="cannot see all jobs run"):
        bare.await_running()
