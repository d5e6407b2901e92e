"""/tokens, /audit and /backup: for administrators"""

from __future__ import annotations

from typing import Any

from flask import Response, jsonify, request
from marshmallow import Schema, ValidationError

from speck.api import shapes
from speck.api.access import caller, name_object
from speck.api.context import occupying, service
from speck.api.downloads import sending, spool
from speck.api.requests import MAX_LIMIT, Query, document, flag, mapping, paging, text, whole
from speck.api.routes import Routes, answer, listing, no_content, page
from speck.clock import rfc3339
from speck.errors import InvalidError
from speck.model.scopes import Scopes
from speck.model.shown import render
from speck.spec.documents import problems_of
from speck.store.audit_log import read_entries, read_newest
from speck.store.backup import write_backup

routes = Routes("administration", "Tokens, the audit log and backups")

_NEW = shapes.NewTokenShape()
_ROTATION = shapes.RotationShape()


@routes.get("/tokens", query=paging("name"), answers={200: shapes.TOKENS})
def list_tokens(query: Query) -> Response:
    """All tokens by name, without their secrets."""
    return listing("tokens", service().tokens.all(), "name", query)


@routes.post("/tokens", body=shapes.NewTokenShape, answers={201: shapes.TokenMadeShape})
def add_token() -> Response:
    """Create a token. Once the first one exists, every request requires a token. With scopes
    (`compositions`, `topics`, `sites`) it sees and changes only what lies inside them."""
    fields = _load(_NEW)
    scopes = Scopes.from_json(fields)
    name_object(f"/tokens/{fields['name']}")
    secret = service().tokens.add(
        fields["name"],
        fields["role"],
        fields.get("site"),
        scopes=scopes,
        expires_in=fields.get("expires_in"),
        by=caller().actor,
    )
    return _show_secret(fields["name"], secret, 201)


@routes.get("/tokens/self", answers={200: shapes.TokenShape})
def get_own_token() -> Response:
    """The token of this request; without tokens, an administrator called `local`."""
    own = caller()
    if own.name is not None:
        return answer(service().tokens.get(own.name))
    nobody = dict.fromkeys(("site", "at", "by", "expires", "last_used"))
    role = {"name": own.actor, "role": str(own.role)}
    return jsonify({**role, **nobody, **own.scopes.to_json()})


@routes.post(
    "/tokens/<name>/rotate",
    body=shapes.RotationShape,
    body_required=False,
    answers={200: shapes.TokenMadeShape},
)
def rotate_token(name: str) -> Response:
    """Give a token a new secret; the old one is valid for ten more minutes."""
    expires_in = _load(_ROTATION).get("expires_in") if request.content_length else None
    secret = service().tokens.rotate(name, expires_in, caller().actor)
    return _show_secret(name, secret, 200)


@routes.delete(
    "/tokens/<name>",
    query=[flag("open", "remove the last token: everybody on this machine is administrator then")],
    answers={204: None},
)
def delete_token(name: str, query: Query) -> Response:
    """Revoke a token."""
    service().tokens.remove(name, leave_open=query["open"], by=caller().actor)
    return no_content()


def _show_secret(name: str, secret: str, status: int) -> Response:
    token = render(service().tokens.get(name))
    del token["last_used"]
    response = answer({**token, "token": secret}, status)
    response.headers["Cache-Control"] = "no-store"
    return response


def _load(shape: Schema) -> dict[str, Any]:
    body = document()
    try:
        fields: dict[str, Any] = shape.load(mapping(body, "token"))
    except ValidationError as error:
        problems = problems_of(error.messages, body.line_of)
        raise InvalidError(f"cannot read the token: {problems[0]}", problems) from error
    return fields


@routes.get(
    "/backup", answers={200: {"type": "string", "format": "binary"}}, answer_type="application/gzip"
)
def download_backup() -> Response:
    """The whole state as one file for `speck restore`, without the artifacts. Changes may go on
    meanwhile: the file names those that were under way."""
    now = service().clock.now()
    with sending("a backup") as send:
        with occupying("take a backup"):
            pieces = write_backup(service().records.store, now)
            file, size = spool(pieces, service().config.home)
        response = send(file, size, "application/gzip")
    at = rfc3339(now)[:19].replace(":", "")
    response.headers["Content-Disposition"] = f'attachment; filename="speck-{at}.backup.gz"'
    return response


@routes.get(
    "/audit",
    query=[
        whole("after", "only lines with a greater number; without it, the newest", 0, 10**12),
        whole("limit", "maximum number of lines", 1, MAX_LIMIT, 100),
    ],
    answers={200: shapes.AUDIT},
)
def read_audit(query: Query) -> Response:
    """The audit log, oldest first: who asked for what, from where, and how it ended."""
    folder, after, limit = service().config.audit, query["after"], query["limit"]
    if after is None:
        return jsonify({"entries": read_newest(folder, limit)})
    return page("entries", read_entries(folder, after), "n", limit)


@routes.get(
    "/audit/verdict",
    query=[text("contains", "a hash noted earlier: its line must be there")],
    answers={200: shapes.AuditVerdictShape},
)
def verify_audit(query: Query) -> Response:
    """Whether all lines of the audit log are there, as this service wrote them."""
    with occupying("verify the audit log"):
        return jsonify(service().audit.verify(query["contains"]).to_json())
