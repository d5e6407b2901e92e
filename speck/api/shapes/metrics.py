"""The shapes of metrics: the current rates of jobs, and the answer to an import."""

from __future__ import annotations

from marshmallow import fields

from speck.api.shapes.base import Shape
from speck.api.shapes.records import record_shape
from speck.model.job_rates import JobRates, RatedJob
from speck.service.dataset import Imported
from speck.service.jobs import JobMetrics


def _total(description: str) -> fields.Integer:
    return fields.Integer(required=True, allow_none=True, metadata={"description": description})


class ListedRatesShape(
    record_shape(RatedJob, "RatedJobShape"),  # type: ignore[misc]
    record_shape(JobRates, "JobRatesShape"),  # type: ignore[misc]
):
    records_left_out = _total("how many records it has left out; see /jobs")
    records_lost = _total("how many records it has lost; see /jobs")
    sessions_lost = _total("how many sessions of its source brokers have lost; see /jobs")


class JobMetricsShape(
    record_shape(JobMetrics, "EngineMetricsShape"),  # type: ignore[misc]
    record_shape(JobRates, "JobRatesShape"),  # type: ignore[misc]
):
    """The counters of its engine, and its rates."""


class RatesListShape(Shape):
    jobs = fields.List(fields.Nested(ListedRatesShape), required=True)


ImportedShape = record_shape(Imported, "ImportedShape")
