"""Figure 6: order of the ways, and when bare calls give up."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from bench import chains
from bench.chains import Bare, Chain
from bench.fig6 import MOST, Series, _of_a_deployment, _ratio, compare_deletion, ways_of


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
    ratios = _ratio(rows, "deploy", MOST)
    assert ratios["median"] == 1.2
    assert ratios["mean"] < 1.0


def test_a_change_is_compared_with_the_deployment_of_its_round() -> None:
    rows = [
        {"way": "speck", "round": n, "deploy_s": {str(MOST): 1.0 * n}, "move_s": {str(MOST): 1.5}}
        for n in (1, 2, 3)
    ]
    assert _of_a_deployment(rows, "move")["median"] == 0.75


def test_a_deletion_is_compared_with_a_floor_that_ends_the_sessions_too() -> None:
    jobs = str(MOST)
    rows: list[dict[str, Any]] = [
        {"way": "speck", "round": 1, "delete_s": {jobs: 1.2}},
        {"way": "floor", "round": 1, "delete_s": {jobs: 0.75}, "release_s": {jobs: 0.25}},
        {"way": "one_by_one", "round": 1, "delete_s": {jobs: 3.0}},
    ]
    deletion = compare_deletion(rows, MOST)
    assert deletion["floor_released_s"]["mean"] == 1.0
    assert deletion["ratio_released"]["median"] == 1.2
    assert deletion["lead"]["median"] == 2.5


@pytest.fixture
def chain() -> Chain:
    return Chain(["a", "b", "a", "b", "a"], ["a", "b", "a", "b"], ["a", "b"], ["first"] * 4)


def test_a_moved_job_keeps_its_links(chain: Chain) -> None:
    before = chain.jobs()
    chain.move(2)
    after = chain.jobs()
    assert [job["site"] for job in after] == ["b", "a", "a", "b"]
    moved = [old | {"site": new["site"]} for old, new in zip(before, after, strict=True)]
    assert moved == after


def test_half_of_the_jobs_that_an_insertion_changes_are_new(chain: Chain) -> None:
    before = {job["job_name"]: job for job in chain.jobs()}
    chain.insert(4)
    after = chain.jobs()
    changed = [job["job_name"] for job in after if before.get(job["job_name"]) != job]
    assert changed == ["job-001", "job-001-next", "job-002", "job-002-next"]
    for producer, reader in pairwise(after):
        ends = [producer[f"sink_{part}"] for part in ("site", "topic")]
        assert ends == [reader[f"source_{part}"] for part in ("site", "topic")]


def test_the_floor_starts_a_job_once_its_former_run_is_gone(bare: Bare) -> None:
    started: list[str] = []
    bare.jars, cancelled = {"edge-a": "jar"}, list[str]()
    bare.cancel = cancelled.append  # type: ignore[method-assign,assignment]

    def run(_jar: str, job: dict[str, Any]) -> None:
        started.append(job["job_name"])
        bare.running["job-1"] = ("a2", job)
        tasks = {"total": 1, "running": 1}
        answers(bare, [{"jid": "a2", "name": "job-1", "state": "RUNNING", "tasks": tasks}])

    bare.run = run  # type: ignore[method-assign,assignment]
    answers(bare, [{"jid": "a1", "name": "job-1", "state": "CANCELED"}])
    bare.replace([{"job_name": "job-1", "site": "edge-a"}])
    assert (cancelled, started) == (["job-1"], ["job-1"])


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
