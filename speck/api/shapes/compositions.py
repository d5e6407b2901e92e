"""The shapes of compositions, their revisions, drift and graph."""

from __future__ import annotations

from marshmallow import fields

from speck.api.shapes.base import (
    Shape,
    flag,
    integer,
    list_of,
    list_shape,
    text,
)
from speck.api.shapes.jobs import JobShape
from speck.api.shapes.records import record_shape
from speck.model.composition import Head
from speck.monitor.requirements import Verdict
from speck.service.composition_views import DriftEntry, RevisionEntry


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


class CompositionShape(Shape):
    name = text()
    desired = fields.Nested(DesiredShape, required=True)
    deployed = fields.Nested(DeployedShape, required=True)
    jobs = list_of(JobShape)
    requirements = list_of(record_shape(Verdict, "RequirementShape"))


class RollbackShape(Shape):
    revision = integer("an earlier revision")


class GraphShape(Shape):
    nodes = list_of(fields.Dict())
    edges = list_of(fields.Dict())


COMPOSITIONS = list_shape("compositions", record_shape(Head, "CompositionHeadShape"))
DRIFT = list_shape("drift", record_shape(DriftEntry, "DriftEntryShape"))
REVISIONS = list_shape("revisions", record_shape(RevisionEntry, "RevisionShape"))
