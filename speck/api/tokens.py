"""/tokens and /backup: for administrators"""

from __future__ import annotations

from flask import Response

from speck.api import shapes
from speck.api.context import service
from speck.api.requests import Query, document, mapping, paging
from speck.api.routes import Routes, answer, gone, listing
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
    """Make a token. With the first one, every request needs a token."""
    read = document()
    data = mapping(read, "token", ["name", "role", "site"])
    problems = [
        Problem(field, "missing" if field not in data else "must be text", read.line_of(field))
        for field in ("name", "role")
        if not isinstance(data.get(field), str)
    ]
    site = data.get("site")
    if site is not None and not isinstance(site, str):
        problems.append(Problem("site", "must be text", read.line_of("site")))
    if problems:
        raise InvalidError(f"cannot read the token: {problems[0]}", problems)
    secret = service().tokens.add(data["name"], data["role"], site)
    body = {"name": data["name"], "role": data["role"], "site": site, "token": secret}
    response = answer(Answer(201, body))
    response.headers["Cache-Control"] = "no-store"
    return response


@routes.delete("/tokens/<name>", answers={204: None})
def delete_token(name: str) -> Response:
    """Refuse the token from now on."""
    service().tokens.remove(name)
    return gone()


@routes.get(
    "/backup", answers={200: {"type": "string", "format": "binary"}}, answer_type="application/gzip"
)
def backup() -> Response:
    """The whole state as one file for `speck restore`; artifacts are not in it."""
    at = rfc3339(service().clock.now())[:19].replace(":", "")
    response = Response(service().records.store.backup(), content_type="application/gzip")
    response.headers["Content-Disposition"] = f'attachment; filename="speck-{at}.backup.gz"'
    return response
