"""Records requests in the audit log: each that changes something, and each that is refused."""

from __future__ import annotations

from flask import Response, g, request

from speck.api.access import ACCESS, READ_METHODS
from speck.api.context import service
from speck.api.masking import mask_text
from speck.api.problems import request_id
from speck.model.values import JsonObject
from speck.store.audit import Entry

_REFUSALS_OF_READS = (401, 403)


def begin() -> None:
    """Note an act before it happens: if the process is killed before `record`, the next start
    records that its outcome is not known."""
    if request.method not in READ_METHODS and _is_recorded(200, outside=False):
        g.audit_intent = service().audit.begin(_entry(0, {"request": request_id()}))


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
    service().audit.record(_entry(response.status_code, detail), g.pop("audit_intent", None))


def _entry(status: int, detail: JsonObject) -> Entry:
    caller = g.get("caller")
    return Entry(
        request.method,
        g.get("audit_object") or mask_text(request.path),
        status,
        token=caller.name if caller else None,
        address=request.remote_addr,
        detail=detail,
    )


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
