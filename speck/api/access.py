"""Authorization: one table with the role that each route requires, and the checks before each
request.

As long as no token exists, the service answers on loopback only and treats every local user as an
administrator. The checks of Host and Origin keep out web pages that are open in a local browser.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import urlsplit

from flask import g, request

from speck.api.context import service
from speck.api.problems import MissingLengthError, UnauthorizedError
from speck.errors import ForbiddenError
from speck.service.tokens import Role

READ_METHODS = ("GET", "HEAD", "OPTIONS")


class Access(NamedTuple):
    """The lowest role that may use a route; None means anybody. With `own_site`, a token of role
    `site` may use it too, for the site that it is bound to."""

    role: Role | None
    own_site: bool = False


_PUBLIC = Access(None)
_VIEW = Access(Role.VIEWER)
_DEPLOY = Access(Role.DEPLOYER)
_ADMIN = Access(Role.ADMIN)
_ADMIN_OR_SITE = Access(Role.ADMIN, own_site=True)

ACCESS: Mapping[tuple[str, str], Access] = {
    ("GET", "/livez"): _PUBLIC,
    ("GET", "/readyz"): _PUBLIC,
    ("GET", "/openapi.json"): _PUBLIC,
    ("GET", "/docs"): _PUBLIC,
    ("GET", "/metrics"): _VIEW,
    ("GET", "/metrics/export"): _VIEW,
    ("POST", "/metrics/import"): _ADMIN,
    ("GET", "/sites"): _VIEW,
    ("POST", "/sites"): _ADMIN_OR_SITE,
    ("GET", "/sites/<name>"): _VIEW,
    ("PUT", "/sites/<name>"): _ADMIN_OR_SITE,
    ("DELETE", "/sites/<name>"): _ADMIN,
    ("POST", "/sites/<name>/heartbeat"): _ADMIN_OR_SITE,
    ("GET", "/sites/<name>/commands"): _ADMIN_OR_SITE,
    ("POST", "/sites/<name>/commands/<command_id>"): _ADMIN_OR_SITE,
    ("GET", "/transfers/<transfer_id>"): _ADMIN_OR_SITE,
    ("PUT", "/transfers/<transfer_id>"): _ADMIN_OR_SITE,
    ("GET", "/sites/<name>/check"): _VIEW,
    ("POST", "/sites/<name>/calibration"): _DEPLOY,
    ("POST", "/sites/<name>/forget"): _ADMIN,
    ("GET", "/jobs"): _VIEW,
    ("POST", "/jobs"): _DEPLOY,
    ("GET", "/jobs/<job_name>"): _VIEW,
    ("PUT", "/jobs/<job_name>"): _DEPLOY,
    ("DELETE", "/jobs/<job_name>"): _DEPLOY,
    ("GET", "/jobs/<job_name>/exceptions"): _VIEW,
    ("GET", "/jobs/<job_name>/metrics"): _VIEW,
    ("GET", "/rates"): _VIEW,
    ("POST", "/jobs/<job_name>/savepoints"): _DEPLOY,
    ("POST", "/jobs/<job_name>/forget"): _ADMIN,
    ("GET", "/compositions"): _VIEW,
    ("POST", "/compositions"): _DEPLOY,
    ("GET", "/compositions/<name>"): _VIEW,
    ("DELETE", "/compositions/<name>"): _DEPLOY,
    ("GET", "/compositions/<name>/plan"): _VIEW,
    ("GET", "/compositions/<name>/graph"): _VIEW,
    ("GET", "/compositions/<name>/drift"): _VIEW,
    ("GET", "/compositions/<name>/revisions"): _VIEW,
    ("POST", "/compositions/<name>/rollback"): _DEPLOY,
    ("POST", "/compositions/<name>/forget"): _ADMIN,
    ("GET", "/compositions/<name>/autopilot"): _VIEW,
    ("PUT", "/compositions/<name>/autopilot"): _DEPLOY,
    ("GET", "/changes"): _VIEW,
    ("GET", "/changes/<change_id>"): _VIEW,
    ("POST", "/changes/<change_id>/cancel"): _DEPLOY,
    ("GET", "/analyses"): _VIEW,
    ("POST", "/analyses"): _DEPLOY,
    ("GET", "/analyses/<analysis_id>"): _VIEW,
    ("DELETE", "/analyses/<analysis_id>"): _DEPLOY,
    ("GET", "/placements"): _VIEW,
    ("POST", "/placements"): _DEPLOY,
    ("GET", "/placements/<placement_id>"): _VIEW,
    ("POST", "/placements/<placement_id>/apply"): _DEPLOY,
    ("GET", "/artifacts"): _VIEW,
    ("PUT", "/artifacts/<sha256>"): _DEPLOY,
    ("GET", "/events"): _VIEW,
    ("GET", "/tokens"): _ADMIN,
    ("POST", "/tokens"): _ADMIN,
    ("DELETE", "/tokens/<name>"): _ADMIN,
    ("GET", "/backup"): _ADMIN,
}
"""Every route. Requests to a route that is missing here are refused."""

_RANK = {Role.VIEWER: 1, Role.DEPLOYER: 2, Role.ADMIN: 3}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent the request: the token's name (None if there are no tokens), its role and site."""

    name: str | None
    role: Role
    site: str | None = None


def guard() -> None:
    """Check a request before its route runs. Raises UnauthorizedError, ForbiddenError,
    MissingLengthError."""
    if request.url_rule is None:
        return  # Flask answers 404 or 405, whoever sent it
    method = "GET" if request.method == "HEAD" else request.method
    access = ACCESS.get((method, request.url_rule.rule))
    if access is None:
        raise ForbiddenError(f"cannot {method} {request.path}: this route has no role")
    if access.role is not None:
        _refuse_foreign_pages()
        g.caller = _caller()
        _refuse_by_role(g.caller, access)
    if "Transfer-Encoding" in request.headers:
        raise MissingLengthError(
            "cannot take a chunked body: send it with Content-Length (curl: a file, no pipe)"
        )


def caller() -> Caller:
    """Who sent this request. Only for routes that are not public."""
    current: Caller = g.caller
    return current


def refuse_foreign_site(name: str) -> None:
    """Raises ForbiddenError for a token of role `site` that is bound to another site."""
    token = caller()
    if token.role is Role.SITE and token.site != name:
        raise ForbiddenError(
            f"cannot change site {name!r}: token {token.name!r} is bound to site {token.site!r}"
        )


def _caller() -> Caller:
    tokens = service().tokens
    config = service().config
    scheme, _, secret = request.headers.get("Authorization", "").partition(" ")
    if not tokens.any():
        if not config.loopback:
            raise UnauthorizedError(
                "cannot answer past loopback without tokens: stop the service and make one with"
                " `speck token add NAME --role admin`"
            )
        _refuse_foreign_host(config.host)
        return Caller(None, Role.ADMIN)
    if not secret or scheme.lower() != "bearer":
        raise UnauthorizedError(
            f"cannot {request.method} {request.path} without a token:"
            " send it as `Authorization: Bearer TOKEN`"
        )
    token = tokens.verify(secret.strip())
    if token is None:
        raise UnauthorizedError(
            f"cannot {request.method} {request.path}: this token is unknown; it may be revoked"
        )
    return Caller(token["name"], Role(token["role"]), token["site"])


def _refuse_by_role(requester: Caller, access: Access) -> None:
    assert access.role is not None
    if requester.role is Role.SITE:
        if not access.own_site:
            raise ForbiddenError(_missing_role(requester, access.role))
        name = (request.view_args or {}).get("name")
        if name is not None:
            refuse_foreign_site(name)
    elif _RANK[requester.role] < _RANK[access.role]:
        raise ForbiddenError(_missing_role(requester, access.role))


def _missing_role(requester: Caller, needed: Role) -> str:
    return (
        f"cannot {request.method} {request.path} with token {requester.name!r}:"
        f" its role is {requester.role}, but this requires {needed}"
    )


def _refuse_foreign_host(configured: str) -> None:
    """Refuse pages whose host name was rebound to this machine (DNS rebinding): a browser sends
    that name as Host."""
    header = request.headers.get("Host")
    if header is None:
        return
    host = _host(header)
    if host not in ("localhost", configured.lower()) and not _is_loopback(host):
        raise ForbiddenError(
            f"cannot answer for host {header!r} without tokens: use http://127.0.0.1, or make a"
            " token with `speck token add NAME --role admin`"
        )


def _refuse_foreign_pages() -> None:
    """Refuse changes requested by a page of another origin; browsers send it as Origin."""
    origin = request.headers.get("Origin")
    if origin is None or request.method in READ_METHODS:
        return
    if urlsplit(origin).netloc.lower() != request.headers.get("Host", "").lower():
        raise ForbiddenError(
            f"cannot {request.method} {request.path} for a page of {origin!r}:"
            " requests from pages of other origins are refused"
        )


def _host(header: str) -> str:
    """The name or address in a Host header, without its port."""
    try:
        return (urlsplit(f"//{header}").hostname or "").lower()
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
