"""The shapes of plans and changes."""

from __future__ import annotations

from marshmallow import fields

from speck.api.shapes.base import Shape, integer, list_shape
from speck.api.shapes.records import record_shape
from speck.model.accepted import Accepted
from speck.model.change import ChangeHead, ChangeReport, ChangeState
from speck.model.plan_outline import PlanOutline, QueueOutline

CHANGE_STATES = tuple(map(str, ChangeState))


class SummaryShape(Shape):
    add = integer()
    update = integer()
    move = integer()
    remove = integer()
    unchanged = integer()


PlanShape = record_shape(
    PlanOutline, "PlanShape", summary=fields.Nested(SummaryShape, required=True)
)
ChangeHeadShape = record_shape(ChangeHead, "ChangeHeadShape")
ChangeShape = record_shape(ChangeReport, "ChangeShape")
AcceptedShape = record_shape(
    Accepted, "AcceptedShape", plan=fields.Nested(PlanShape, required=True)
)


QueueShape = record_shape(QueueOutline, "QueueShape")
CHANGES = list_shape("changes", ChangeHeadShape)
