"""A change: one execution of a plan, with every operation's outcome."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import Annotated

from speck.model.composition import composition_of_one, job_posted_alone, visible_name
from speck.model.plan import Plan, Step
from speck.model.plan_outline import (
    OperationOutcome,
    OperationOutline,
    OperationState,
    QueueOutline,
)
from speck.model.shown import Shown


class ChangeState(StrEnum):
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        return self in (ChangeState.DONE, ChangeState.FAILED, ChangeState.CANCELLED)


class Cause(StrEnum):
    """Why a change was made. A repair brings back jobs of a revision that was accepted before."""

    APPLY = "apply"
    ROLLBACK = "rollback"
    REMOVE = "remove"
    REPAIR = "repair"


OperationKey = tuple[str, str | None, str]
"""(kind, job name, site) of an operation."""


@dataclass(slots=True)
class OperationRecord:
    """The outcome of one step. Times are RFC 3339. `attempts` counts calls, retries included.
    `progress` describes how far a long operation has got."""

    step: Step
    state: OperationState = OperationState.PENDING
    started: str | None = None
    ended: str | None = None
    attempts: int = 0
    error: str | None = None
    progress: str | None = None

    def outcome(self) -> OperationOutcome:
        """What is stored and shown of it."""
        outline = OperationOutline.of(self.step)
        return OperationOutcome(
            **{each.name: getattr(outline, each.name) for each in fields(outline)},
            state=self.state,
            started=self.started,
            ended=self.ended,
            attempts=self.attempts,
            error=self.error,
            progress=self.progress,
        )


@dataclass(frozen=True, slots=True)
class ChangeHead:
    """A change without its operations, as it is stored and shown."""

    id: str
    composition: Annotated[str | None, Shown("null for a job posted alone")]
    job_name: Annotated[str | None, Shown("name of a job posted alone, else null")]
    revision: int | None
    cause: Annotated[
        Cause, Shown("what started the change; a repair restores the accepted revision")
    ]
    by: Annotated[str | None, Shown("name of the token that requested it")]
    drop_queues: Annotated[bool, Shown("whether queues may be dropped")]
    drain_limit_s: Annotated[
        float | None,
        Shown("with drop_queues: for how long a job is drained; null: as the service is set up"),
    ]
    leave: Annotated[tuple[str, ...], Shown("jobs that the repair does not touch")]
    left_stopped: Annotated[tuple[str, ...], Shown("jobs that the superseded change stopped")]
    state: ChangeState
    started: str
    ended: str | None = None
    error: str | None = None
    superseded_by: Annotated[str | None, Shown("id of the change that replaced it")] = None
    dropped: tuple[QueueOutline, ...] = ()
    reverts_to: Annotated[
        int | None,
        Shown("revision that it brings back first, since the change before it ended early"),
    ] = None
    reverting: Annotated[
        tuple[str, ...], Shown("the jobs concerned, also those that give way")
    ] = ()

    @property
    def scope(self) -> str:
        """The name of its composition, hidden for a job posted alone."""
        return self.composition or composition_of_one(self.job_name or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeReport(ChangeHead):
    """A change with its operations, those of its previous plans first."""

    operations: tuple[OperationOutcome, ...]

    @classmethod
    def of(cls, head: ChangeHead, operations: Iterable[OperationOutcome]) -> ChangeReport:
        known = {each.name: getattr(head, each.name) for each in fields(ChangeHead)}
        return cls(**known, operations=tuple(operations))


@dataclass(slots=True)
class Change:
    """One execution of `plan`.

    Its purpose is stored with it, so that a service that was stopped in the middle can plan it
    anew: its `cause` and `revision`, whether it may `drop_queues`, after draining each reader for
    `drain_limit_s` seconds (None: as the service is set up), and the jobs that it must `leave`
    alone. `dropped` are the queues that it has dropped. `earlier` are the operations of its
    previous plans, as they were stored.
    `left_stopped` are the jobs that the superseded change had stopped and not started again.
    `reverts_to` is the revision that it brings back before it begins with its own, `reverting` are
    the jobs concerned.
    `has_read` are the client ids of the sessions that its previous plans have read first; after a
    restart of the service they are read once more.
    """

    id: str
    plan: Plan
    revision: int | None
    started: str
    state: ChangeState = ChangeState.RUNNING
    ended: str | None = None
    error: str | None = None
    superseded_by: str | None = None
    operations: list[OperationRecord] = field(default_factory=list)
    cause: Cause = Cause.APPLY
    by: str | None = None
    drop_queues: bool = False
    drain_limit_s: float | None = None
    leave: frozenset[str] = frozenset()
    left_stopped: frozenset[str] = frozenset()
    reverts_to: int | None = None
    reverting: frozenset[str] = frozenset()
    earlier: list[OperationOutcome] = field(default_factory=list)
    has_read: frozenset[str] = frozenset()
    dropped: list[QueueOutline] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.operations:
            self.operations = [OperationRecord(step) for step in self.plan.steps]

    @classmethod
    def from_store(cls, stored: ChangeReport) -> Change:
        """A stored change without its plan; operations that had not ended are cancelled."""
        return cls(
            id=stored.id,
            plan=Plan(stored.scope, (), ()),
            revision=stored.revision,
            started=stored.started,
            cause=stored.cause,
            by=stored.by,
            drop_queues=stored.drop_queues,
            drain_limit_s=stored.drain_limit_s,
            leave=frozenset(stored.leave),
            left_stopped=frozenset(stored.left_stopped),
            reverts_to=stored.reverts_to,
            reverting=frozenset(stored.reverting),
            earlier=[_cancel_unless_over(operation) for operation in stored.operations],
            dropped=list(stored.dropped),
        )

    def go_on(self, plan: Plan) -> None:
        """Continue with a new plan. Its steps are numbered after the earlier ones; operations of
        the previous plan that had begun are kept in `earlier`."""
        begun = (o.outcome() for o in self.operations if o.attempts or o.state.over)
        self.earlier += [_cancel_unless_over(operation, ANEW) for operation in begun]
        self.plan = plan.renumber_after(max((o.id for o in self.earlier), default=0))
        if plan.reverts_to != self.reverts_to:
            self.reverts_to, self.has_read = plan.reverts_to, frozenset()
        self.reverting = plan.reverting
        self.operations = [OperationRecord(step) for step in self.plan.steps]

    def begin_next_part(self) -> None:
        """Close the plan that was carried out; another plan follows."""
        self.earlier += [operation.outcome() for operation in self.operations]
        if self.state is ChangeState.FAILED or self.plan.empty:
            # what cannot be brought back, or no further, is not tried again
            self.reverts_to, self.reverting = None, frozenset()
        self.state, self.ended, self.error = ChangeState.RUNNING, None, None
        self.operations = []
        self.has_read |= self.plan.reads
        self.plan = Plan(self.plan.composition, (), ())

    def find_begun_before(self) -> dict[OperationKey, str]:
        """When (RFC 3339) the operations were begun first that its earlier plans have not ended:
        those of a service that was stopped, or of a plan that was replaced."""
        begun: dict[OperationKey, str] = {}
        for each in self.earlier:
            key = (each.kind, each.job_name, each.site or "")
            if each.state is OperationState.DONE:
                begun.pop(key, None)
            elif each.started is not None:
                begun.setdefault(key, each.started)
        return begun

    def abandon(self) -> None:
        """End as cancelled, with all operations that have not ended."""
        self.state = ChangeState.CANCELLED
        for operation in self.operations:
            if not operation.state.over:
                operation.state, operation.error = OperationState.CANCELLED, ABANDONED

    @property
    def has_next_stage(self) -> bool:
        """Whether it has ended a stage and the gate to the next one opens."""
        if self.state not in (ChangeState.DONE, ChangeState.FAILED) or self.plan.gate is None:
            return False
        return self.plan.gate.opens(done=self.state is ChangeState.DONE)

    @property
    def stopped(self) -> frozenset[str]:
        """Jobs that it, or the change that it superseded, has stopped and not started since."""
        stopped = set(self.left_stopped)
        for operation in self.outcomes():
            name = operation.job_name
            if not operation.attempts or name is None:
                continue
            if operation.kind in ("stop", "cancel"):
                stopped.add(name)
            elif operation.kind in ("start", "return") and operation.state is OperationState.DONE:
                stopped.discard(name)
        return frozenset(stopped)

    @property
    def readers_stopped(self) -> frozenset[str]:
        """All jobs that it has stopped itself, also those that run again, elsewhere maybe."""
        return frozenset(
            operation.job_name
            for operation in self.outcomes()
            if operation.job_name and operation.attempts and operation.kind in ("stop", "cancel")
        )

    @property
    def composition(self) -> str:
        return self.plan.composition

    def outcomes(self) -> list[OperationOutcome]:
        """All its operations, those of its previous plans first."""
        return [*self.earlier, *(operation.outcome() for operation in self.operations)]

    def head(self) -> ChangeHead:
        """What is stored and shown of it, without its operations."""
        return ChangeHead(
            id=self.id,
            composition=visible_name(self.composition),
            job_name=job_posted_alone(self.composition),
            revision=self.revision,
            cause=self.cause,
            by=self.by,
            drop_queues=self.drop_queues,
            drain_limit_s=self.drain_limit_s,
            leave=tuple(sorted(self.leave)),
            left_stopped=tuple(sorted(self.left_stopped)),
            state=self.state,
            started=self.started,
            ended=self.ended,
            error=self.error,
            superseded_by=self.superseded_by,
            dropped=tuple(self.dropped),
            reverts_to=self.reverts_to,
            reverting=tuple(sorted(self.reverting)),
        )

    def report(self) -> ChangeReport:
        """What is shown of it."""
        return ChangeReport.of(self.head(), self.outcomes())


STOPPED = "the service stopped; planned anew"
"""The error of an operation that was interrupted when the service stopped."""

ANEW = "planned anew: a job needed repair in the meantime"
"""The error of an operation whose blocked change had to repair another job as well."""


ABANDONED = "the change was ended before its outcome was known"
"""The error of an operation that was not awaited."""


def _cancel_unless_over(operation: OperationOutcome, why: str = STOPPED) -> OperationOutcome:
    if operation.state.over:
        return operation
    return replace(operation, state=OperationState.CANCELLED, error=why)
