"""Tasks of which some fail: the others are run all the same."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial

from speck.errors import BrokerRefusedError
from speck.monitor.attempts import MOST_FAILURES, Attempts, Task, TaskName


class Site:
    def __init__(self) -> None:
        self.done: list[str] = []
        self.failing: Collection[str] = ()

    def tasks(self, *names: str) -> dict[TaskName, Task]:
        return {(name,): partial(self.do, name) for name in names}

    def do(self, name: str) -> None:
        self.done.append(name)
        if name == "broken":
            raise ValueError(name)
        if name in self.failing:
            raise BrokerRefusedError(name)


def test_a_task_that_fails_leaves_the_others_alone_and_is_last_the_next_time() -> None:
    site, attempts = Site(), Attempts()
    site.failing = "a"
    attempts.run("edge", site.tasks("broken", "a", "b", "c"))
    assert site.done == ["broken", "a", "b", "c"]
    site.failing = ()
    attempts.run("edge", site.tasks("a", "b", "c"))
    assert site.done[4:] == ["b", "c", "a"]
    attempts.run("edge", site.tasks("a", "b", "c"))
    assert site.done[7:] == ["a", "b", "c"]


def test_each_task_has_its_turn_however_many_fail() -> None:
    site, attempts = Site(), Attempts()
    names = "abcdefg"
    site.failing = names[:-1]
    for _ in range(2):
        attempts.run("edge", site.tasks(*names))
        attempts.run("other", site.tasks())
    assert len(site.done) == 2 * MOST_FAILURES
    attempts.run("edge", site.tasks(*names))
    assert set(site.done) == set(names)
