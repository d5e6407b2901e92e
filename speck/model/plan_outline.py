"""What is stored and shown of a plan and of the outcomes of its operations."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

from speck.model.job_change import Action, JobChange
from speck.model.plan import Plan, Step
from speck.model.queue import Count, DroppedQueue
from speck.model.shown import Shown


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


@dataclass(frozen=True, slots=True)
class OperationOutline:
    """A step of a plan: its operation, the steps that it comes `after`, and why it is needed."""

    id: int
    kind: str
    job_name: str | None
    site: str | None
    after: tuple[int, ...]
    reason: str
    only_if_failed: Annotated[
        int | None, Shown("skipped when the operation with this id succeeds", left_out=True)
    ] = None

    @classmethod
    def of(cls, step: Step) -> OperationOutline:
        operation = step.operation
        return cls(
            step.id,
            operation.kind,
            operation.job_name,
            operation.site,
            tuple(step.after),
            step.reason,
            step.only_if_failed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationOutcome(OperationOutline):
    """An operation and what has become of it. Times are RFC 3339."""

    state: OperationState
    started: str | None = None
    ended: str | None = None
    attempts: Annotated[int, Shown("number of calls, including retries")] = 0
    error: str | None = None
    progress: Annotated[str | None, Shown("progress of a long operation", left_out=True)] = None


@dataclass(frozen=True, slots=True)
class QueueOutline:
    """A queue that a plan drops, or has dropped."""

    reader: Annotated[str, Shown("the job, or the client id of a reader outside speck")]
    client_id: str
    job_name: Annotated[str | None, Shown("null for a reader outside speck")]
    site: str
    topic: str
    messages: Annotated[int | None, Shown("null if nothing is known of their number")]
    count: Annotated[
        Count,
        Shown(
            "about: sent less taken; at_most: sent, by a reader that does not report what it has"
            " taken"
        ),
    ]
    why: Annotated[str, Shown("why nobody takes the messages first")]
    text: Annotated[str, Shown("one line for people")]

    @classmethod
    def of(cls, queue: DroppedQueue, *, is_dropped: bool = False) -> QueueOutline:
        return cls(
            queue.reader,
            queue.client_id,
            queue.job_name,
            queue.site,
            queue.topic,
            queue.messages,
            queue.count,
            queue.why,
            queue.outcome if is_dropped else str(queue),
        )


@dataclass(frozen=True, slots=True)
class JobOutline:
    """What becomes of a job."""

    job_name: str
    action: Action
    reason: str
    source: Annotated[str | None, Shown("site", name="from")]
    target: Annotated[str | None, Shown("site", name="to")]

    @classmethod
    def of(cls, change: JobChange) -> JobOutline:
        return cls(change.job_name, change.action, change.reason, change.source, change.target)


@dataclass(frozen=True, slots=True)
class PlanOutline:
    """A plan for people; `text` is `str(plan)`."""

    summary: Mapping[str, int]
    jobs: tuple[JobOutline, ...]
    queues: tuple[QueueOutline, ...]
    drain_limit_s: Annotated[
        float | None,
        Shown("with drop_queues: what a job has not taken within these seconds is dropped as well"),
    ]
    reverts_to: Annotated[
        int | None,
        Shown("revision that the operations bring back first, since the last change ended early"),
    ]
    reverting: Annotated[tuple[str, ...], Shown("the jobs concerned, also those that give way")]
    operations: tuple[OperationOutline, ...]
    text: Annotated[str, Shown("one line for each operation")]

    @classmethod
    def of(cls, plan: Plan) -> PlanOutline:
        return cls(
            plan.summary(),
            tuple(
                JobOutline(j.job_name, j.action, j.reason, j.source, j.target) for j in plan.jobs
            ),
            tuple(map(QueueOutline.of, plan.queues)),
            plan.drain_limit_s,
            plan.reverts_to,
            tuple(sorted(plan.reverting)),
            tuple(map(OperationOutline.of, plan.steps)),
            str(plan),
        )
