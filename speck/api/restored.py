"""The state of a service that was restored from a backup"""

from __future__ import annotations

from flask import Response, request

from speck.api import shapes
from speck.api.access import caller, name_object
from speck.api.context import looking, service
from speck.api.requests import Query, flag
from speck.api.routes import Routes, answer

routes = Routes("restored", "What a service restored from a backup finds, and how it takes it over")


@routes.get("/restored", answers={200: shapes.RestoredShape})
def get_restored() -> Response:
    """What runs under the names of this installation but is not in the store, what the store
    believes but does not run, and sessions that it does not know. The state `restored` lasts until
    this has been adopted; no change starts until then."""
    with looking("list what runs"):
        return answer(service().restored.report())


@routes.post(
    "/restored/adopt",
    query=[
        flag("cancel", "cancel what cannot be taken over; without it, 409 names it"),
        flag("older_state", "let jobs that do not run start from state that may not be the newest"),
        flag("discard_messages", "release sessions that no job reads, with what waits in them"),
    ],
    answers={200: shapes.AdoptedShape},
)
def adopt(query: Query) -> Response:
    """Take over what runs, and end the state `restored`."""
    options = "&".join(f"{name}=true" for name, value in query.items() if value)
    name_object(f"{request.path}?{options}" if options else request.path)
    with looking("adopt what runs"):
        return answer(service().restored.adopt(**query, by=caller().actor))
