"""A plan: immutable data that states what will be done, in what order, and why.

`str(plan)` is deterministic. Tests compare it, the CLI prints it, and the API returns it as `text`:

    [] -> #1 reserve edge-a/T-1 for A: new reader
    [1] -> #2 start A on edge-a: not running
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, replace

from speck.model.job_change import Action, JobChange
from speck.model.job_operations import (
    Cancel,
    Carry,
    CatchUp,
    Fence,
    Forget,
    Return,
    Start,
    Stop,
    Switch,
    TryMain,
    Upload,
)
from speck.model.link_operations import Clear, Drain, HandOver, Release, Reserve
from speck.model.queue import DroppedQueue

Operation = (
    Upload
    | TryMain
    | Reserve
    | HandOver
    | Drain
    | Stop
    | Cancel
    | Fence
    | Carry
    | CatchUp
    | Switch
    | Start
    | Return
    | Release
    | Forget
    | Clear
)

Limited = Drain | Release | Forget | Clear
"""Operations that may have a limit, after which they are given up."""


@dataclass(frozen=True, slots=True)
class Step:
    """An operation, the steps that must have succeeded before it, and its reason.

    Steps of `after` that are in `whatever` need only be over, with any outcome; if the operation
    has a limit, a site that does not answer for so long does not hold it up either. A step with
    `only_if_failed` is skipped if the step of that id has succeeded.
    """

    id: int
    operation: Operation
    after: tuple[int, ...]
    reason: str
    whatever: frozenset[int] = frozenset()
    only_if_failed: int | None = None

    @property
    def sites(self) -> frozenset[str]:
        """All sites that it needs."""
        operation = self.operation
        sites = {operation.site}
        if isinstance(operation, CatchUp | Start | Return | TryMain):
            sites.update(operation.job.link_sites)
        elif isinstance(operation, Forget):
            sites.update(operation.link_sites)
        elif isinstance(operation, Carry):
            sites.add(operation.source)
        return frozenset(sites)

    def __str__(self) -> str:
        before = ",".join(map(str, self.after))
        return f"[{before}] -> #{self.id} {self.operation}: {self.reason}"


@dataclass(frozen=True, slots=True)
class Gate:
    """Stands before the next stage of a change. It opens when all steps of the stage before it are
    done; with `failed_too`, also when they have ended otherwise."""

    failed_too: bool = False

    def opens(self, *, done: bool) -> bool:
        """Whether the next stage begins after one that has ended, `done` or failed."""
        return done or self.failed_too


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that turn the observed state into the desired composition: one stage of a change.

    Behind the `gate` the next stage begins, which is planned from what is observed then (see
    `speck.deploy.planner.backlog`); the last stage has none. `queues` are those that it drops; a
    plan that drops any needs the user's consent. With consent, what the reader of a drain has not
    taken in `drain_limit_s` seconds is dropped as well. `reads` are the client ids of the sessions
    that it reads first. `reverts_to` is the revision whose jobs its steps bring back, before the
    next stage turns these into what is desired: those of the names in `reverting`, which may have
    to give way, too.
    """

    composition: str
    jobs: tuple[JobChange, ...]
    steps: tuple[Step, ...]
    gate: Gate | None = None
    queues: tuple[DroppedQueue, ...] = ()
    reads: frozenset[str] = frozenset()
    drain_limit_s: float | None = None
    reverts_to: int | None = None
    reverting: frozenset[str] = frozenset()

    @property
    def empty(self) -> bool:
        return not self.steps

    def summary(self) -> dict[str, int]:
        """Count the jobs by action; all five keys are always present."""
        counts = Counter(change.action for change in self.jobs)
        return {str(action): counts[action] for action in Action}

    def renumber_after(self, last: int) -> Plan:
        """Return the same plan with its step ids counted from `last` + 1."""
        steps = tuple(
            replace(
                step,
                id=step.id + last,
                after=tuple(before + last for before in step.after),
                whatever=frozenset(before + last for before in step.whatever),
                only_if_failed=None if step.only_if_failed is None else step.only_if_failed + last,
            )
            for step in self.steps
        )
        return replace(self, steps=steps)

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.queues, *self.steps)))
