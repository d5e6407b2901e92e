"""The shapes of artifacts, events, tokens, health and problems."""

from __future__ import annotations

from typing import Any

from marshmallow import INCLUDE, Schema, fields

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
from speck.api.shapes.changes import QueueShape
from speck.api.shapes.records import record_shape
from speck.model.artifact import StoredArtifact, UsedArtifact
from speck.model.event import Event
from speck.model.token import KnownToken, Role, StoredToken
from speck.service.uploads import CollectedUploads
from speck.spec.fields import Choice
from speck.spec.strict_schema import StrictSchema

CollectedShape = record_shape(StoredArtifact, "CollectedShape")


class CollectedListShape(Shape):
    artifacts = list_of(CollectedShape)
    kept = list_of(CollectedShape)
    uploads = list_of(record_shape(CollectedUploads, "CollectedUploadsShape"))


ArtifactShape = record_shape(UsedArtifact, "ArtifactShape")
EventShape = record_shape(Event, "EventShape")


def _patterns(description: str) -> fields.List[Any]:
    return fields.List(fields.String(), allow_none=True, metadata={"description": description})


class _ScopesShape(Schema):
    compositions = _patterns("globs of compositions and of jobs posted alone; null: all")
    topics = _patterns("patterns of topics (docs/tokens.md); null: all")
    sites = _patterns("globs of sites; null: all")


class NewTokenShape(_ScopesShape, StrictSchema):
    name = text()
    role = Choice(Role, required=True)
    site = fields.String(
        allow_none=True,
        metadata={"description": "for role site: the site that the token is bound to"},
    )
    expires_in = fields.String(
        allow_none=True, metadata={"description": "like 90d: a number and s, m, h, d or w"}
    )


class RotationShape(StrictSchema):
    expires_in = fields.String(
        allow_none=True, metadata={"description": "a new time of expiry, like 90d"}
    )


_ADDED = nullable_text("when it was added; null for who acts without a token")
TokenShape = record_shape(KnownToken, "TokenShape", at=_ADDED)
TokenMadeShape = record_shape(
    StoredToken, "TokenMadeShape", token=text("the secret, shown only here")
)


class AuditEntryShape(Shape):
    """A line of the audit log; what it says beyond these fields depends on its kind."""

    class Meta:
        unknown = INCLUDE

    n = integer("numbers the lines")
    at = text()
    token = nullable_text()
    address = nullable_text()
    verb = text("an HTTP method, or a command")
    object = text("a path")
    outcome = fields.Raw(required=True, metadata={"description": "an HTTP status, or a word"})
    previous = text("SHA-256 of the line before")
    code = optional_text("what only this service can make of the line")


class AuditVerdictShape(Shape):
    ok = fields.Boolean(required=True)
    lines = integer("how many there are")
    first = integer("number of the first; those before have been rotated away")
    last_hash = text("SHA-256 of the last")
    faults = list_of(fields.String(metadata={"description": "a line, and what is wrong with it"}))


class HealthShape(Shape):
    status = one_of(("ok", "ready", "restored"))


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
    queues = fields.List(
        fields.Nested(QueueShape),
        metadata={"description": "for 409: the queues that the request would drop"},
    )
    received = fields.Integer(
        metadata={"description": "for 409 on a piece of state: offset of the expected piece"}
    )


ARTIFACTS = list_shape("artifacts", ArtifactShape)
EVENTS = list_shape("events", EventShape)
AUDIT = list_shape("entries", AuditEntryShape)
TOKENS = list_shape("tokens", TokenShape)
