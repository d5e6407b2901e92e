"""/events: the event log, in pages or as a stream"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping

from flask import Response

from speck.api import shapes
from speck.api.access import reach
from speck.api.context import Context, context, holder, service
from speck.api.requests import MAX_LIMIT, Query, text, whole
from speck.api.routes import Routes, page
from speck.errors import TransientError
from speck.model.event import Event
from speck.model.shown import render
from speck.service.access_policy import Reach

PAGE = 1000
_ABOUT = ("site", "job_name", "composition", "change", "kind")
_POLL_INTERVAL_S = 0.25
_KEEPALIVE_INTERVAL_S = 15.0

routes = Routes("events", "What happened, oldest first")


@routes.get(
    "/events",
    query=[
        whole("after", "only events with a greater id", 0, 10**12, 0),
        whole("limit", "maximum number of items", 1, MAX_LIMIT, PAGE),
        *(text(name, f"only events about this {name}") for name in _ABOUT),
    ],
    headers=[
        text("Accept", "text/event-stream for server-sent events, until the client disconnects"),
        text("Last-Event-ID", "continue after this event, like `after`"),
    ],
    answers={200: shapes.EVENTS},
)
def list_events(query: Query, headers: Query) -> Response:
    """Events by id."""
    if "text/event-stream" in (headers["Accept"] or ""):
        return _stream(query, headers["Last-Event-ID"] or "")
    return page("events", _matching(query, query["after"]), "id", query["limit"])


def _matching(query: Query, after: int) -> Iterator[Event]:
    wanted = {name: query[name] for name in _ABOUT if query[name] is not None}
    has_event = reach().has_event
    for event in service().records.events.after(after):
        if _matches(event, wanted) and has_event(event):
            yield event


def _matches(event: Event, wanted: Mapping[str, str]) -> bool:
    return all(getattr(event, name) == value for name, value in wanted.items())


def _stream(query: Query, last: str) -> Response:
    """Server-sent events. Every stream holds a thread, so only a few may be open at once."""
    shared = context()
    mine = holder()
    if not shared.streams.acquire(mine):
        raise TransientError(
            "cannot open another event stream: the service, or this token, has too many open; read"
            " GET /events?after= instead"
        )
    wanted = {name: query[name] for name in _ABOUT if query[name] is not None}
    after = int(last) if re.fullmatch(r"[0-9]{1,12}", last) else query["after"]
    response = Response(_send(shared, wanted, after, reach()), content_type="text/event-stream")
    response.headers["Cache-Control"] = "no-store"
    response.call_on_close(lambda: shared.streams.release(mine))
    return response


def _send(shared: Context, wanted: dict[str, str], after: int, allowed: Reach) -> Iterator[str]:
    clock, is_valid = shared.service.clock, shared.service.tokens.is_valid
    last_sent = clock.monotonic()
    yield ": speck\n\n"
    while not (shared.stopping.wait(_POLL_INTERVAL_S) or shared.service.closing.is_set()):
        if not is_valid(allowed.token):
            return  # revoked or expired meanwhile
        for event in shared.service.records.events.after(after):
            after = event.id
            if _matches(event, wanted) and allowed.has_event(event):
                last_sent = clock.monotonic()
                yield f"id: {after}\nevent: {event.kind}\ndata: {json.dumps(render(event))}\n\n"
        if clock.monotonic() - last_sent > _KEEPALIVE_INTERVAL_S:
            last_sent = clock.monotonic()
            yield ": still here\n\n"  # only a failed write shows that the reader has disconnected
