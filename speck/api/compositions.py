"""/compositions: the paper's Composition Management API"""

from __future__ import annotations

from collections.abc import Iterable

from flask import Response, jsonify, request

from speck.api import shapes
from speck.api.access import caller, name_object, reach
from speck.api.context import acting, is_over, looking, service
from speck.api.hidden import show_composition, show_description
from speck.api.requests import (
    Query,
    document,
    drop_options,
    dropping,
    flag,
    fresh,
    idempotency_key,
    if_match,
    mapping,
    paging,
    text,
    wait,
)
from speck.api.routes import JSON, Routes, answer, answer_accepted, listing, no_content
from speck.errors import InvalidError, Problem
from speck.model.composition import Head
from speck.model.job_state import JobState
from speck.model.token import Role
from speck.service.compositions import ApplyRequest
from speck.spec import drawing
from speck.spec.documents import YAML_TYPES, limits_for
from speck.spec.resolve import LineOf
from speck.spec.schema import CompositionSchema, composition_from_data
from speck.spec.yaml_writer import to_yaml

routes = Routes("compositions", "Named sets of jobs, each with a desired state")

_IF_MATCH = if_match('the expected newest revision, like `"3"`; 412 when there is a newer one')
_HEADERS = (
    _IF_MATCH,
    idempotency_key("a repeated request with the same key and body gets the first response"),
)
_DRY_RUN = flag("dry_run", "return the plan and change nothing")
_MERMAID = "text/plain"
_DOT = "text/vnd.graphviz"
_FORCE = flag("force", "allow a change that removes more than half of the deployed jobs")
_ADOPT = flag("adopt", "take over jobs of the same names that were posted alone")


@routes.get(
    "/compositions",
    query=[
        text("site", "only compositions with a job at this site"),
        text("state", "only compositions with a job in this state", tuple(map(str, JobState))),
        *paging("name"),
    ],
    answers={200: shapes.COMPOSITIONS},
)
def list_compositions(query: Query) -> Response:
    """All compositions by name."""
    return listing("compositions", _filter(query["site"], query["state"]), "name", query)


def _filter(site: str | None, state: str | None) -> Iterable[Head]:
    has_composition = reach().has_composition
    heads = [head for head in service().composition_views.all() if has_composition(head.name)]
    if site is None and state is None:
        return heads
    names = {job.composition for job in service().jobs.all(site=site, state=state)}
    return [head for head in heads if head.name in names]


@routes.post(
    "/compositions",
    query=[wait(), _DRY_RUN, _ADOPT, *dropping(), _FORCE],
    headers=_HEADERS,
    body=CompositionSchema,
    answers={202: shapes.AcceptedShape, 200: shapes.AcceptedShape},
)
def apply(query: Query, headers: Query) -> Response:
    """Make this the composition's desired state."""
    most_jobs = service().config.max_jobs
    body = document(limits_for(most_jobs))
    description = composition_from_data(body.data, body.line_of, most_jobs)
    name_object(f"/compositions/{description.name}")
    reach().refuse_composition(description)
    doing = "plan" if query["dry_run"] else "apply"
    with acting(f"{doing} {description.name}", 0 if query["dry_run"] else query["wait"]) as seconds:
        options = _request(query, headers, seconds, body.line_of)
        return answer_accepted(service().compositions.apply(description, options))


@routes.get(
    "/compositions/<name>",
    query=[fresh()],
    answers={200: shapes.CompositionShape},
    other_types=sorted(YAML_TYPES),
)
def get_composition(name: str, query: Query) -> Response:
    """The desired and the deployed jobs, and the state of each; the ETag is the revision.

    With `Accept: application/yaml` the newest revision as a document that can be applied again
    (a viewer sees no arguments of jobs).
    """
    _refresh(name, query)
    composition = service().composition_views.get(name)
    media = request.accept_mimetypes.best_match([JSON, *YAML_TYPES], JSON)
    if media == JSON:
        response = jsonify(show_composition(composition))
    else:
        newest = service().composition_views.description(name)
        description = show_description(newest)
        response = Response(to_yaml(description), content_type=f"{media}; charset=utf-8")
    response.set_etag(str(composition.head.revision))
    return response


def _refresh(name: str, query: Query) -> None:
    if query["fresh"]:
        with looking(f"poll the sites of {name}"):
            service().composition_views.refresh(name)


@routes.delete(
    "/compositions/<name>",
    query=[wait(), _DRY_RUN, *dropping()],
    headers=[_IF_MATCH],
    answers={202: shapes.AcceptedShape, 204: None, 200: shapes.AcceptedShape},
)
def delete_composition(name: str, query: Query, headers: Query) -> Response:
    """Remove every job of the composition: 202, or 204 if that is done within `wait`; 200 for a
    plan only."""
    with acting(f"remove {name}", query["wait"]) as seconds:
        removed = service().compositions.delete(
            name,
            seconds,
            **drop_options(query),
            dry_run=query["dry_run"],
            if_match=headers["If-Match"],
            by=caller().actor,
            gives_up=is_over,
        )
    return no_content() if removed.done else answer_accepted(removed)


@routes.get("/compositions/<name>/plan", answers={200: shapes.PlanShape})
def get_plan(name: str) -> Response:
    """The plan that would turn the observed state into the desired one."""
    with looking(f"plan {name}"):
        return answer(service().composition_views.plan(name))


@routes.get(
    "/compositions/<name>/graph",
    query=[text("format", "json (default), mermaid or dot", ("json", "mermaid", "dot"))],
    answers={200: shapes.GraphShape},
    other_types=[_MERMAID, _DOT],
)
def get_graph(name: str, query: Query) -> Response:
    """The jobs and the links between them."""
    graph = service().composition_views.graph(name)
    if query["format"] == "mermaid":
        return Response(drawing.to_mermaid(graph), content_type=f"{_MERMAID}; charset=utf-8")
    if query["format"] == "dot":
        return Response(drawing.to_dot(graph), content_type=f"{_DOT}; charset=utf-8")
    return jsonify(drawing.to_json(graph))


@routes.get("/compositions/<name>/drift", query=[fresh()], answers={200: shapes.DRIFT})
def get_drift(name: str, query: Query) -> Response:
    """Differences between the observed and the deployed state that no change made."""
    _refresh(name, query)
    return answer({"drift": service().composition_views.drift(name)})


@routes.get("/compositions/<name>/revisions", answers={200: shapes.REVISIONS})
def list_revisions(name: str) -> Response:
    """All revisions, oldest first."""
    return answer({"revisions": service().composition_views.revisions(name)})


@routes.post(
    "/compositions/<name>/rollback",
    query=[wait(), _DRY_RUN, _ADOPT, *dropping(), _FORCE],
    headers=_HEADERS,
    body=shapes.RollbackShape,
    answers={202: shapes.AcceptedShape, 200: shapes.AcceptedShape},
)
def roll_back(name: str, query: Query, headers: Query) -> Response:
    """Apply an earlier revision as a new one: its code and wiring, never its state."""
    body = document()
    revision = mapping(body, "rollback", ["revision"]).get("revision")
    if not isinstance(revision, int) or isinstance(revision, bool) or revision < 1:
        fault = "must be a whole number, at least 1"
        raise InvalidError(
            f"cannot roll back: revision {fault}",
            [Problem("revision", fault, body.line_of("revision"))],
        )
    if reach().limited:
        reach().refuse_composition(service().composition_views.description(name, revision))
    wait_s = 0 if query["dry_run"] else query["wait"]
    with acting(f"roll back {name}", wait_s) as seconds:
        options = _request(query, headers, seconds)
        return answer_accepted(service().compositions.rollback(name, revision, options))


def _request(
    query: Query, headers: Query, seconds: float, line_of: LineOf | None = None
) -> ApplyRequest:
    return ApplyRequest(
        wait_s=seconds,
        gives_up=is_over,
        dry_run=query["dry_run"],
        adopt=query["adopt"],
        **drop_options(query),
        force=query["force"],
        if_match=headers["If-Match"],
        idempotency_key=headers["Idempotency-Key"],
        by=caller().actor,
        any_client_id=caller().role is Role.ADMIN,
        line_of=line_of,
        sees=reach().has_composition,
    )
