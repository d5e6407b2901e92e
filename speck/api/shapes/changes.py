"""The shapes of plans and changes."""

from __future__ import annotations

from typing import Any

from marshmallow import fields

from speck.api.shapes.base import (
    Shape,
    flag,
    integer,
    list_of,
    list_shape,
    nullable_text,
    number,
    one_of,
    text,
)
from speck.model.change import Cause, ChangeState, OperationState
from speck.model.job_change import Action
from speck.model.queue import Count
from speck.spec.fields import Choice

CHANGE_STATES = tuple(map(str, ChangeState))


class SummaryShape(Shape):
    add = integer()
    update = integer()
    move = integer()
    remove = integer()
    unchanged = integer()


_JOB_CHANGE: dict[str, Any] = {
    "job_name": text(),
    "action": Choice(Action, required=True),
    "reason": text(),
    "from": nullable_text("site"),
    "to": nullable_text("site"),
}
JobChangeShape = type("JobChangeShape", (Shape,), _JOB_CHANGE)  # `from` is a keyword


class OperationShape(Shape):
    id = integer()
    kind = text()
    job_name = nullable_text()
    site = nullable_text()
    after = list_of(fields.Integer())
    reason = text()
    only_if_failed = fields.Integer(
        metadata={"description": "skipped when the operation with this id succeeds"}
    )


class OperationOutcomeShape(OperationShape):
    state = Choice(OperationState, required=True)
    started = nullable_text()
    ended = nullable_text()
    attempts = integer("number of calls, including retries")
    error = nullable_text()
    progress = fields.String(metadata={"description": "progress of a long operation"})


class QueueShape(Shape):
    reader = text("the job, or the client id of a reader outside speck")
    client_id = text()
    job_name = nullable_text("null for a reader outside speck")
    site = text()
    topic = text()
    messages = integer("null if nothing is known of their number", allow_none=True)
    count = one_of(
        Count,
        "about: sent less taken; at_most: sent, by a reader that does not report what it has taken",
    )
    why = text("why nobody takes the messages first")
    text = text("one line for people")


class PlanShape(Shape):
    summary = fields.Nested(SummaryShape, required=True)
    jobs = list_of(JobChangeShape)
    queues = list_of(QueueShape)
    drain_limit_s = number(
        "with drop_queues: what a job has not taken within these seconds is dropped as well",
        allow_none=True,
    )
    operations = list_of(OperationShape)
    text = text("one line for each operation")


class ChangeHeadShape(Shape):
    id = text()
    composition = nullable_text("null for a job posted alone")
    job_name = nullable_text("name of a job posted alone, else null")
    revision = integer(allow_none=True)
    cause = one_of(Cause, "what started the change; a repair restores the accepted revision")
    by = nullable_text("name of the token that requested it")
    drop_queues = flag("whether queues may be dropped")
    drain_limit_s = number(
        "with drop_queues: for how long a job is drained; null: as the service is set up",
        allow_none=True,
    )
    leave = list_of(fields.String(metadata={"description": "a job that the repair does not touch"}))
    left_stopped = list_of(
        fields.String(metadata={"description": "a job that the superseded change stopped"})
    )
    state = one_of(CHANGE_STATES)
    started = text()
    ended = nullable_text()
    error = nullable_text()
    superseded_by = nullable_text("id of the change that replaced it")
    dropped = list_of(QueueShape)


class ChangeShape(ChangeHeadShape):
    operations = list_of(OperationOutcomeShape)


class AcceptedShape(Shape):
    change = nullable_text("null for a dry run")
    composition = text()
    revision = integer(allow_none=True)
    plan = fields.Nested(PlanShape, required=True)
    warnings = list_of(fields.String())
    state = fields.String(metadata={"enum": list(CHANGE_STATES), "description": "after a wait"})


CHANGES = list_shape("changes", ChangeHeadShape)
