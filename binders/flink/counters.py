"""The counters of one incarnation, and the queries for metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import quote_plus

from binders.flink import answers
from binders.flink.rest import FlinkRest

METRICS_AT_ONCE = 3000
"""Bytes of metric names in one request: they are part of the URL, which Flink limits to 4096."""


def read_counters(rest: FlinkRest, engine_job_id: str) -> dict[str, float]:
    """Counters by operator-scoped name, summed over subtasks and vertices; one request, and two for
    each vertex. Raises what reading an answer raises that did not come from Flink, and the errors
    of `FlinkRest`."""
    totals: dict[str, float] = {}
    for vertex in rest.get(f"/jobs/{engine_job_id}")["vertices"]:
        path = f"/jobs/{engine_job_id}/vertices/{vertex['id']}/metrics"
        values: list[Mapping[str, Any]] = []
        for query in metric_queries(answers.counter_names(rest.get(path))):
            values += rest.get(path + query)
        for name, value in answers.sum_subtasks(str(vertex["id"]), values).items():
            totals[name] = totals.get(name, 0.0) + value
    return totals


def metric_queries(names: Iterable[str]) -> Iterator[str]:
    """The queries that request these metrics, `METRICS_AT_ONCE` in each."""
    query = ""
    for name in map(quote_plus, names):
        if query and len(query) + len(name) > METRICS_AT_ONCE:
            yield query
            query = ""
        query += f"%2C{name}" if query else f"?get={name}"
    if query:
        yield query
