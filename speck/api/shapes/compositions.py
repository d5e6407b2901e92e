"""The shapes of compositions, their revisions, drift and graph."""

from __future__ import annotations

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
from speck.api.shapes.jobs import JobShape


class CompositionHeadShape(Shape):
    name = text()
    revision = integer()
    deployed_revision = integer(allow_none=True)
    jobs = integer("number of jobs")
    at = text()


class DesiredShape(Shape):
    revision = integer()
    jobs = list_of(fields.Dict())
    inputs = list_of(fields.Dict())
    outputs = list_of(fields.Dict())


class DeployedJobShape(Shape):
    job_name = text()
    site = text()
    engine_job_id = text()
    attempt = integer()
    jar = text()
    ended = flag()


class DeployedShape(Shape):
    revision = integer(allow_none=True)
    jobs = list_of(DeployedJobShape)


class RequirementShape(Shape):
    name = one_of(("max_latency_ms", "min_rate"))
    wanted = number()
    measured = number("null when it was not measured", allow_none=True)
    ok = fields.Boolean(
        required=True,
        allow_none=True,
        metadata={"description": "whether the requirement is met; null when it was not measured"},
    )
    why = text()


class CompositionShape(Shape):
    name = text()
    desired = fields.Nested(DesiredShape, required=True)
    deployed = fields.Nested(DeployedShape, required=True)
    jobs = list_of(JobShape)
    requirements = list_of(RequirementShape)


class DriftEntryShape(Shape):
    job_name = text()
    kind = text()
    expected = text()
    observed = text()


class RevisionShape(Shape):
    revision = integer()
    at = text()
    by = nullable_text("name of the token that requested it")


class RollbackShape(Shape):
    revision = integer("an earlier revision")


class GraphShape(Shape):
    nodes = list_of(fields.Dict())
    edges = list_of(fields.Dict())


COMPOSITIONS = list_shape("compositions", CompositionHeadShape)
DRIFT = list_shape("drift", DriftEntryShape)
REVISIONS = list_shape("revisions", RevisionShape)
