"""Which step may run next: the order of a plan's steps, and the calls that are ready at each site.

Nothing here knows about time, errors or the store. The executor reports how each step ended and
gets back the steps that this releases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from speck.deploy.operations import Outcome
from speck.model.plan import Step

TAKEN_AT_ONCE = 4
"""Calls taken from each site's queue before results are looked at again: a result may release
steps at other sites."""


@dataclass(frozen=True, slots=True)
class AfterFailure:
    """What the failure of a step means for others: those `skipped` need a success that will not
    come; those `ready` only waited for the end of their predecessors."""

    skipped: list[int]
    ready: list[int]


class StepOrder:
    """Releases each step, once, when all steps before it are over.

    All calls together take time in proportion to the number of dependencies of the plan.
    """

    def __init__(self, steps: Iterable[Step]):
        self._steps = {step.id: step for step in steps}
        self._missing = {step.id: len(step.after) for step in self._steps.values()}
        self._dependents: dict[int, list[int]] = {}
        for step in self._steps.values():
            for before in step.after:
                self._dependents.setdefault(before, []).append(step.id)
        self._unreleased = set(self._steps)

    def is_awaited(self, step_id: int) -> bool:
        """Whether other steps wait for the end of this one."""
        return step_id in self._dependents

    def release_first(self) -> list[int]:
        """The steps that wait for none; first the one for which most others wait."""
        first = [step_id for step_id, missing in self._missing.items() if not missing]
        self._unreleased.difference_update(first)
        return sorted(first, key=lambda each: -len(self._dependents.get(each, ())))

    def skip_spared(self, step_id: int) -> list[int]:
        """The steps that were planned only for the case that this one fails: it succeeded."""
        step_ids = [
            dependent
            for dependent in self._dependents.get(step_id, ())
            if self._steps[dependent].only_if_failed == step_id
        ]
        self._unreleased.difference_update(step_ids)
        return step_ids

    def release_after_success(self, step_id: int) -> list[int]:
        """The steps that may run now that this one has succeeded and its outcome is stored."""
        return self._count_down(self._dependents.get(step_id, ()))

    def end_failed(self, step_id: int) -> AfterFailure:
        """Skip what needs the success of a step, and what needs the success of that."""
        result = AfterFailure([], [])
        step_ids = [step_id]
        while step_ids:
            failed_id = step_ids.pop()
            for dependent in self._dependents.get(failed_id, ()):
                if failed_id in self._steps[dependent].whatever:
                    result.ready.extend(self._count_down([dependent]))
                elif dependent in self._unreleased:
                    self._unreleased.discard(dependent)
                    result.skipped.append(dependent)
                    step_ids.append(dependent)
        return result

    def give_up(self) -> set[int]:
        """Release no further step; returns those that were not released."""
        unreleased, self._unreleased = self._unreleased, set()
        return unreleased

    def _count_down(self, dependents: Iterable[int]) -> list[int]:
        ready = []
        for dependent in dependents:
            self._missing[dependent] -= 1
            if self._missing[dependent] == 0 and dependent in self._unreleased:
                self._unreleased.discard(dependent)
                ready.append(dependent)
        return ready


@dataclass(frozen=True, slots=True)
class Call:
    """A call to make for a step: its operation, or with `finish` what ends the wait that the
    operation began."""

    step_id: int
    finish: Callable[[], Outcome] | None = None


class ReadyCalls:
    """The calls that may be made as soon as their sites have room for them."""

    def __init__(self) -> None:
        self._at: dict[str, deque[Call]] = {}
        self.has_more = False
        """Whether the last `take` left calls behind at a site that had room."""

    def __bool__(self) -> bool:
        return any(self._at.values())

    def add(self, site: str, call: Call) -> None:
        """Queue a call behind the others of its site."""
        self._at.setdefault(site, deque()).append(call)

    def add_first(self, site: str, call: Call) -> None:
        """Queue a call before the others of its site."""
        self._at.setdefault(site, deque()).appendleft(call)

    def take(self, acquire: Callable[[str], bool]) -> list[Call]:
        """The next calls of each site, `TAKEN_AT_ONCE` at most; `acquire` is asked for the room
        for each of them."""
        batch: list[Call] = []
        self.has_more = False
        for site, calls in self._at.items():
            for _ in range(min(len(calls), TAKEN_AT_ONCE)):
                if not acquire(site):
                    break
                batch.append(calls.popleft())
            else:
                self.has_more |= bool(calls)
        return batch

    def drop_operations(self) -> set[int]:
        """Drop the calls that would begin an operation; those that end a wait stay. Returns the
        steps of those dropped."""
        step_ids: set[int] = set()
        for site, calls in self._at.items():
            step_ids |= {call.step_id for call in calls if call.finish is None}
            self._at[site] = deque(call for call in calls if call.finish is not None)
        return step_ids
