"""What the stages that make steps hand on: the steps, and where to find them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from speck.model.job import Job
from speck.model.link import Link
from speck.model.plan import Operation, Step

K = TypeVar("K")
Numbers = Iterator[int]
"""The ids of the steps of a plan, in the order in which these are made."""


class StepList:
    """Steps, numbered as they are added. Each belongs to the function that fills it."""

    def __init__(self, numbers: Numbers):
        self._numbers = numbers
        self._steps: list[Step] = []

    def add(
        self,
        operation: Operation,
        after: Iterable[int],
        reason: str,
        whatever: frozenset[int] = frozenset(),
        only_if_failed: int | None = None,
    ) -> int:
        """Add a step and return its id."""
        step_id = next(self._numbers)
        before = tuple(sorted(set(after)))
        self._steps.append(Step(step_id, operation, before, reason, whatever, only_if_failed))
        return step_id

    def listed(self) -> tuple[Step, ...]:
        return tuple(self._steps)


@dataclass(frozen=True)
class Reserved:
    """The steps that reserve sessions."""

    steps: tuple[Step, ...] = ()
    of: Mapping[str, int] = field(default_factory=dict)
    """By client id."""
    on: Mapping[Link, tuple[int, ...]] = field(default_factory=dict)
    made_anew: Mapping[Link, tuple[int, ...]] = field(default_factory=dict)
    """Those of sessions whose records were taken at another link."""

    def joined(self, other: Reserved) -> Reserved:
        """These and others."""
        return Reserved(
            self.steps + other.steps,
            {**self.of, **other.of},
            _join(self.on, other.on),
            _join(self.made_anew, other.made_anew),
        )


@dataclass(frozen=True)
class Stopped:
    """The steps in which jobs stop."""

    steps: tuple[Step, ...]
    of: Mapping[str, int]
    """The last of them by job: after it the job has taken all that it is to take."""
    drains_of: Mapping[str, tuple[int, ...]]
    """Steps that need the last number of a sink, by its client id."""
    uploads: Mapping[tuple[str, str], int]
    """Those that bring an artifact to a site."""


@dataclass(frozen=True)
class HandedOver:
    """The steps in which readers get their places on links, by client id."""

    steps: tuple[Step, ...] = ()
    of: Mapping[str, int] = field(default_factory=dict)

    def joined(self, other: HandedOver) -> HandedOver:
        """These and others."""
        return HandedOver(self.steps + other.steps, {**self.of, **other.of})


@dataclass(frozen=True)
class Before:
    """What comes before starts."""

    reserved: Reserved
    stopped: Stopped
    handed_over: HandedOver


@dataclass(frozen=True)
class Started:
    """The steps in which jobs start."""

    steps: tuple[Step, ...] = ()
    of: Mapping[str, int] = field(default_factory=dict)
    """By job."""
    readers: Mapping[str, int] = field(default_factory=dict)
    """By the client id with which the job reads."""
    jobs: Mapping[str, Job] = field(default_factory=dict)
    """What starts there, by the same."""


@dataclass(frozen=True)
class Released:
    """The steps that release sessions."""

    steps: tuple[Step, ...] = ()
    of: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By the job that reads."""
    on: Mapping[Link, tuple[int, ...]] = field(default_factory=dict)
    """Each counts what it drops by the numbers of the link's sinks."""

    @classmethod
    def gathered(cls, parts: Iterable[Released]) -> Released:
        """All of these."""
        steps, of, on = (
            list[Step](),
            defaultdict[str, list[int]](list),
            defaultdict[Link, list[int]](list),
        )
        for part in parts:
            steps += part.steps
            for name, step_ids in part.of.items():
                of[name] += step_ids
            for link, step_ids in part.on.items():
                on[link] += step_ids
        by_job = {name: tuple(step_ids) for name, step_ids in of.items()}
        return cls(tuple(steps), by_job, {link: tuple(step_ids) for link, step_ids in on.items()})

    def joined(self, other: Released) -> Released:
        """These and others."""
        steps = self.steps + other.steps
        return Released(steps, _join(self.of, other.of), _join(self.on, other.on))


def _join(
    one: Mapping[K, tuple[int, ...]], other: Mapping[K, tuple[int, ...]]
) -> dict[K, tuple[int, ...]]:
    return {key: one.get(key, ()) + other.get(key, ()) for key in [*one, *other]}


def ids(step_ids: Iterable[int | None]) -> tuple[int, ...]:
    """The ids that are not None."""
    return tuple(step for step in step_ids if step is not None)
