"""/tokens and /backup: for administrators"""

from __future__ import annotations

from flask import Response

from speck.api import shapes
from speck.api.context import service
from speck.api.requests import Query, document, mapping, paging
from speck.api.routes import Routes, answer, listing, no_content
from speck.clock import rfc3339
from speck.errors import InvalidError, Problem
from speck.service.answer import Answer

routes = Routes("administration", "Tokens and backups")


@routes.get("/tokens", query=paging("name"), answers={200: shapes.TOKENS})
def list_tokens(query: Query) -> Response:
    """All tokens by name, without their secrets."""
    return listing("tokens", service().tokens.all(), "name", query)


@routes.post("/tokens", body=shapes.NewTokenShape, answers={201: shapes.TokenMadeShape})
def add_token() -> Response:
    """Create a token. Once the first one exists, every request requires a token."""
    body = document()
    data = mapping(body, "token", ["name", "role", "site"])
    problems = [
        Problem(field, "missing" if field not in data else "must be text", body.line_of(field))
        for field in ("name", "role")
        if not isinstance(data.get(field), str)
    ]
    site = data.get("site")
    if site is not None and not isinstance(site, str):
        problems.append(Problem("site", "must be text", body.line_of("site")))
    if problems:
        raise InvalidError(f"cannot read the token: {problems[0]}", problems)
    secret = service().tokens.add(data["name"], data["role"], site)
    token = {"name": data["name"], "role": data["role"], "site": site, "token": secret}
    response = answer(Answer(201, token))
    response.headers["Cache-Control"] = "no-store"
    return response


@routes.delete("/tokens/<name>", answers={204: None})
def delete_token(name: str) -> Response:
    """Revoke a token."""
    service().tokens.remove(name)
    return no_content()


@routes.get(
    "/backup", answers={200: {"type": "string", "format": "binary"}}, answer_type="application/gzip"
)
def download_backup() -> Response:
    """The whole state as one file for `speck restore`, without the artifacts."""
    at = rfc3339(service().clock.now())[:19].replace(":", "")
    response = Response(service().records.store.backup(), content_type="application/gzip")
    response.headers["Content-Disposition"] = f'attachment; filename="speck-{at}.backup.gz"'
    return response
