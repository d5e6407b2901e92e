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
from speck.api.shapes.records import record_shape
from speck.model.job import JobOptions
from speck.service.jobs import JobException
from speck.service.status import JobView
from speck.spec.options import derive_fields


def _response_field(field: fields.Field[Any]) -> fields.Field[Any]:
    """An option of a job as responses hold it: required, unless it may be null or is a mapping
    (left out when it has its default)."""
    field.required = not (field.allow_none or isinstance(field, fields.Nested))
    return field


class DescribedJobShape(Shape):
    """The description of a job as responses hold it."""

    job_name = text()
    source_topic = text()
    sink_topic = text()
    entry_class = text()
    job_path = text()
    spe_address = optional_text("as in the request")
    site = optional_text("as in the request")
    source_broker = optional_text("as in the request")
    source_site = optional_text("as in the request")
    sink_broker = optional_text("as in the request")
    sink_site = optional_text("as in the request")
    vars().update(
        {name: _response_field(field) for name, field in derive_fields(JobOptions).items()}
    )


class JobShape(record_shape(JobView, "JobViewShape"), DescribedJobShape):  # type: ignore[misc]
    """A job and what is known of it: its observed state, not that of its description."""


class JobAcceptedShape(Shape):
    change = text()
    revision = integer(allow_none=True)
    state = one_of(CHANGE_STATES)


JobExceptionShape = record_shape(JobException, "JobExceptionShape")


class SavepointShape(Shape):
    job_name = text()
    id = text()
    location = nullable_text("a path or URI that the engine can read")
    state = one_of(("running", "done"))


JOBS = list_shape("jobs", JobShape)
EXCEPTIONS = list_shape("exceptions", JobExceptionShape)
