"""/artifacts"""

from __future__ import annotations

from flask import Response

from speck.api import shapes
from speck.api.access import reach
from speck.api.context import service
from speck.api.requests import Query, paging, stream
from speck.api.routes import Routes, answer, listing
from speck.service.answer import Answer

routes = Routes("artifacts", "Jars by the SHA-256 of their content")


@routes.get("/artifacts", query=paging("sha256"), answers={200: shapes.ARTIFACTS})
def list_artifacts(query: Query) -> Response:
    """All artifacts by SHA-256."""
    has_artifact = reach().has_artifact
    artifacts = [each for each in service().artifacts.all() if has_artifact(each)]
    return listing("artifacts", artifacts, "sha256", query)


@routes.put(
    "/artifacts/<sha256>",
    body={"type": "string", "format": "binary"},
    body_types=["application/java-archive"],
    answers={201: shapes.ArtifactShape, 200: shapes.ArtifactShape},
)
def put_artifact(sha256: str) -> Response:
    """Send a jar; a job uses it as `job_path: artifact:<sha256>`."""
    artifacts = service().artifacts
    created = artifacts.put(sha256, stream(service().config.max_artifact))
    return answer(Answer(201 if created else 200, artifacts.get(sha256)))
