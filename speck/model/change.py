"""A change: one execution of a plan, with every operation's outcome."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from speck.model.composition import composition_of_one, job_posted_alone, visible_name
from speck.model.plan import Plan, Step
from speck.model.queue import DroppedQueue
from speck.model.values import JsonObject


class OperationState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    BLOCKED = "blocked"
    SKIPPED = "skipped"
    CANCELLED = "cancelled"

    @property
    def over(self) -> bool:
        return self in _OVER


_OVER = frozenset(
    {
        OperationState.DONE,
        OperationState.FAILED,
        OperationState.SKIPPED,
        OperationState.CANCELLED,
    }
)


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

    def to_json(self) -> JsonObject:
        return {
            **step_to_json(self.step),
            "state": str(self.state),
            "started": self.started,
            "ended": self.ended,
            "attempts": self.attempts,
            "error": self.error,
            **({"progress": self.progress} if self.progress else {}),
        }


@dataclass(slots=True)
class Change:
    """One execution of `plan`.

    Its purpose is stored with it, so that a service that was stopped in the middle can plan it
    anew: its `cause` and `revision`, whether it may `drop_queues`, after draining each reader for
    `drain_limit_s` seconds (None: as the service is set up), and the jobs that it must `leave`
    alone. `dropped` are the queues that it has dropped. `earlier` are the operations of its
    previous plans, as they were stored.
    `left_stopped` are the jobs that the superseded change had stopped and not started again.
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
    earlier: list[JsonObject] = field(default_factory=list)
    has_read: frozenset[str] = frozenset()
    dropped: list[JsonObject] = field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.operations:
            self.operations = [OperationRecord(step) for step in self.plan.steps]

    @classmethod
    def from_store(cls, head: JsonObject, operations: Sequence[JsonObject]) -> Change:
        """Load a stored change without its plan; operations that had not ended are cancelled."""
        return cls(
            id=head["id"],
            plan=Plan(head["composition"] or composition_of_one(head["job_name"]), (), ()),
            revision=head["revision"],
            started=head["started"],
            cause=Cause(head["cause"]),
            by=head["by"],
            drop_queues=head["drop_queues"],
            drain_limit_s=head["drain_limit_s"],
            leave=frozenset(head["leave"]),
            left_stopped=frozenset(head["left_stopped"]),
            earlier=[_cancel_unless_over(operation) for operation in operations],
            dropped=list(head["dropped"]),
        )

    def go_on(self, plan: Plan) -> None:
        """Continue with a new plan. Its steps are numbered after the earlier ones; operations of
        the previous plan that had begun are kept in `earlier`."""
        records = (o.to_json() for o in self.operations if o.attempts or o.state.over)
        self.earlier += [_cancel_unless_over(record, ANEW) for record in records]
        self.plan = plan.renumber_after(max((o["id"] for o in self.earlier), default=0))
        self.operations = [OperationRecord(step) for step in self.plan.steps]

    def begin_next_part(self) -> None:
        """Close the plan that was carried out; another plan follows."""
        self.earlier += [operation.to_json() for operation in self.operations]
        self.state, self.ended, self.error = ChangeState.RUNNING, None, None
        self.operations = []
        self.has_read |= self.plan.reads
        self.plan = Plan(self.plan.composition, (), ())

    def find_begun_before(self) -> dict[OperationKey, str]:
        """When (RFC 3339) the operations were begun first that its earlier plans have not ended:
        those of a service that was stopped, or of a plan that was replaced."""
        begun: dict[OperationKey, str] = {}
        for each in self.earlier:
            key = (each["kind"], each["job_name"], each["site"])
            if each["state"] == OperationState.DONE:
                begun.pop(key, None)
            elif each["started"] is not None:
                begun.setdefault(key, each["started"])
        return begun

    def abandon(self) -> None:
        """End as cancelled, with all operations that have not ended."""
        self.state = ChangeState.CANCELLED
        for operation in self.operations:
            if not operation.state.over:
                operation.state, operation.error = OperationState.CANCELLED, ABANDONED

    @property
    def has_next_part(self) -> bool:
        """Whether it is to be planned again after its plan has been carried out. What could not be
        read first is dropped, if the user has allowed that."""
        cannot_read = self.state is ChangeState.FAILED and self.drop_queues
        return self.plan.goes_on and (
            self.state is ChangeState.DONE or (cannot_read and bool(self.plan.reads))
        )

    @property
    def stopped(self) -> frozenset[str]:
        """Jobs that it, or the change that it superseded, has stopped and not started since."""
        operations = [*self.earlier, *(o.to_json() for o in self.operations)]
        stopped = set(self.left_stopped)
        for operation in operations:
            if not operation["attempts"]:
                continue
            if operation["kind"] in ("stop", "cancel"):
                stopped.add(operation["job_name"])
            elif operation["kind"] in ("start", "return") and operation["state"] == "done":
                stopped.discard(operation["job_name"])
        return frozenset(stopped)

    @property
    def readers_stopped(self) -> frozenset[str]:
        """All jobs that it has stopped itself, also those that run again, elsewhere maybe."""
        operations = [*self.earlier, *(o.to_json() for o in self.operations)]
        return frozenset(
            operation["job_name"]
            for operation in operations
            if operation["attempts"] and operation["kind"] in ("stop", "cancel")
        )

    @property
    def composition(self) -> str:
        return self.plan.composition

    def head_json(self) -> JsonObject:
        """The change as JSON, without its operations."""
        return {
            "id": self.id,
            "composition": visible_name(self.composition),
            "job_name": job_posted_alone(self.composition),
            "revision": self.revision,
            "cause": str(self.cause),
            "by": self.by,
            "drop_queues": self.drop_queues,
            "drain_limit_s": self.drain_limit_s,
            "leave": sorted(self.leave),
            "left_stopped": sorted(self.left_stopped),
            "state": str(self.state),
            "started": self.started,
            "ended": self.ended,
            "error": self.error,
            "superseded_by": self.superseded_by,
            "dropped": self.dropped,
        }

    def to_json(self) -> JsonObject:
        operations = [*self.earlier, *(o.to_json() for o in self.operations)]
        return {**self.head_json(), "operations": operations}


STOPPED = "the service stopped; planned anew"
"""The error of an operation that was interrupted when the service stopped."""

ANEW = "planned anew: a job needed repair in the meantime"
"""The error of an operation whose blocked change had to repair another job as well."""


ABANDONED = "the change was ended before its outcome was known"
"""The error of an operation that was not awaited."""


def _cancel_unless_over(operation: JsonObject, why: str = STOPPED) -> JsonObject:
    if OperationState(operation["state"]).over:
        return operation
    return {**operation, "state": str(OperationState.CANCELLED), "error": why}


def step_to_json(step: Step) -> JsonObject:
    """A step as the API shows it."""
    return {
        "id": step.id,
        "kind": step.operation.kind,
        "job_name": step.operation.job_name,
        "site": step.operation.site,
        "after": list(step.after),
        "reason": step.reason,
        **({"only_if_failed": step.only_if_failed} if step.only_if_failed else {}),
    }


def dropped_to_json(queue: DroppedQueue) -> JsonObject:
    """A queue that has been dropped, as the API shows it."""
    return {**queue_to_json(queue), "text": queue.outcome}


def queue_to_json(queue: DroppedQueue) -> JsonObject:
    """A queue that a plan drops, as the API shows it; `text` is `str(queue)`."""
    return {
        "reader": queue.reader,
        "client_id": queue.client_id,
        "job_name": queue.job_name,
        "site": queue.site,
        "topic": queue.topic,
        "messages": queue.messages,
        "count": str(queue.count),
        "why": queue.why,
        "text": str(queue),
    }


def plan_to_json(plan: Plan) -> JsonObject:
    """A plan as the API shows it; `text` is `str(plan)`."""
    return {
        "summary": plan.summary(),
        "jobs": [
            {
                "job_name": change.job_name,
                "action": str(change.action),
                "reason": change.reason,
                "from": change.source,
                "to": change.target,
            }
            for change in plan.jobs
        ],
        "queues": [queue_to_json(queue) for queue in plan.queues],
        "drain_limit_s": plan.drain_limit_s,
        "operations": [step_to_json(step) for step in plan.steps],
        "text": str(plan),
    }
