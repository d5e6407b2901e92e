"""Reaches engines that have no address through the agents of their sites."""

from __future__ import annotations

import threading
from base64 import b64encode
from typing import Any

from speck.binding import Artifact
from speck.clock import Clock
from speck.errors import PermanentError, TransientError, UnreachableError
from speck.model.values import JsonObject
from speck.sites.agent_commands import SILENT_S, AgentCommand, AgentCommands

_PIECE = 384 << 10
_LONGEST_ERROR = 1000
_ANSWER_S = 10.0
_NO_STATUS = "its agent has reported no status of it; start the agent and the engine's runner there"


class SiteChannels:
    """The channels of all sites whose engines are reached through their agents. Thread-safe."""

    def __init__(self, clock: Clock, timeout_s: float = _ANSWER_S):
        self.commands = AgentCommands(clock)
        """What the agents of all sites are to do."""
        self._clock = clock
        self._timeout_s = timeout_s
        self._lock = threading.Lock()
        self._channels: dict[str, SiteChannel] = {}

    def of(self, site: str) -> SiteChannel:
        """The way to an engine beside the site's agent."""
        with self._lock:
            if site not in self._channels:
                channel = SiteChannel(site, self.commands, self._clock, self._timeout_s)
                self._channels[site] = channel
            return self._channels[site]

    def forget(self, site: str) -> None:
        """The site is removed."""
        with self._lock:
            channel = self._channels.pop(site, None)
        if channel is not None:
            channel.close()
        self.commands.forget(site)


class SiteChannel:
    """The engine of one site, see `speck.binding.AgentChannel`. Thread-safe."""

    def __init__(self, site: str, commands: AgentCommands, clock: Clock, timeout_s: float):
        self._site = site
        self._commands = commands
        self._clock = clock
        self._timeout_s = timeout_s
        self._change = threading.Condition()
        self._watch: AgentCommand | None = None
        self._status: Any = None
        self._problem = ""
        self._written_at = float("-inf")

    def status(self) -> dict[str, Any]:
        """The newest status. Waits for the first one only."""
        with self._change:
            if self._watch is None or self._watch.over.is_set():
                self._watch = self._commands.add(self._site, "watch", {}, self._hear)
            if self._status is None:
                self._change.wait(self._timeout_s)
            age_s = self._clock.monotonic() - self._written_at
            if not isinstance(self._status, dict):
                raise UnreachableError(
                    f"cannot reach the engine of {self._site}: {self._problem or _NO_STATUS}"
                )
            if age_s > SILENT_S:
                raise UnreachableError(
                    f"cannot reach the engine of {self._site}: its status is {age_s:.0f} s old"
                )
            return self._status

    def order(self, order: dict[str, Any]) -> dict[str, Any]:
        """Hand an order to the engine's runner and return its answer."""
        answer = self._ask("order", {"order": order})["answer"]
        if not isinstance(answer, dict):
            raise TransientError(f"cannot read the answer of the engine of {self._site}")
        return answer

    def store(self, artifact: Artifact) -> None:
        """Bring an artifact to the site in pieces."""
        total, offset = artifact.file.stat().st_size, 0
        with artifact.file.open("rb") as source:
            while offset < total:
                source.seek(offset)
                piece = b64encode(source.read(_PIECE)).decode()
                body = {"sha256": artifact.sha256, "offset": offset, "total": total, "piece": piece}
                offset = int(self._ask("store", body)["bytes"])

    def close(self) -> None:
        """Be told nothing more."""
        with self._change:
            self._commands.withdraw(self._watch)
            self._watch = None

    def _hear(self, _: AgentCommand, body: JsonObject) -> None:
        age_s = body.get("age_s")
        if not isinstance(age_s, int | float):
            return
        with self._change:
            self._status = body.get("status")
            self._problem = str(body.get("problem") or "")[:_LONGEST_ERROR]
            self._written_at = self._clock.monotonic() - age_s
            self._change.notify_all()

    def _ask(self, kind: str, body: JsonObject) -> JsonObject:
        silent_s = self._commands.silent_s(self._site)
        if silent_s is None or silent_s > SILENT_S:
            raise UnreachableError(f"cannot reach the agent of {self._site}: it is silent")
        command = self._commands.add(self._site, kind, body)
        if not command.over.wait(self._timeout_s):
            self._commands.withdraw(command)
            raise UnreachableError(
                f"cannot reach the engine of {self._site}: no answer to {kind!r} through its agent"
            )
        if command.answer["state"] == "failed":
            error = TransientError if command.answer.get("again") else PermanentError
            message = str(command.answer.get("error"))[:_LONGEST_ERROR]
            raise error(f"{message} (agent of site {self._site})")
        return command.answer
