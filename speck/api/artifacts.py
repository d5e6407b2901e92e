"""/artifacts"""

from __future__ import annotations

from flask import Response, request

from speck.api import shapes
from speck.api.access import caller, reach
from speck.api.context import occupying, service
from speck.api.requests import Query, flag, paging, stream
from speck.api.routes import Routes, answer, listing, no_content
from speck.model.token import Role

routes = Routes("artifacts", "Programs (jars, archives, Python) by the SHA-256 of their content")


@routes.get("/artifacts", query=paging("sha256"), answers={200: shapes.ARTIFACTS})
def list_artifacts(query: Query) -> Response:
    """The artifacts by SHA-256, each with the revisions and jobs that use it."""
    allowed = reach()
    artifacts = (
        allowed.show_artifact(each)
        for each in service().artifacts.all()
        if allowed.has_artifact(each.sha256)
    )
    return listing("artifacts", artifacts, "sha256", query)


@routes.put(
    "/artifacts/<sha256>",
    body={"type": "string", "format": "binary"},
    body_types=["application/java-archive"],
    answers={201: shapes.ArtifactShape, 200: shapes.ArtifactShape},
)
def put_artifact(sha256: str) -> Response:
    """Send a jar, another archive or a Python program; a job uses it as
    `job_path: artifact:<sha256>`."""
    artifacts = service().artifacts
    chunks = stream(service().config.max_artifact)
    with occupying(f"take artifact {sha256[:12]}"):
        created = artifacts.put(sha256, chunks, request.content_length or 0, caller().name)
    artifact = reach().show_artifact(artifacts.get(sha256))
    return answer(artifact, 201 if created else 200)


@routes.delete("/artifacts/<sha256>", answers={204: None})
def delete_artifact(sha256: str) -> Response:
    """Delete an artifact that nothing uses; 409 names what uses it. A deployer deletes only what
    its own token has sent."""
    requester = caller()
    any_owner = requester.role is Role.ADMIN
    shows = reach().has_use
    service().artifacts.delete(sha256, requester.name, any_owner=any_owner, shows=shows)
    return no_content()


@routes.post(
    "/artifacts/gc",
    query=[flag("dry_run", "delete nothing")],
    answers={200: shapes.CollectedListShape},
)
def collect_artifacts(query: Query) -> Response:
    """Delete all artifacts that nothing uses and that are older than the grace period, in the
    service's folder and at the engines."""
    dry_run, by = query["dry_run"], caller().actor
    with occupying("collect artifacts"):
        collected = service().artifacts.collect(dry_run=dry_run, by=by)
        kept = [each for each in service().artifacts.list_young() if each not in collected]
        uploads = service().uploads.collect(dry_run=dry_run, by=by)
    return answer({"artifacts": collected, "kept": kept, "uploads": uploads})
