"""Records requests in the audit log: each that changes something, and each that is refused."""

from __future__ import annotations

from flask import Response, g, request

from speck.api.access import ACCESS, READ_METHODS
from speck.api.context import service
from speck.api.problems import request_id
from speck.model.values import JsonObject
from speck.service.audit import Entry

_REFUSALS_OF_READS = (401, 403)


def record(response: Response) -> None:
    """Record the current request and its outcome, if it belongs into the log."""
    outside = bool(g.get("outside"))
    if not _is_recorded(response.status_code, outside):
        return
    detail: JsonObject = {"request": request_id()}
    location = response.headers.get("Location", "")
    if location.startswith("/changes/"):
        detail["change"] = location.removeprefix("/changes/")
    if outside:  # the answer hides that the scopes were the reason
        detail["refused_by"] = "scope"
    caller = g.get("caller")
    entry = Entry(
        request.method,
        g.get("audit_object") or _printable(request.path),
        response.status_code,
        token=caller.name if caller else None,
        address=request.remote_addr,
        detail=detail,
    )
    service().audit.record(entry)


def _is_recorded(status: int, outside: bool) -> bool:
    if request.url_rule is None:
        return False
    if status in _REFUSALS_OF_READS or outside:
        return True
    access = ACCESS.get((request.method, request.url_rule.rule))
    if access is None or access.quiet:
        return False
    if request.method in READ_METHODS:
        return access.logged
    is_dry_run = request.args.get("dry_run", "").lower() in ("true", "1")
    return not is_dry_run or status >= 400


def _printable(path: str) -> str:
    return path.encode("unicode_escape").decode()
