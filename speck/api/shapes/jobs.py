"""The shapes of jobs, alone or of a composition."""

from __future__ import annotations

from typing import Any

from marshmallow import fields

from speck.api.shapes.base import (
    Shape,
    integer,
    list_shape,
    nullable_text,
    one_of,
    optional_text,
    text,
)
from speck.api.shapes.changes import CHANGE_STATES
from speck.model.job import JobOptions
from speck.model.job_state import JobState
from speck.spec.options import derive_fields

JOB_STATES = tuple(str(state) for state in JobState)


def _response_field(field: fields.Field[Any]) -> fields.Field[Any]:
    """An option of a job as responses hold it: required, unless it may be null or is a mapping
    (left out when it has its default)."""
    field.required = not (field.allow_none or isinstance(field, fields.Nested))
    return field


class JobShape(Shape):
    job_name = text()
    source_topic = text()
    sink_topic = text()
    entry_class = text()
    job_path = text()
    spe_address = optional_text("as in the request")
    site = nullable_text("where it runs or will run")
    source_broker = optional_text("as in the request")
    source_site = optional_text("as in the request")
    sink_broker = optional_text("as in the request")
    sink_site = optional_text("as in the request")
    vars().update(
        {name: _response_field(field) for name, field in derive_fields(JobOptions).items()}
    )
    state = one_of(JOB_STATES, "the observed state")
    composition = nullable_text("null for a job posted alone")
    revision = integer(allow_none=True)
    engine_job_id = nullable_text()
    attempt = integer("numbers the incarnations", allow_none=True)
    error = nullable_text()
    failures = integer("how often it has failed, if it is in a crash loop; otherwise 0")
    records_left_out = integer(
        "how many records it has left out since the service started: no broker would take them"
    )
    records_lost = integer(
        "how many records it has lost since the service started, as its settings allow"
    )
    sessions_lost = integer(
        "how many sessions of its source brokers have lost since the service started: messages of"
        " publishers that do not send them again may be lost"
    )


class JobAcceptedShape(Shape):
    change = text()
    revision = integer(allow_none=True)
    state = one_of(CHANGE_STATES)


class JobExceptionShape(Shape):
    at = text("RFC 3339")
    name = text()
    trace = text()
    task = nullable_text()
    reason = text("the most informative line of the trace")


class SavepointShape(Shape):
    job_name = text()
    id = text()
    location = nullable_text("a path or URI that the engine can read")
    state = one_of(("running", "done"))


JOBS = list_shape("jobs", JobShape)
EXCEPTIONS = list_shape("exceptions", JobExceptionShape)
