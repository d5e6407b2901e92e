"""The shapes of compositions, their revisions, drift and graph."""

from __future__ import annotations

from marshmallow import fields

from speck.api.shapes.base import (
    Shape,
    integer,
    list_of,
    list_shape,
    one_of,
    text,
)
from speck.api.shapes.jobs import DescribedJobShape, JobShape
from speck.api.shapes.records import nested_shape, record_shape
from speck.model.composition import CompositionDescription, Head
from speck.monitor.requirements import LATENCY, RATE, Verdict
from speck.service.composition_views import DeployedJob, DriftEntry, RevisionEntry

DesiredShape = record_shape(
    CompositionDescription,
    "DesiredShape",
    revision=integer(),
    jobs=list_of(DescribedJobShape),
)


class DeployedShape(Shape):
    revision = integer(allow_none=True)
    jobs = list_of(nested_shape(DeployedJob))


class CompositionShape(Shape):
    name = text()
    desired = fields.Nested(DesiredShape, required=True)
    deployed = fields.Nested(DeployedShape, required=True)
    jobs = list_of(JobShape)
    requirements = list_of(record_shape(Verdict, "RequirementShape", name=one_of((LATENCY, RATE))))


class RollbackShape(Shape):
    revision = integer("an earlier revision")


class GraphShape(Shape):
    nodes = list_of(fields.Dict())
    edges = list_of(fields.Dict())


COMPOSITIONS = list_shape("compositions", record_shape(Head, "CompositionHeadShape"))
DRIFT = list_shape("drift", record_shape(DriftEntry, "DriftEntryShape"))
REVISIONS = list_shape("revisions", record_shape(RevisionEntry, "RevisionShape"))
