"""The shapes of artifacts, events, tokens, health and problems."""

from __future__ import annotations

from marshmallow import fields

from speck.api.shapes.base import (
    Shape,
    integer,
    list_of,
    list_shape,
    nullable_text,
    one_of,
    optional_text,
    text,
)
from speck.service.tokens import Role
from speck.spec.fields import Choice


class ArtifactUseShape(Shape):
    composition = nullable_text("null for a job posted alone")
    job_name = nullable_text("null for a revision of a composition")
    revision = integer("null for what is deployed", allow_none=True)


class CollectedShape(Shape):
    sha256 = text()
    bytes = integer()
    at = text("when it was last sent")
    by = nullable_text("the token that sent it first")


class CollectedListShape(Shape):
    artifacts = list_of(CollectedShape)


class ArtifactShape(CollectedShape):
    uses = list_of(ArtifactUseShape)


class EventShape(Shape):
    id = integer()
    at = text()
    kind = text()
    message = text()
    site = optional_text()
    job_name = optional_text()
    composition = optional_text()
    change = optional_text()


class NewTokenShape(Shape):
    name = text()
    role = Choice(Role, required=True)
    site = fields.String(
        metadata={"description": "for role site: the site that the token is bound to"}
    )


class TokenShape(Shape):
    name = text()
    role = Choice(Role, required=True)
    site = nullable_text()
    at = text()


class TokenMadeShape(Shape):
    name = text()
    role = Choice(Role, required=True)
    site = nullable_text()
    token = text("the secret, shown only here")


class HealthShape(Shape):
    status = one_of(("ok", "ready"))


class FaultShape(Shape):
    path = text("like jobs[2].sink_topic")
    message = text()
    line = fields.Integer(metadata={"description": "line of the YAML, from 1"})


class ProblemShape(Shape):
    """RFC 9457."""

    type = text()
    title = text()
    status = integer()
    detail = text()
    request_id = text("the same as in the header X-Request-Id and in the log")
    errors = list_of(FaultShape)
    change = optional_text("for 409: id of the conflicting change")
    received = fields.Integer(
        metadata={"description": "for 409 on a piece of state: offset of the expected piece"}
    )


ARTIFACTS = list_shape("artifacts", ArtifactShape)
EVENTS = list_shape("events", EventShape)
TOKENS = list_shape("tokens", TokenShape)
