"""The API that sites' agents call: commands, and the relay of state between two agents that
cannot reach each other."""

from __future__ import annotations

from flask import Response, jsonify

from speck.api import shapes
from speck.api.access import refuse_foreign_site
from speck.api.context import is_over, polling, refuse_if_over, relaying, service
from speck.api.problems import problem
from speck.api.requests import Query, optional_object, stream, text, wait, whole
from speck.api.routes import Routes, no_content
from speck.sites.relay import PIECE_MOST, OutOfOrderError

routes = Routes("agents", "The API of sites' agents")

_MOST_BYTES = 1 << 50
_ANSWER_MOST = (1 << 20) + (64 << 10)
"""Bytes: the status of an engine may have a mebibyte."""
_PAUSE_S = 0.1
_AGENTS_PER_SECOND = 20
_WAIT_S = 30.0


@routes.get(
    "/sites/<name>/commands",
    query=[
        text("known", "comma-separated ids of the commands that the agent already runs"),
        text("agent", "the identity of the agent; 409 if the site has another one"),
        wait(),
    ],
    answers={200: shapes.CommandsShape},
)
def open_commands(name: str, query: Query) -> Response:
    """All open commands for the site's agent; waits until they differ from the known ones."""
    known = [part for part in (query["known"] or "").split(",") if part]
    agents = service().agents
    service().sites.refuse_other_agent(name, query["agent"])
    with polling(min(query["wait"], _WAIT_S)) as seconds:
        commands = agents.open_commands(name, known, seconds, is_over)
    refuse_if_over()
    # too many requests wait already: the agent polls again, later the more agents do so
    pause_s = max(0.5, agents.commands.count_agents() / _AGENTS_PER_SECOND)
    again = 0.0 if seconds or commands else pause_s
    return jsonify({"commands": [each.to_json() for each in commands], "again": again})


@routes.post(
    "/sites/<name>/commands/<command_id>",
    body={"type": "object"},
    answers={200: {"type": "object"}},
)
def answer_command(name: str, command_id: str) -> Response:
    """The agent reports progress or the outcome of a command; 404 when it is no longer needed."""
    service().agents.commands.answer(name, command_id, optional_object("answer", _ANSWER_MOST))
    return jsonify({})


@routes.put(
    "/transfers/<transfer_id>",
    query=[
        whole("offset", "position of the piece in the stream", 0, _MOST_BYTES, 0),
        whole("total", "size of the whole stream in bytes", 1, _MOST_BYTES, 1),
    ],
    body={"type": "string", "format": "binary"},
    body_types=("application/octet-stream",),
    answers={200: shapes.PieceShape},
)
def put_piece(transfer_id: str, query: Query) -> Response:
    """The source's agent sends a piece of state; 409 holds the offset of the expected piece."""
    agents = service().agents
    refuse_foreign_site(agents.transfers.under_way(transfer_id).source)
    relay = agents.transfers.relay(transfer_id, by_source=True)
    with relaying():
        piece = b"".join(stream(PIECE_MOST))
        try:
            received = relay.put(query["offset"], query["total"], piece)
        except OutOfOrderError as error:
            return problem(409, str(error), received=error.received)
    return jsonify({"received": received, "pause": _PAUSE_S if relay.full else 0.0})


@routes.get(
    "/transfers/<transfer_id>",
    query=[whole("offset", "bytes received so far", 0, _MOST_BYTES, 0), wait()],
    answers={200: {"type": "string", "format": "binary"}, 204: None},
    answer_type="application/octet-stream",
)
def take_piece(transfer_id: str, query: Query) -> Response:
    """The target's agent fetches the next piece; the body begins with a line `offset/total`."""
    agents = service().agents
    refuse_foreign_site(agents.transfers.under_way(transfer_id).target)
    relay = agents.transfers.relay(transfer_id, by_source=False)
    with polling(min(query["wait"], _WAIT_S)) as seconds:
        reply = relay.take(query["offset"], seconds, is_over)
    refuse_if_over()
    if reply is None:
        return no_content()
    total, piece = reply
    head = f"{query['offset']}/{total}\n".encode()
    return Response(head + piece, content_type="application/octet-stream")
