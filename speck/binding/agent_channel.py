"""The way to an engine without an address: the agent of its site, which calls speck."""

from __future__ import annotations

from typing import Any, Protocol

from speck.binding.artifacts import Artifact


class AgentChannel(Protocol):
    """What a binder has instead of an address (`Target.agent`).

    Beside the agent a runner of the engine waits for orders, and writes what it knows; see
    `speck.agent.programs`. Orders and status mean something to the binder and its runner alone.
    """

    def status(self) -> dict[str, Any]:
        """The newest status that the runner has written; it is pushed, so that this costs no
        request. Raises UnreachableError if the agent is silent, or the status too old."""

    def order(self, order: dict[str, Any]) -> dict[str, Any]:
        """Hand an order to the runner and return its answer. Raises UnreachableError if there is
        none in time: the order may have been carried out, or may yet be."""

    def store(self, artifact: Artifact) -> None:
        """Bring an artifact to the site; does nothing if it is there."""
