"""/changes"""

from __future__ import annotations

from collections.abc import Iterator

from flask import Response

from speck.api import shapes
from speck.api.access import reach
from speck.api.context import service
from speck.api.requests import Query, paging, text
from speck.api.routes import Routes, answer, listing
from speck.model.change import ChangeHead

PAGE = 1000

routes = Routes("changes", "Executions of plans, each with the outcomes of its operations")


@routes.get(
    "/changes",
    query=[
        text("composition", "only changes of this composition"),
        text("site", "only changes with an operation at this site"),
        text("state", "only changes in this state", shapes.CHANGE_STATES),
        *paging("id", PAGE),
    ],
    answers={200: shapes.CHANGES},
)
def list_changes(query: Query) -> Response:
    """Changes without their operations, newest first."""
    changes = _filter(query["composition"], query["state"], query["site"])
    return listing("changes", changes, "id", query, newest_first=True)


def _filter(composition: str | None, state: str | None, site: str | None) -> Iterator[ChangeHead]:
    has_change = reach().has_change_of
    for head in service().changes.all(composition=composition, state=state):
        if (site is None or _touches(head.id, site)) and has_change(head):
            yield head


def _touches(change_id: str, site: str) -> bool:
    return any(each.site == site for each in service().changes.get(change_id).operations)


@routes.get("/changes/<change_id>", answers={200: shapes.ChangeShape})
def get_change(change_id: str) -> Response:
    """A change with all its operations."""
    return answer(service().changes.get(change_id))


@routes.post(
    "/changes/<change_id>/cancel",
    answers={200: shapes.ChangeShape, 202: shapes.ChangeShape},
)
def cancel_change(change_id: str) -> Response:
    """Start no further operation: 200 when the change has ended, 202 while one still runs."""
    change = service().runner.cancel(change_id)
    return answer(change, 200 if change.state.over else 202, f"/changes/{change_id}")
