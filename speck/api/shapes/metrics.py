"""The shapes of metrics: the current rates of jobs, and the answer to an import."""

from __future__ import annotations

from marshmallow import fields

from speck.api.shapes.base import Shape
from speck.api.shapes.records import record_shape
from speck.service.dataset import Imported


def _rate(description: str) -> fields.Float:
    return fields.Float(required=True, allow_none=True, metadata={"description": description})


def _total(description: str) -> fields.Integer:
    return fields.Integer(required=True, allow_none=True, metadata={"description": description})


class _WorkShape(Shape):
    """Rates between the last two polls that returned new counters; null means not known (a known
    zero is 0)."""

    seconds = _rate("time between those polls")
    in_rate = _rate("records per second that the sources received")
    out_rate = _rate("records per second that the sinks sent")
    busy = _rate("0 to 1: share of the time in which the busiest subtask worked")
    idle = _rate("0 to 1: share of the time in which it waited for input")
    back_pressured = _rate("0 to 1: share of the time in which it waited for space in its output")
    records_in = _total("since its tasks started")
    records_out = _total("since its tasks started")
    bytes_in = _total("since its tasks started: MQTT packets received")
    bytes_out = _total("since its tasks started: MQTT packets sent")


class TaskRatesShape(_WorkShape):
    vertex = fields.String(required=True)
    name = fields.String(required=True)
    subtask = fields.Integer(required=True)
    is_source = fields.Boolean(required=True)
    is_sink = fields.Boolean(required=True)


class CheckpointSizeShape(Shape):
    id = _total("the newest completed checkpoint")
    bytes = _total("its size")
    ms = _total("how long it took")


class JobRatesShape(_WorkShape):
    job_name = fields.String(required=True)
    composition = fields.String(required=True, allow_none=True)
    site = fields.String(required=True)
    at = fields.String(required=True, allow_none=True)
    restarts = _total("how often the engine restarted the job")
    lag = _total("unread messages of its source, from producers that publish sequence numbers")
    checkpoint = fields.Nested(CheckpointSizeShape, required=True)
    tasks = fields.List(fields.Nested(TaskRatesShape), required=True)


class ListedRatesShape(JobRatesShape):
    records_left_out = _total("how many records it has left out; see /jobs")
    records_lost = _total("how many records it has lost; see /jobs")
    sessions_lost = _total("how many sessions of its source brokers have lost; see /jobs")


class JobMetricsShape(JobRatesShape):
    metrics = fields.Dict(required=True, keys=fields.String(), values=fields.Float())


class RatesListShape(Shape):
    jobs = fields.List(fields.Nested(ListedRatesShape), required=True)


ImportedShape = record_shape(Imported, "ImportedShape")
