"""/jobs: the paper's Job Management API"""

from __future__ import annotations

from flask import Response, jsonify

from speck.api import shapes
from speck.api.access import caller, name_object, reach
from speck.api.context import acting, is_over, looking, service
from speck.api.hidden import show_job
from speck.api.requests import (
    Query,
    document,
    drop_options,
    dropping,
    fresh,
    paging,
    refuse_other_name,
    text,
    wait,
)
from speck.api.routes import Routes, answer, listing, no_content
from speck.model.composition import CompositionDescription, composition_of_one
from speck.model.job import JobDescription
from speck.model.job_state import JobState
from speck.model.shown import render
from speck.service.job_list import AT_ONCE
from speck.service.jobs import JobOutcome
from speck.spec.schema import JobSchema, job_from_data

WAIT_S = 60.0
_LEAST_AT_ONCE = 32
"""Jobs of a list that are looked at together, at least: few are left over where a filter or a
scope hides many."""
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
        text(
            "state",
            "only jobs in this state; `failed` includes `restarting`",
            tuple(map(str, JobState)),
        ),
        fresh(),
        *paging("job_name"),
    ],
    answers={200: shapes.JOBS},
)
def list_jobs(query: Query) -> Response:
    """All jobs by name, those of compositions too."""
    has_job = reach().has_job
    if query["fresh"] and not query["after"]:  # once for all pages
        site = query["site"]
        with looking(f"poll the site{f' {site}' if site else 's'} of jobs"):
            service().jobs.refresh(has_job, site)
    at_once = min(AT_ONCE, max(_LEAST_AT_ONCE, (query["limit"] or AT_ONCE) + 1))
    jobs = service().jobs.behind(query["after"] or "", query["site"], query["state"], at_once)
    seen = (job for job in jobs if has_job(job.job_name))
    return listing("jobs", map(show_job, seen), "job_name", query)


@routes.post("/jobs", query=[wait(WAIT_S), *dropping()], body=JobSchema, answers=_STARTING)
def add_job(query: Query) -> Response:
    """Start a job outside any composition: 201 when it runs, 202 while it is being deployed, 200
    when the same job exists and needs nothing. Posting the same job after a failure tries again.
    Another file under the same path makes it another job: 409."""
    body = document()
    description = job_from_data(body.data, body.line_of)
    _refuse_outside(description)
    with acting(f"start {description.job_name}", query["wait"]) as seconds:
        jobs, by, sees = service().jobs, caller().actor, reach().has_composition
        outcome = jobs.post(
            description,
            seconds,
            body.line_of,
            **drop_options(query),
            by=by,
            sees=sees,
            gives_up=is_over,
        )
    return _answer(outcome)


def _refuse_outside(description: JobDescription) -> None:
    name_object(f"/jobs/{description.job_name}")
    name = composition_of_one(description.job_name)
    reach().refuse_composition(CompositionDescription(name, (description,)))


@routes.get("/jobs/<job_name>", query=[fresh()], answers={200: shapes.JobShape})
def get_job(job_name: str, query: Query) -> Response:
    """A job, with its state as it was last polled."""
    if query["fresh"]:
        with looking(f"poll the site of {job_name}"):
            service().jobs.refresh(lambda name: name == job_name)
    return jsonify(show_job(service().jobs.get(job_name)))


@routes.put(
    "/jobs/<job_name>",
    query=[wait(WAIT_S), *dropping()],
    body=JobSchema,
    answers={200: shapes.JobShape, 202: shapes.JobAcceptedShape},
)
def put_job(job_name: str, query: Query) -> Response:
    """Update or move a job that was posted alone."""
    body = document()
    data = body.data
    if isinstance(data, dict):
        data = {"job_name": job_name, **data}
    description = job_from_data(data, body.line_of)
    refuse_other_name("job_name", job_name, description.job_name)
    _refuse_outside(description)
    with acting(f"change {job_name}", query["wait"]) as seconds:
        jobs, by, sees = service().jobs, caller().actor, reach().has_composition
        outcome = jobs.put(
            job_name,
            description,
            seconds,
            body.line_of,
            **drop_options(query),
            by=by,
            sees=sees,
            gives_up=is_over,
        )
    return _answer(outcome)


@routes.delete(
    "/jobs/<job_name>",
    query=[wait(WAIT_S), *dropping()],
    answers={204: None, 202: shapes.JobAcceptedShape},
)
def delete_job(job_name: str, query: Query) -> Response:
    """Stop and remove a job that was posted alone."""
    with acting(f"remove {job_name}", query["wait"]) as seconds:
        outcome = service().jobs.delete(
            job_name,
            seconds,
            **drop_options(query),
            by=caller().actor,
            gives_up=is_over,
        )
    return _answer(outcome)


@routes.get("/jobs/<job_name>/exceptions", answers={200: shapes.EXCEPTIONS})
def list_exceptions(job_name: str) -> Response:
    """The job's exceptions as its engine reports them, newest first."""
    with looking(f"read the exceptions of {job_name}"):
        return answer({"exceptions": service().jobs.exceptions(job_name)})


@routes.get("/jobs/<job_name>/metrics", answers={200: shapes.JobMetricsShape})
def get_job_metrics(job_name: str) -> Response:
    """The engine's current counters of the job, by operator-scoped name (none while the engine does
    not list it, e.g. during its start), and its rates between the collector's last two polls."""
    with looking(f"read the metrics of {job_name}"):
        metrics = service().jobs.metrics(job_name)
    return answer({**render(metrics), **render(metrics.rates)})


@routes.post(
    "/jobs/<job_name>/savepoints",
    query=[wait(WAIT_S)],
    answers={201: shapes.SavepointShape, 202: shapes.SavepointShape},
)
def take_savepoint(job_name: str, query: Query) -> Response:
    """Take a savepoint of a running job, which continues to run."""
    with acting(f"take a savepoint of {job_name}", query["wait"]) as seconds:
        savepoint = service().jobs.savepoint(job_name, seconds, is_over)
    is_done = savepoint.location is not None
    shape = {**render(savepoint), "state": "done" if is_done else "running"}
    return answer(shape, 201 if is_done else 202)


def _answer(outcome: JobOutcome) -> Response:
    """202 while a change is under way, 204 for a job that is gone."""
    change = outcome.under_way
    if change is not None:
        shape = {"change": change.id, "revision": change.revision, "state": change.state}
        return answer(shape, 202, f"/changes/{change.id}")
    if outcome.job is None:
        return no_content()
    shown, location = show_job(outcome.job), f"/jobs/{outcome.job.job_name}"
    return answer(shown, 201 if outcome.created else 200, location)
