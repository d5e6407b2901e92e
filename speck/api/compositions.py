"""/compositions: the paper's Composition Management API"""

from __future__ import annotations

from collections.abc import Iterable

from flask import Response, jsonify

from speck.api import shapes
from speck.api.access import caller
from speck.api.context import service, waiting
from speck.api.requests import (
    Query,
    document,
    flag,
    idempotency_key,
    if_match,
    mapping,
    paging,
    text,
    wait,
)
from speck.api.routes import Routes, answer, listing
from speck.errors import InvalidError, Problem
from speck.model.values import JsonObject
from speck.service.compositions import Request
from speck.spec.resolve import LineOf
from speck.spec.schema import CompositionSchema, composition_from_data

routes = Routes("compositions", "Named sets of jobs, each with a desired state")

_IF_MATCH = if_match('the revision that must be the newest, like `"3"`; 412 when it is not')
_HEADERS = (
    _IF_MATCH,
    idempotency_key("sent again with the same body, it gets the first answer again"),
)
_DRY_RUN = flag("dry_run", "answer with the plan and change nothing")
_DRAIN = flag(
    "drain",
    "let a link run empty before its reader leaves it; false: what is queued is abandoned",
    default=True,
)
_FORCE = flag("force", "remove more than half of the deployed jobs if that is asked for")
_ADOPT = flag("adopt", "take in jobs of these names that were posted alone")


@routes.get(
    "/compositions",
    query=[
        text("site", "only compositions with a job at this site"),
        text("state", "only compositions with a job in this state", shapes.JOB_STATES),
        *paging("name"),
    ],
    answers={200: shapes.COMPOSITIONS},
)
def list_compositions(query: Query) -> Response:
    """All compositions by name."""
    return listing("compositions", _chosen(query["site"], query["state"]), "name", query)


def _chosen(site: str | None, state: str | None) -> Iterable[JsonObject]:
    found = service().compositions.all()
    if site is None and state is None:
        return found
    named = {job["composition"] for job in service().jobs.all(site=site, state=state)}
    return [head for head in found if head["name"] in named]


@routes.post(
    "/compositions",
    query=[wait(), _DRY_RUN, _ADOPT, _DRAIN, _FORCE],
    headers=_HEADERS,
    body=CompositionSchema,
    answers={202: shapes.AcceptedShape, 200: shapes.AcceptedShape},
)
def apply(query: Query, headers: Query) -> Response:
    """Make this the composition's desired state."""
    read = document()
    description = composition_from_data(read.data, read.line_of)
    with waiting(query["wait"]) as seconds:
        asked = _request(query, headers, seconds, read.line_of)
        return answer(service().compositions.apply(description, asked))


@routes.get("/compositions/<name>", answers={200: shapes.CompositionShape})
def get_composition(name: str) -> Response:
    """What is desired, what is deployed, and how each job is; ETag is the revision."""
    found = service().compositions.get(name)
    response = jsonify(found)
    response.set_etag(str(found["desired"]["revision"]))
    return response


@routes.delete(
    "/compositions/<name>",
    query=[
        wait(),
        flag(
            "drain",
            "let every link run empty before its reader stops; false: cancel all jobs at once",
            default=True,
        ),
    ],
    headers=[_IF_MATCH],
    answers={202: shapes.AcceptedShape, 204: None},
)
def delete_composition(name: str, query: Query, headers: Query) -> Response:
    """Remove every job of the composition: 202, or 204 when it is gone within `wait`."""
    with waiting(query["wait"]) as seconds:
        return answer(
            service().compositions.delete(
                name,
                seconds,
                drain=query["drain"],
                if_match=headers["If-Match"],
                by=caller().name,
            )
        )


@routes.get("/compositions/<name>/plan", answers={200: shapes.PlanShape})
def plan(name: str) -> Response:
    """What would be done to get from what is there to what is desired."""
    return jsonify(service().compositions.plan(name))


@routes.get(
    "/compositions/<name>/graph",
    query=[text("format", "json (default), mermaid or dot", ("json", "mermaid", "dot"))],
    answers={200: shapes.GraphShape},
)
def graph(name: str, query: Query) -> Response:
    """The jobs and the links between them."""
    found = service().compositions.graph(name)
    if query["format"] == "mermaid":
        return Response(found.to_mermaid(), content_type="text/plain; charset=utf-8")
    if query["format"] == "dot":
        return Response(found.to_dot(), content_type="text/vnd.graphviz; charset=utf-8")
    return jsonify(found.to_json())


@routes.get("/compositions/<name>/drift", answers={200: shapes.DRIFT})
def drift(name: str) -> Response:
    """Where what is there differs from what is desired though nobody asked."""
    return jsonify(service().compositions.drift(name))


@routes.get("/compositions/<name>/revisions", answers={200: shapes.REVISIONS})
def revisions(name: str) -> Response:
    """All revisions, oldest first."""
    return jsonify(service().compositions.revisions(name))


@routes.post(
    "/compositions/<name>/rollback",
    query=[wait(), _DRY_RUN, _ADOPT, _DRAIN, _FORCE],
    headers=_HEADERS,
    body=shapes.RollbackShape,
    answers={202: shapes.AcceptedShape, 200: shapes.AcceptedShape},
)
def rollback(name: str, query: Query, headers: Query) -> Response:
    """Apply an earlier revision as a new one: code and wiring, never state."""
    read = document()
    revision = mapping(read, "rollback", ["revision"]).get("revision")
    if not isinstance(revision, int) or isinstance(revision, bool) or revision < 1:
        fault = "must be a whole number, at least 1"
        raise InvalidError(
            f"cannot roll back: revision {fault}",
            [Problem("revision", fault, read.line_of("revision"))],
        )
    with waiting(query["wait"]) as seconds:
        asked = _request(query, headers, seconds)
        return answer(service().compositions.rollback(name, revision, asked))


def _request(
    query: Query, headers: Query, seconds: float, line_of: LineOf | None = None
) -> Request:
    return Request(
        wait_s=seconds,
        dry_run=query["dry_run"],
        adopt=query["adopt"],
        drain=query["drain"],
        force=query["force"],
        if_match=headers["If-Match"],
        idempotency_key=headers["Idempotency-Key"],
        by=caller().name,
        line_of=line_of,
    )
