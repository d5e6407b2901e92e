"""Open commands for the agents of sites.

Agents poll for commands; speck never connects to an agent. Commands are kept in memory: after a
restart their callers issue them again, and agents may safely carry out a command twice.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from speck.clock import Clock
from speck.errors import NotFoundError
from speck.model.values import JsonObject

SILENT_S = 15.0
"""An agent that has not called for so long counts as unreachable."""

_RECHECK_S = 0.5


@dataclass(slots=True, eq=False)
class AgentCommand:
    """One command for one site's agent; `body` may change while it is open."""

    id: str
    site: str
    kind: str
    body: JsonObject
    on_answer: Callable[[AgentCommand, JsonObject], None]
    over: threading.Event = field(default_factory=threading.Event)
    answer: JsonObject = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """The command as the agent receives it."""
        return {"id": self.id, "kind": self.kind, **self.body}


class AgentCommands:
    """The open commands of all sites. Callbacks run without the lock."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._change = threading.Condition()
        self._open: dict[str, dict[str, AgentCommand]] = {}
        self._last_calls: dict[str, float] = {}
        self._numbers = itertools.count(1)
        self._run = clock.new_id()[:8]

    def hear(self, site: str) -> None:
        """Note that the site's agent has called."""
        self._last_calls[site] = self._clock.monotonic()

    def silent_s(self, site: str) -> float | None:
        """Seconds since the last call of the site's agent; None: no call since speck started."""
        last_call = self._last_calls.get(site)
        return None if last_call is None else self._clock.monotonic() - last_call

    def add(
        self,
        site: str,
        kind: str,
        body: JsonObject,
        on_answer: Callable[[AgentCommand, JsonObject], None] = lambda _command, _body: None,
    ) -> AgentCommand:
        """Add a command; `on_answer` is called with each answer."""
        command = AgentCommand(f"{self._run}-{next(self._numbers)}", site, kind, body, on_answer)
        with self._change:
            self._open.setdefault(site, {})[command.id] = command
            self._change.notify_all()
        return command

    def withdraw(self, *commands: AgentCommand | None) -> None:
        """Withdraw commands; the agent learns of it with its next poll."""
        with self._change:
            for command in commands:
                if command is not None:
                    self._open.get(command.site, {}).pop(command.id, None)
            self._change.notify_all()

    def open(
        self,
        site: str,
        known: Collection[str],
        wait_s: float,
        stopping: Callable[[], bool] = lambda: False,
    ) -> list[AgentCommand]:
        """Return all open commands of a site, once they differ from those `known` to the agent or
        `wait_s` seconds have passed."""
        until = time.monotonic() + wait_s
        self.hear(site)
        with self._change:
            while set(self._open.get(site, ())) == set(known) and not stopping():
                remaining_s = until - time.monotonic()
                if remaining_s <= 0:
                    break
                self._change.wait(min(remaining_s, _RECHECK_S))
            commands = list(self._open.get(site, {}).values())
        self.hear(site)
        return commands

    def answer(self, site: str, identity: str, body: JsonObject) -> None:
        """Take the answer of a site's agent to one of its commands. Raises NotFoundError."""
        self.hear(site)
        with self._change:
            command = self._open.get(site, {}).get(identity)
            if command is None:
                raise NotFoundError(
                    f"cannot find command {identity!r} for site {site!r}: it is over"
                )
            if body.get("state") in ("done", "failed"):
                del self._open[site][identity]
                command.answer = body
                self._change.notify_all()
        command.on_answer(command, body)
        if command.answer:
            command.over.set()

    def count_agents(self) -> int:
        """Count the agents that have called recently."""
        now = self._clock.monotonic()
        return sum(now - last_call < SILENT_S for last_call in self._last_calls.values())

    def forget(self, site: str) -> None:
        """Forget a site that was removed."""
        with self._change:
            self._open.pop(site, None)
            self._last_calls.pop(site, None)
