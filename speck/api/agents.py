"""What the agents of sites ask: commands, and the relay of state between two that cannot meet."""

from __future__ import annotations

from flask import Response, jsonify

from speck.api import shapes
from speck.api.access import refuse_foreign_site
from speck.api.context import context, polling, relaying, service
from speck.api.problems import problem
from speck.api.requests import Query, optional_object, stream, text, wait, whole
from speck.api.routes import Routes, gone
from speck.sites.state_transfer import PIECE_MOST, OutOfOrderError

routes = Routes("agents", "What sites' agents ask")

_MOST_BYTES = 1 << 50
_PAUSE_S = 0.1
_AGENTS_PER_SECOND = 20
_WAIT_S = 30.0


@routes.get(
    "/sites/<name>/commands",
    query=[
        text("known", "ids of commands that are being done, joined by commas"),
        wait(),
    ],
    answers={200: shapes.CommandsShape},
)
def open_commands(name: str, query: Query) -> Response:
    """What the site's agent is to do: all open commands, as soon as they differ from the known."""
    known = [part for part in (query["known"] or "").split(",") if part]
    agents = service().agents
    with polling(min(query["wait"], _WAIT_S)) as seconds:
        found = agents.open_commands(name, known, seconds, context().stopping.is_set)
    # no place to wait: come back, the later the more agents do so
    again = (
        0.0 if seconds or found else max(0.5, agents.commands.count_agents() / _AGENTS_PER_SECOND)
    )
    return jsonify({"commands": found, "again": again})


@routes.post(
    "/sites/<name>/commands/<command_id>",
    body={"type": "object"},
    answers={200: {"type": "object"}},
)
def answer_command(name: str, command_id: str) -> Response:
    """How far a command is, or how it has ended; 404 when nobody wants it any more."""
    service().agents.commands.answer(name, command_id, optional_object("answer"))
    return jsonify({})


@routes.put(
    "/transfers/<transfer_id>",
    query=[
        whole("offset", "where in the stream the piece begins", 0, _MOST_BYTES, 0),
        whole("total", "bytes of the whole stream", 1, _MOST_BYTES, 1),
    ],
    body={"type": "string", "format": "binary"},
    body_types=("application/octet-stream",),
    answers={200: shapes.PieceShape},
)
def put_piece(transfer_id: str, query: Query) -> Response:
    """A piece of state from the agent of its source; 409 tells where the next one begins."""
    agents = service().agents
    refuse_foreign_site(agents.under_way(transfer_id).source)
    relay = agents.relay(transfer_id, by_source=True)
    with relaying():
        piece = b"".join(stream(PIECE_MOST))
        try:
            received = relay.put(query["offset"], query["total"], piece)
        except OutOfOrderError as error:
            return problem(409, str(error), received=error.received)
    return jsonify({"received": received, "pause": _PAUSE_S if relay.full else 0.0})


@routes.get(
    "/transfers/<transfer_id>",
    query=[whole("offset", "how much has arrived", 0, _MOST_BYTES, 0), wait()],
    answers={200: {"type": "string", "format": "binary"}, 204: None},
    answer_type="application/octet-stream",
)
def take_piece(transfer_id: str, query: Query) -> Response:
    """The next piece for the agent of the target, behind a line `offset/total`."""
    agents = service().agents
    refuse_foreign_site(agents.under_way(transfer_id).target)
    relay = agents.relay(transfer_id, by_source=False)
    with polling(min(query["wait"], _WAIT_S)) as seconds:
        taken = relay.take(query["offset"], seconds, context().stopping.is_set)
    if taken is None:
        return gone()
    total, piece = taken
    head = f"{query['offset']}/{total}\n".encode()
    return Response(head + piece, content_type="application/octet-stream")
