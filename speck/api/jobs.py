"""/jobs: the paper's Job Management API"""

from __future__ import annotations

from flask import Response, jsonify

from speck.api import shapes
from speck.api.context import service, waiting
from speck.api.rates import JobMetricsShape
from speck.api.requests import Query, document, paging, refuse_other_name, text, wait
from speck.api.routes import Routes, answer, listing
from speck.spec.schema import JobSchema, job_from_data

WAIT_S = 60.0
_STARTING = {
    201: shapes.JobShape,
    200: shapes.JobShape,
    202: shapes.JobAcceptedShape,
}

routes = Routes("jobs", "Single jobs, alone or of a composition")


@routes.get(
    "/jobs",
    query=[
        text("site", "only jobs of this site"),
        text("state", "only jobs in this state", shapes.JOB_STATES),
        *paging("job_name"),
    ],
    answers={200: shapes.JOBS},
)
def list_jobs(query: Query) -> Response:
    """All jobs by name, those of compositions too."""
    found = service().jobs.behind(query["after"] or "", query["site"], query["state"])
    return listing("jobs", found, "job_name", query)


@routes.post("/jobs", query=[wait(WAIT_S)], body=JobSchema, answers=_STARTING)
def add_job(query: Query) -> Response:
    """Start a job alone: 201 when it runs, 202 while it is under way, 200 when it is there and
    nothing is to be done for it. The same again after a failure tries again; another jar under
    the same path is another job: 409."""
    read = document()
    description = job_from_data(read.data, read.line_of)
    with waiting(query["wait"]) as seconds:
        return answer(service().jobs.post(description, seconds, read.line_of))


@routes.get("/jobs/<job_name>", answers={200: shapes.JobShape})
def get_job(job_name: str) -> Response:
    """A job with what its engine says now."""
    return jsonify(service().jobs.get(job_name))


@routes.put(
    "/jobs/<job_name>",
    query=[wait(WAIT_S)],
    body=JobSchema,
    answers={200: shapes.JobShape, 202: shapes.JobAcceptedShape},
)
def put_job(job_name: str, query: Query) -> Response:
    """Update or move a job that was posted alone."""
    read = document()
    data = read.data
    if isinstance(data, dict):
        data = {"job_name": job_name, **data}
    description = job_from_data(data, read.line_of)
    refuse_other_name("job_name", job_name, description.job_name)
    with waiting(query["wait"]) as seconds:
        return answer(service().jobs.put(job_name, description, seconds, read.line_of))


@routes.delete(
    "/jobs/<job_name>",
    query=[wait(WAIT_S)],
    answers={204: None, 202: shapes.JobAcceptedShape},
)
def delete_job(job_name: str, query: Query) -> Response:
    """Stop and forget a job that was posted alone."""
    with waiting(query["wait"]) as seconds:
        return answer(service().jobs.delete(job_name, seconds))


@routes.get("/jobs/<job_name>/exceptions", answers={200: shapes.EXCEPTIONS})
def job_exceptions(job_name: str) -> Response:
    """The engine's own words on the job's failures, newest first."""
    return jsonify({"exceptions": service().jobs.exceptions(job_name)})


@routes.get("/jobs/<job_name>/metrics", answers={200: JobMetricsShape})
def job_metrics(job_name: str) -> Response:
    """The engine's counters of the job now, by operator-scoped name, and its rates between the
    last two looks of the collector."""
    return jsonify(service().jobs.metrics(job_name))


@routes.post(
    "/jobs/<job_name>/savepoints",
    query=[wait(WAIT_S)],
    answers={201: shapes.SavepointShape, 202: shapes.SavepointShape},
)
def take_savepoint(job_name: str, query: Query) -> Response:
    """Keep the state of a running job; the job goes on."""
    with waiting(query["wait"]) as seconds:
        return answer(service().jobs.savepoint(job_name, seconds))
