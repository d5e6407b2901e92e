"""Health, metrics and the description of the API"""

from __future__ import annotations

from typing import Any, cast

from flask import Response, current_app, jsonify, redirect, render_template

from speck.api import shapes
from speck.api.access import ACCESS
from speck.api.context import context, service
from speck.api.problems import MEDIA_TYPE, problem, retry_headers, status_of
from speck.api.routes import Routes
from speck.errors import StoreError

OPENAPI = "speck-openapi"
_OPENAPI_TEXT = "speck-openapi-text"
_DOCS_TEXT = "speck-docs-text"
_METHODS = ("get", "post", "put", "delete")

routes = Routes("system", "Health, metrics and this description", template_folder="templates")


@routes.get("/livez", answers={200: shapes.HealthShape})
def livez() -> Response:
    """Liveness: the process answers."""
    return jsonify({"status": "ok"})


@routes.get(
    "/readyz",
    answers={200: shapes.HealthShape, 503: shapes.ProblemShape, 507: shapes.ProblemShape},
)
def readyz() -> Response:
    """Readiness: the store accepts writes, and the service is not shutting down. A service that was
    restored from a backup starts no change until an administrator has adopted what runs."""
    try:
        service().check_ready()
    except StoreError as error:  # its message names folders, and anybody may ask
        status = status_of(error)
        detail = f"cannot take requests: {error.public}"
        return problem(status, detail, headers=retry_headers(status))
    return jsonify({"status": "restored" if service().records.restored else "ready"})


@routes.get("/metrics", answers={200: {"type": "string"}}, answer_type="text/plain")
def metrics() -> Response:
    """Metrics for Prometheus."""
    text = context().metrics.text()
    return Response(text, content_type="text/plain; version=0.0.4; charset=utf-8")


@routes.get("/", answers={302: None})
def root() -> Response:
    """Leads to the documentation."""
    return cast(Response, redirect("/docs"))


@routes.get("/openapi.json", answers={200: {"type": "object"}})
def openapi() -> Response:
    """This API as an OpenAPI 3.1 document."""
    # rendered once: anybody may ask, as often as they like, and need not read what they get
    text = current_app.extensions.get(_OPENAPI_TEXT) or _render_document()
    return Response(text, content_type="application/json")


@routes.get("/docs", answers={200: {"type": "string"}}, answer_type="text/html")
def docs() -> Response:
    """This API as a page without scripts or resources from other hosts."""
    # rendered once, too
    response = Response(current_app.extensions.get(_DOCS_TEXT) or _render_docs())
    response.headers["Content-Security-Policy"] = (
        "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'"
    )
    return response


def document() -> dict[str, Any]:
    """The OpenAPI document of the current application."""
    return cast(dict[str, Any], current_app.extensions[OPENAPI]())


def _render_docs() -> bytes:
    api = document()
    page = render_template("docs.html", api=api, groups=_groups(api), shown=_summarize)
    text = current_app.extensions[_DOCS_TEXT] = page.encode()
    return text


def _render_document() -> bytes:
    text = current_app.json.dumps(document()).encode() + b"\n"
    current_app.extensions[_OPENAPI_TEXT] = text
    return text


def complete_openapi(spec: dict[str, Any]) -> dict[str, Any]:
    """Complete flask-smorest's document: errors are problems, operations name their role."""
    for response in spec["components"]["responses"].values():
        response["content"] = {MEDIA_TYPE: next(iter(response["content"].values()))}
    spec["components"]["schemas"].pop("PaginationMetadataDescription", None)
    spec["components"]["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
    for path, operations in spec["paths"].items():
        rule = path.replace("{", "<").replace("}", ">")
        for method in _METHODS:
            if method not in operations:
                continue
            access = ACCESS.get((method.upper(), rule))
            if access is not None and access.role is not None:
                operations[method]["security"] = [{"token": []}]
                operations[method]["x-role"] = str(access.role)
    return spec


def _groups(api: dict[str, Any]) -> list[tuple[dict[str, Any], list[tuple[str, str, Any]]]]:
    """Each tag with its (method, path, operation)."""
    return [
        (
            tag,
            [
                (
                    method.upper(),
                    path,
                    {**operations[method], "path_parameters": operations.get("parameters", [])},
                )
                for path, operations in api["paths"].items()
                for method in _METHODS
                if tag["name"] in operations.get(method, {}).get("tags", ())
            ],
        )
        for tag in api["tags"]
    ]


def _summarize(schema: dict[str, Any]) -> str:
    """A schema in a few words: a name, or a type."""
    if "$ref" in schema:
        return str(schema["$ref"]).rsplit("/", 1)[1]
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if schema.get("type") == "array":
        return f"[{_summarize(schema.get('items', {}))}]"
    for several in ("anyOf", "oneOf", "allOf"):
        if several in schema:
            return " | ".join(_summarize(one) for one in schema[several])
    kind = schema.get("type", "any")
    return " | ".join(kind) if isinstance(kind, list) else str(kind)
