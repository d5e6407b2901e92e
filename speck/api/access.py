"""Who may do what: one table of roles over all routes, and the checks before each request.

Without any token the service answers on loopback only, and then everybody on this machine is
its administrator. A web page that is open in a browser here is not: the checks of Host and
Origin keep it out.
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

READING = ("GET", "HEAD", "OPTIONS")


class Access(NamedTuple):
    """Least role for a route (None: everybody). `own_site`: also a token of role `site`, for
    the site that it is bound to."""

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
    ("GET", "/jobs"): _VIEW,
    ("POST", "/jobs"): _DEPLOY,
    ("GET", "/jobs/<job_name>"): _VIEW,
    ("PUT", "/jobs/<job_name>"): _DEPLOY,
    ("DELETE", "/jobs/<job_name>"): _DEPLOY,
    ("GET", "/jobs/<job_name>/exceptions"): _VIEW,
    ("GET", "/jobs/<job_name>/metrics"): _VIEW,
    ("GET", "/rates"): _VIEW,
    ("POST", "/jobs/<job_name>/savepoints"): _DEPLOY,
    ("GET", "/compositions"): _VIEW,
    ("POST", "/compositions"): _DEPLOY,
    ("GET", "/compositions/<name>"): _VIEW,
    ("DELETE", "/compositions/<name>"): _DEPLOY,
    ("GET", "/compositions/<name>/plan"): _VIEW,
    ("GET", "/compositions/<name>/graph"): _VIEW,
    ("GET", "/compositions/<name>/drift"): _VIEW,
    ("GET", "/compositions/<name>/revisions"): _VIEW,
    ("POST", "/compositions/<name>/rollback"): _DEPLOY,
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
"""Every route. One that is missing here is refused."""

_RANK = {Role.VIEWER: 1, Role.DEPLOYER: 2, Role.ADMIN: 3}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks: the token's name (None without tokens), its role and its site."""

    name: str | None
    role: Role
    site: str | None = None


def guard() -> None:
    """Before each request. Raises UnauthorizedError, ForbiddenError, MissingLengthError."""
    if request.url_rule is None:
        return  # answered with 404 or 405, to everybody alike
    method = "GET" if request.method == "HEAD" else request.method
    access = ACCESS.get((method, request.url_rule.rule))
    if access is None:
        raise ForbiddenError(f"cannot {method} {request.path}: no role is known for this route")
    if access.role is not None:
        _refuse_foreign_pages()
        g.caller = _caller()
        _refuse_by_role(g.caller, access)
    if "Transfer-Encoding" in request.headers:
        raise MissingLengthError(
            "cannot take a chunked body: send it with Content-Length (curl: a file, no pipe)"
        )


def caller() -> Caller:
    """Who asks. Only for routes that are not public."""
    found: Caller = g.caller
    return found


def refuse_foreign_site(name: str) -> None:
    """Raises ForbiddenError for a token of role `site` that is bound to another site."""
    bound = caller()
    if bound.role is Role.SITE and bound.site != name:
        raise ForbiddenError(
            f"cannot change site {name!r}: token {bound.name!r} is bound to site {bound.site!r}"
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
    found = tokens.verify(secret.strip())
    if found is None:
        raise UnauthorizedError(
            f"cannot {request.method} {request.path}: this token is not known; it may be removed"
        )
    return Caller(found["name"], Role(found["role"]), found["site"])


def _refuse_by_role(asking: Caller, access: Access) -> None:
    assert access.role is not None
    if asking.role is Role.SITE:
        if not access.own_site:
            raise ForbiddenError(_too_little(asking, access.role))
        name = (request.view_args or {}).get("name")
        if name is not None:
            refuse_foreign_site(name)
    elif _RANK[asking.role] < _RANK[access.role]:
        raise ForbiddenError(_too_little(asking, access.role))


def _too_little(asking: Caller, needed: Role) -> str:
    return (
        f"cannot {request.method} {request.path} with token {asking.name!r}:"
        f" its role is {asking.role}, this needs {needed}"
    )


def _refuse_foreign_host(configured: str) -> None:
    """A page whose name was made to mean this machine (DNS rebinding) sends its own Host."""
    given = request.headers.get("Host")
    if given is None:
        return
    host = _host(given)
    if host not in ("localhost", configured.lower()) and not _is_loopback(host):
        raise ForbiddenError(
            f"cannot answer for host {given!r} without tokens: use http://127.0.0.1, or make a"
            " token with `speck token add NAME --role admin`"
        )


def _refuse_foreign_pages() -> None:
    """A browser tells which page a request that changes something comes from."""
    origin = request.headers.get("Origin")
    if origin is None or request.method in READING:
        return
    if urlsplit(origin).netloc.lower() != request.headers.get("Host", "").lower():
        raise ForbiddenError(
            f"cannot {request.method} {request.path} for a page of {origin!r}:"
            " requests of other sites' pages are refused"
        )


def _host(given: str) -> str:
    """The name or address in a Host header, without its port."""
    try:
        return (urlsplit(f"//{given}").hostname or "").lower()
    except ValueError:
        return ""


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
