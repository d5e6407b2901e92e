"""/links/records and /links/tap: records of links, sent and seen by people."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

from flask import Response

from speck.api import shapes
from speck.api.access import name_object, reach
from speck.api.context import is_over, occupying, service, watching
from speck.api.requests import Query, document, mapping, seconds, text, whole
from speck.api.routes import JSON, Routes, answer
from speck.errors import ForbiddenError, InvalidError, Problem
from speck.model.record import render_record
from speck.model.shown import render
from speck.model.values import show
from speck.service.links import MOST_RECORDS, MOST_S

FIELDS = ("site", "topic", "records")

routes = Routes("links", "Records of links")


@routes.post(
    "/links/records",
    body=shapes.RecordsShape,
    body_types=[JSON],
    answers={200: shapes.PublishedShape},
)
def publish_records() -> Response:
    """Publish records to a link, as a sensor does: without numbers, at least once.

    The answer comes when the broker has taken them all.
    """
    body = mapping(document(), "records", FIELDS)
    site, topic = _text(body, "site"), _text(body, "topic")
    _judge("publish to", site, topic)
    payloads = _payloads(body.get("records"))
    with occupying(f"publish to {topic}"):
        return answer(service().links.publish(site, topic, payloads))


@routes.get(
    "/links/tap",
    query=[
        text("site", "the site of the link's broker"),
        text("topic", "the link's topic"),
        whole("max", "return after so many records", 1, MOST_RECORDS, MOST_RECORDS),
        seconds("seconds", "return after this time", MOST_S, 10.0),
    ],
    answers={200: shapes.TapShape},
)
def tap_link(query: Query) -> Response:
    """Show the records that are published to a link from now on. Its readers notice nothing.

    Batches are unpacked. At most 1 MiB of payloads are returned.
    """
    site, topic = (_text(query, field, "?") for field in ("site", "topic"))
    _judge("read", site, topic)
    with watching(f"read {topic}"):
        tapped = service().links.tap(site, topic, query["max"], query["seconds"], is_over)
    records = [render_record(record) for record in tapped.records]
    return answer({**render(tapped), "records": records})


def _judge(act: str, site: str, topic: str) -> None:
    """Name the link for the audit log, and refuse one outside the token's scopes."""
    name_object(f"/links/{site}/{topic}")
    allowed = reach()
    if not allowed.has_link(site, topic):
        raise ForbiddenError(
            f"cannot {act} topic {show(topic)} at {site!r} with token {allowed.token!r}: it is"
            " outside the token's scopes; one limited to compositions needs a scope of topics, too"
        )


def _text(values: dict[str, Any], field: str, prefix: str = "") -> str:
    value = values.get(field)
    if not isinstance(value, str) or not value:
        fault = "must be a text" if value is not None else "is missing"
        raise InvalidError(
            f"cannot use the link: {prefix}{field} {fault}", [Problem(prefix + field, fault)]
        )
    return value


def _payloads(records: Any) -> list[bytes]:
    if not isinstance(records, list) or not 1 <= len(records) <= MOST_RECORDS:
        fault = f"must be a list of 1 to {MOST_RECORDS} records"
        raise InvalidError(f"cannot publish: records {fault}", [Problem("records", fault)])
    return [_payload(record, f"records[{index}]") for index, record in enumerate(records)]


def _payload(record: Any, path: str) -> bytes:
    try:
        match record:
            case str(content):
                return content.encode()
            case {"text": str(content)} if len(record) == 1:
                return content.encode()
            case {"base64": str(content)} if len(record) == 1:
                return b64decode(content, validate=True)
    except ValueError:  # also UnicodeEncodeError, of a lone surrogate
        pass
    fault = 'must be a text, {"text": TEXT} or {"base64": CODE}'
    raise InvalidError(f"cannot publish: {path} {fault}", [Problem(path, fault)])
