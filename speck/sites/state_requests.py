"""Asks the agents of sites for the states that lie there, and to delete one."""

from __future__ import annotations

from collections.abc import Iterable

from speck.agent.layout import StateLayout
from speck.binding import SavedState
from speck.errors import PermanentError, TransientError, UnreachableError
from speck.model.values import JsonObject
from speck.sites.agent_commands import AgentCommands
from speck.sites.state_transfer import shorten

_ANSWER_S = 10.0


class StateRequests:
    """Each request is one command and its answer. All methods raise UnreachableError,
    TransientError, PermanentError."""

    def __init__(self, commands: AgentCommands):
        self._commands = commands

    def list(
        self, site: str, engine_job_id: str, layout: StateLayout, folder: str | None
    ) -> list[SavedState]:
        """The states of an incarnation, the newest first; also those in its own `folder`."""
        body = {"engine_job_id": engine_job_id, "layouts": [layout.to_json()]}
        body |= {"folder": folder} if folder else {}
        answer = self._ask(site, "list", body)
        try:
            return list(map(_read_state, answer["states"]))
        except (LookupError, TypeError, ValueError, OverflowError) as error:
            raise PermanentError(
                f"cannot read the list of states that the agent of {site} sent: {error!r:.200};"
                " update the agent"
            ) from error

    def drop(self, site: str, path: str, layouts: Iterable[StateLayout]) -> None:
        """Delete a state."""
        self._ask(site, "drop", {"path": path, "layouts": [each.to_json() for each in layouts]})

    def _ask(self, site: str, kind: str, body: JsonObject) -> JsonObject:
        command = self._commands.add(site, kind, body)
        if not command.over.wait(_ANSWER_S):
            self._commands.withdraw(command)
            raise UnreachableError(f"cannot reach the agent of {site}: no answer to {kind!r}")
        if command.answer["state"] == "failed":
            error = TransientError if command.answer.get("again") else PermanentError
            raise error(f"{shorten(command.answer.get('error'))} (agent of site {site})")
        return command.answer


def _read_state(state: JsonObject) -> SavedState:
    return SavedState(
        int(state["number"]),
        str(state["location"]),
        int(state["at_ms"]),
        int(state["bytes"]),
        bool(state["on_request"]),
    )
