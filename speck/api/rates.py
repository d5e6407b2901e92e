"""What jobs do: rates between the last two looks of the collector."""

from __future__ import annotations

from flask import Response
from marshmallow import fields

from speck.api.context import service
from speck.api.requests import Query, paging, text
from speck.api.routes import Routes, listing
from speck.api.shapes import Shape

routes = Routes("rates", "What jobs do")


def _rate(text: str) -> fields.Float:
    return fields.Float(required=True, allow_none=True, metadata={"description": text})


def _total(text: str) -> fields.Integer:
    return fields.Integer(required=True, allow_none=True, metadata={"description": text})


class _WorkShape(Shape):
    """Between the two last looks that told something new; null: not known, which is no zero."""

    seconds = _rate("between those looks")
    in_rate = _rate("records/s that the sources took in")
    out_rate = _rate("records/s that the sinks gave out")
    busy = _rate("0 to 1: share of the time in which the busiest subtask worked")
    idle = _rate("0 to 1: it waited for input")
    back_pressured = _rate("0 to 1: it waited for room in its output")
    records_in = _total("since its tasks began")
    records_out = _total("since its tasks began")
    bytes_in = _total("since its tasks began: MQTT packets taken")
    bytes_out = _total("since its tasks began: MQTT packets sent")


class TaskRatesShape(_WorkShape):
    vertex = fields.String(required=True)
    name = fields.String(required=True)
    subtask = fields.Integer(required=True)
    is_source = fields.Boolean(required=True)
    is_sink = fields.Boolean(required=True)


class CheckpointSizeShape(Shape):
    id = _total("the newest completed one")
    bytes = _total("its size")
    ms = _total("how long it took")


class JobRatesShape(_WorkShape):
    job_name = fields.String(required=True)
    composition = fields.String(required=True, allow_none=True)
    site = fields.String(required=True)
    at = fields.String(required=True, allow_none=True)
    restarts = _total("of the job by its engine")
    lag = _total("messages that wait for its source, of producers that tell their numbers")
    checkpoint = fields.Nested(CheckpointSizeShape, required=True)
    tasks = fields.List(fields.Nested(TaskRatesShape), required=True)


class JobMetricsShape(JobRatesShape):
    metrics = fields.Dict(required=True, keys=fields.String(), values=fields.Float())


class RatesListShape(Shape):
    jobs = fields.List(fields.Nested(JobRatesShape), required=True)


@routes.get(
    "/rates",
    query=[text("composition", "only jobs of this composition"), *paging("job_name")],
    answers={200: RatesListShape},
)
def job_rates(query: Query) -> Response:
    """What all deployed jobs did between the last two looks of the collector."""
    wanted = query["composition"]
    found = [
        job
        for job in service().sampler.rate_jobs()
        if wanted is None or job["composition"] == wanted
    ]
    found.sort(key=lambda job: str(job["job_name"]))
    return listing("jobs", found, "job_name", query)
