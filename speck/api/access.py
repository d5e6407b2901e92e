"""Authorization: one table with the role that each route requires and what it is about, and the
checks before each request. `speck.service.access_policy` decides what lies within a token's scopes.

As long as no token exists, the service answers on loopback only and treats every local user as an
administrator. The checks of Host and Origin keep out web pages that are open in a local browser.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple
from urllib.parse import urlsplit

from flask import g, request

from speck.api.context import service
from speck.api.problems import MissingLengthError
from speck.errors import ForbiddenError, NotFoundError, UnauthorizedError
from speck.model.scopes import UNLIMITED, Scopes
from speck.model.token import Role
from speck.model.values import LOCAL
from speck.service.access_policy import Reach

READ_METHODS = ("GET", "HEAD", "OPTIONS")
_OWN_PAGES = ("same-origin", "none")


class About(StrEnum):
    """What a route is about: what must lie within the scopes of a limited token (404 otherwise).

    Those with a name are named by the path; `guard` has the policy decide before the route runs.
    """

    NOTHING = "nothing"
    """Nothing that belongs to anybody."""
    INSTALLATION = "installation"
    """All of it: limited tokens are refused (403)."""
    JUDGED = "judged"
    """What a body, a query or a list names. The route has the policy decide (`reach()`); a route
    that does not is an internal error for a limited token."""
    SITE = "site"
    JOB = "job"
    COMPOSITION = "composition"
    CHANGE = "change"
    ANALYSIS = "analysis"
    PLACEMENT = "placement"
    ARTIFACT = "artifact"


class Access(NamedTuple):
    """The lowest role that may use a route (None: anybody), and what the route is about.

    With `own_site`, a token of role `site` may use it too, for the site that it is bound to. A
    GET that `acts` on something is refused to pages of other origins. A `quiet` route changes
    nothing that anybody asked for, and is in the audit log only when it is refused. A GET that is
    `logged` is in it, though it changes nothing: it shows the data of users.
    """

    role: Role | None
    about: tuple[About, ...]
    own_site: bool = False
    acts: bool = False
    quiet: bool = False
    logged: bool = False


def _public(**more: bool) -> Access:
    return Access(None, (About.NOTHING,), **more)


def _view(*about: About, **more: bool) -> Access:
    return Access(Role.VIEWER, about, **more)


def _deploy(*about: About, **more: bool) -> Access:
    return Access(Role.DEPLOYER, about, **more)


def _admin(**more: bool) -> Access:
    return Access(Role.ADMIN, (About.INSTALLATION,), **more)


_NOTHING, _INSTALLATION, _JUDGED = About.NOTHING, About.INSTALLATION, About.JUDGED
_SITE, _JOB, _COMPOSITION = About.SITE, About.JOB, About.COMPOSITION
_CHANGE, _ANALYSIS, _PLACEMENT = About.CHANGE, About.ANALYSIS, About.PLACEMENT
_ARTIFACT = About.ARTIFACT

ACCESS: Mapping[tuple[str, str], Access] = {
    ("GET", "/livez"): _public(),
    ("GET", "/readyz"): _public(),
    ("GET", "/"): _public(),
    ("GET", "/openapi.json"): _public(),
    ("GET", "/docs"): _public(),
    ("GET", "/metrics"): _view(_INSTALLATION),
    ("GET", "/metrics/export"): _view(_JUDGED),
    ("POST", "/metrics/import"): _admin(),
    ("GET", "/sites"): _view(_JUDGED),
    ("POST", "/sites"): _admin(own_site=True),
    ("PUT", "/sites"): _admin(),
    ("GET", "/sites/<name>"): _view(_SITE),
    ("PUT", "/sites/<name>"): _admin(own_site=True),
    ("DELETE", "/sites/<name>"): _admin(),
    ("POST", "/sites/<name>/heartbeat"): _admin(own_site=True, quiet=True),
    ("GET", "/sites/<name>/commands"): _admin(own_site=True, acts=True),
    ("POST", "/sites/<name>/commands/<command_id>"): _admin(own_site=True, quiet=True),
    ("GET", "/transfers/<transfer_id>"): _admin(own_site=True, acts=True),
    ("PUT", "/transfers/<transfer_id>"): _admin(own_site=True, quiet=True),
    ("GET", "/sites/<name>/check"): _view(_SITE, acts=True),
    ("POST", "/sites/<name>/calibration"): _deploy(_SITE),
    ("POST", "/sites/<name>/forget"): _admin(),
    ("GET", "/jobs"): _view(_JUDGED),
    ("POST", "/jobs"): _deploy(_JUDGED),
    ("GET", "/jobs/<job_name>"): _view(_JOB),
    ("PUT", "/jobs/<job_name>"): _deploy(_JOB, _JUDGED),
    ("DELETE", "/jobs/<job_name>"): _deploy(_JOB),
    ("GET", "/jobs/<job_name>/exceptions"): _view(_JOB),
    ("GET", "/jobs/<job_name>/metrics"): _view(_JOB),
    ("GET", "/rates"): _view(_JUDGED),
    ("POST", "/links/records"): _deploy(_JUDGED),
    ("GET", "/links/tap"): _view(_JUDGED, acts=True, logged=True),
    ("POST", "/jobs/<job_name>/savepoints"): _deploy(_JOB),
    ("POST", "/jobs/<job_name>/forget"): _admin(),
    ("GET", "/compositions"): _view(_JUDGED),
    ("POST", "/compositions"): _deploy(_JUDGED),
    ("GET", "/compositions/<name>"): _view(_COMPOSITION),
    ("DELETE", "/compositions/<name>"): _deploy(_COMPOSITION),
    ("GET", "/compositions/<name>/plan"): _view(_COMPOSITION),
    ("GET", "/compositions/<name>/graph"): _view(_COMPOSITION),
    ("GET", "/compositions/<name>/drift"): _view(_COMPOSITION),
    ("GET", "/compositions/<name>/revisions"): _view(_COMPOSITION),
    ("POST", "/compositions/<name>/rollback"): _deploy(_COMPOSITION, _JUDGED),
    ("POST", "/compositions/<name>/forget"): _admin(),
    ("GET", "/compositions/<name>/autopilot"): _view(_COMPOSITION),
    ("PUT", "/compositions/<name>/autopilot"): _deploy(_COMPOSITION, _JUDGED),
    ("GET", "/changes"): _view(_JUDGED),
    ("GET", "/changes/<change_id>"): _view(_CHANGE),
    ("POST", "/changes/<change_id>/cancel"): _deploy(_CHANGE),
    ("GET", "/analyses"): _view(_JUDGED),
    ("POST", "/analyses"): _deploy(_JUDGED),
    ("GET", "/analyses/<analysis_id>"): _view(_ANALYSIS),
    ("DELETE", "/analyses/<analysis_id>"): _deploy(_ANALYSIS),
    ("GET", "/placements"): _view(_JUDGED),
    ("POST", "/placements"): _deploy(_JUDGED),
    ("GET", "/placements/<placement_id>"): _view(_PLACEMENT),
    ("POST", "/placements/<placement_id>/apply"): _deploy(_PLACEMENT, _JUDGED),
    ("POST", "/advice"): _deploy(_JUDGED),
    ("GET", "/artifacts"): _view(_JUDGED),
    ("PUT", "/artifacts/<sha256>"): _deploy(_NOTHING),  # whoever sends it has its content
    ("DELETE", "/artifacts/<sha256>"): _deploy(_ARTIFACT),
    ("POST", "/artifacts/gc"): _admin(),
    ("GET", "/events"): _view(_JUDGED),
    ("GET", "/tokens"): _admin(),
    ("POST", "/tokens"): _admin(),
    ("GET", "/tokens/self"): _view(_NOTHING, own_site=True),
    ("POST", "/tokens/<name>/rotate"): _admin(),
    ("DELETE", "/tokens/<name>"): _admin(),
    ("GET", "/audit"): _admin(),
    ("GET", "/audit/verdict"): _admin(),
    ("GET", "/restored"): _view(_INSTALLATION),
    ("POST", "/restored/adopt"): _admin(),
    ("GET", "/backup"): _admin(),
}
"""Every route. Requests to a route that is missing here are refused."""

_RANK = {Role.VIEWER: 1, Role.DEPLOYER: 2, Role.ADMIN: 3}


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent the request: the token's name (None if there are no tokens), its role, site and
    scopes."""

    name: str | None
    role: Role
    site: str | None = None
    scopes: Scopes = UNLIMITED

    @property
    def actor(self) -> str:
        """The name under which changes are recorded."""
        return self.name or LOCAL


def guard() -> None:
    """Check a request before its route runs. Raises UnauthorizedError, ForbiddenError,
    NotFoundError, MissingLengthError."""
    if request.url_rule is None:
        return  # Flask answers 404 or 405, whoever sent it
    method = "GET" if request.method == "HEAD" else request.method
    access = ACCESS.get((method, request.url_rule.rule))
    if access is None:
        raise ForbiddenError(f"cannot {method} {request.path}: this route has no role")
    if access.role is not None:
        _refuse_foreign_pages(access)
        g.caller = _caller()
        _refuse_by_role(g.caller, access)
        _refuse_by_scope(g.caller, access)
    if "Transfer-Encoding" in request.headers:
        raise MissingLengthError(
            "cannot take a chunked body: send it with Content-Length (curl: a file, no pipe)"
        )


def caller() -> Caller:
    """Who sent this request. Only for routes that are not public."""
    current: Caller = g.caller
    return current


def name_object(path: str) -> None:
    """Note, for the audit log, what this request is about when its body says so."""
    g.audit_object = path
    service().audit.name(g.get("audit_intent"), path)


def reach() -> Reach:
    """What the token of this request may see and change, for routes that are `JUDGED`."""
    g.judged = True
    return _reach()


def refuse_unjudged(status: int) -> None:
    """Raises AssertionError when a limited token got an answer from a route that should have had
    the policy decide and did not."""
    access = ACCESS.get((request.method, request.url_rule.rule)) if request.url_rule else None
    if access is None or About.JUDGED not in access.about or status >= 400:
        return
    assert not caller().scopes.limited or g.get("judged"), "a route did not ask the policy"


def _reach() -> Reach:
    return service().policy.reach_of(caller().name, caller().scopes)


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
    return Caller(token.name, token.role, token.site, token.scopes)


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


def _refuse_by_scope(requester: Caller, access: Access) -> None:
    """Raises NotFoundError for what lies outside the token's scopes, in the very words that are
    used for what is not there: whoever asks learns nothing."""
    if not requester.scopes.limited:
        return
    if About.INSTALLATION in access.about:
        raise ForbiddenError(
            f"cannot {request.method} {request.path} with token {requester.name!r}: it is limited"
            " in its scopes, but this is about the whole installation"
        )
    allowed = _reach()
    for about in access.about:
        if about not in _CHECKS:
            continue
        check, argument = _CHECKS[about]
        name = (request.view_args or {})[argument]
        if not check(allowed, name):
            g.outside = True
            raise NotFoundError(f"cannot find {about} {name!r}")


_CHECKS: Mapping[About, tuple[Callable[[Reach, str], bool], str]] = {
    About.SITE: (Reach.has_site, "name"),
    About.JOB: (Reach.has_job, "job_name"),
    About.COMPOSITION: (Reach.has_composition, "name"),
    About.CHANGE: (Reach.has_change, "change_id"),
    About.ANALYSIS: (Reach.has_analysis, "analysis_id"),
    About.PLACEMENT: (Reach.has_placement, "placement_id"),
    About.ARTIFACT: (Reach.has_artifact, "sha256"),
}
"""How the policy decides on what a path names, and the argument of the path that names it."""


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


def _refuse_foreign_pages(access: Access) -> None:
    """Refuse what changes or acts on something, when a page of another origin requests it. A
    browser names the origin in Origin, but not for a plain GET: that of an image, say. There it
    says in Sec-Fetch-Site what asks (https://w3c.github.io/webappsec-fetch-metadata)."""
    if request.method in READ_METHODS and not access.acts:
        return
    origin = request.headers.get("Origin")
    if origin is None and request.headers.get("Sec-Fetch-Site", "none") in _OWN_PAGES:
        return
    host = request.headers.get("Host", "").lower()
    if origin is None or urlsplit(origin).netloc.lower() != host:
        origin = origin or "another site"
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
