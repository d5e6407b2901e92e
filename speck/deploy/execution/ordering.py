"""Orders the steps of a plan, and queues the calls that are ready at each site.

Nothing here knows about time, errors or the store. The executor reports how each step ended and
gets the steps that this releases.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from speck.deploy.operations import Outcome
from speck.model.plan import Step


@dataclass(frozen=True, slots=True)
class AfterFailure:
    """The consequences of a failed step: steps to skip, since they need its success, and steps that
    are ready, since they only waited for its end."""

    skipped: list[int]
    ready: list[int]


class StepOrder:
    """Releases each step, once, when all steps before it are over.

    The total time of all calls is proportional to the number of dependencies of the plan.
    """

    def __init__(self, steps: Iterable[Step]):
        self._steps = {step.id: step for step in steps}
        self._missing = {step.id: len(step.after) for step in self._steps.values()}
        self._dependents: dict[int, list[int]] = {}
        for step in self._steps.values():
            for before in step.after:
                self._dependents.setdefault(before, []).append(step.id)
        self._unreleased = set(self._steps)
        self._not_awaited: set[tuple[int, int]] = set()
        """(step, dependent) where the dependent does not wait for the end any more."""

    def is_awaited(self, step_id: int) -> bool:
        """Whether other steps wait for the end of this one."""
        return step_id in self._dependents

    def release_first(self) -> list[int]:
        """The steps without predecessors, first those with the most dependents."""
        first = [step_id for step_id, missing in self._missing.items() if not missing]
        self._unreleased.difference_update(first)
        return sorted(first, key=lambda each: -len(self._dependents.get(each, ())))

    def skip_spared(self, step_id: int) -> list[int]:
        """Skip the steps that were planned only in case this one fails: it succeeded."""
        step_ids = [
            dependent
            for dependent in self._dependents.get(step_id, ())
            if self._steps[dependent].only_if_failed == step_id
        ]
        self._unreleased.difference_update(step_ids)
        return step_ids

    def release_after_success(self, step_id: int) -> list[int]:
        """The steps that may run now that this one has succeeded and its outcome is stored."""
        return self._count_down(step_id, self._dependents.get(step_id, ()))

    def release_impatient(self, step_id: int, blocked_s: float) -> list[int]:
        """The steps that go on though this one has not ended: its site has not answered for
        `blocked_s` seconds, and they wait for it only so long."""
        impatient = [
            dependent
            for dependent in self._dependents.get(step_id, ())
            if step_id in self._steps[dependent].whatever
            and (step_id, dependent) not in self._not_awaited
            and (limit_s := getattr(self._steps[dependent].operation, "limit_s", None)) is not None
            and blocked_s >= limit_s
        ]
        ready = self._count_down(step_id, impatient)
        self._not_awaited.update((step_id, dependent) for dependent in impatient)
        return ready

    def end_failed(self, step_id: int) -> AfterFailure:
        """Skip the steps that need the success of a failed step, directly or not."""
        result = AfterFailure([], [])
        step_ids = [step_id]
        while step_ids:
            failed_id = step_ids.pop()
            for dependent in self._dependents.get(failed_id, ()):
                if failed_id in self._steps[dependent].whatever:
                    result.ready.extend(self._count_down(failed_id, [dependent]))
                elif dependent in self._unreleased:
                    self._unreleased.discard(dependent)
                    result.skipped.append(dependent)
                    step_ids.append(dependent)
        return result

    def give_up(self) -> set[int]:
        """Release no further step; returns the steps that were not released."""
        unreleased, self._unreleased = self._unreleased, set()
        return unreleased

    def _count_down(self, step_id: int, dependents: Iterable[int]) -> list[int]:
        ready = []
        for dependent in dependents:
            if (step_id, dependent) in self._not_awaited:
                continue
            self._missing[dependent] -= 1
            if self._missing[dependent] == 0 and dependent in self._unreleased:
                self._unreleased.discard(dependent)
                ready.append(dependent)
        return ready


@dataclass(frozen=True, slots=True)
class Call:
    """A call to make for a step: to carry out its operation or, with `finish`, to end the wait that
    the operation began."""

    step_id: int
    finish: Callable[[], Outcome] | None = None


class ReadyCalls:
    """The calls that are ready, until their sites have capacity for them."""

    def __init__(self) -> None:
        self._at: dict[str, deque[Call]] = {}

    def __bool__(self) -> bool:
        return any(self._at.values())

    def add(self, site: str, call: Call) -> None:
        """Append a call to the queue of its site."""
        self._at.setdefault(site, deque()).append(call)

    def add_first(self, site: str, call: Call) -> None:
        """Put a call at the front of the queue of its site: what others have waited for begins
        before what waits for nothing."""
        self._at.setdefault(site, deque()).appendleft(call)

    def take(self, acquire: Callable[[str], bool], most: int) -> list[Call]:
        """Take the next calls, one of each site in turn, and at most `most`; `acquire` must grant a
        permit for each. The sites that had their turn come last the next time."""
        batch: list[Call] = []
        sites = deque(self._at)
        while sites and len(batch) < most:
            site = sites.popleft()
            calls = self._at.pop(site)
            self._at[site] = calls
            if calls and acquire(site):
                batch.append(calls.popleft())
                sites.append(site)
        return batch

    def drop_operations(self) -> set[int]:
        """Drop the calls that would begin an operation, but not those that end a wait. Returns the
        steps of the dropped calls."""
        step_ids: set[int] = set()
        for site, calls in self._at.items():
            step_ids |= {call.step_id for call in calls if call.finish is None}
            self._at[site] = deque(call for call in calls if call.finish is not None)
        return step_ids
