"""What the agents of sites are bidden to do, until they have answered.

Agents ask; nobody calls them. Commands live in memory: who wants one asks again after a restart,
and agents do the same thing twice without harm.
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
"""An agent that was not heard for so long is taken for away."""

_LOOK_S = 0.5


@dataclass(slots=True, eq=False)
class AgentCommand:
    """One thing for one site's agent; `body` may change while it is open."""

    id: str
    site: str
    kind: str
    body: JsonObject
    answered: Callable[[AgentCommand, JsonObject], None]
    over: threading.Event = field(default_factory=threading.Event)
    answer: JsonObject = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """As the agent gets it."""
        return {"id": self.id, "kind": self.kind, **self.body}


class AgentCommands:
    """The open commands of all sites. Callbacks run without its lock held."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._change = threading.Condition()
        self._open: dict[str, dict[str, AgentCommand]] = {}
        self._heard: dict[str, float] = {}
        self._numbers = itertools.count(1)
        self._run = clock.new_id()[:8]

    def hear(self, site: str) -> None:
        """The site's agent has spoken."""
        self._heard[site] = self._clock.monotonic()

    def silent_s(self, site: str) -> float | None:
        """How long its agent has said nothing; None: it never spoke since we started."""
        heard = self._heard.get(site)
        return None if heard is None else self._clock.monotonic() - heard

    def add(
        self,
        site: str,
        kind: str,
        body: JsonObject,
        answered: Callable[[AgentCommand, JsonObject], None] = lambda _command, _body: None,
    ) -> AgentCommand:
        """A new command; `answered` is called with each answer."""
        command = AgentCommand(f"{self._run}-{next(self._numbers)}", site, kind, body, answered)
        with self._change:
            self._open.setdefault(site, {})[command.id] = command
            self._change.notify_all()
        return command

    def withdraw(self, *commands: AgentCommand | None) -> None:
        """Nobody wants them any more; the agent is told with its next question."""
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
    ) -> list[JsonObject]:
        """All open commands of a site, as soon as they are others than those `known`."""
        until = time.monotonic() + wait_s
        self.hear(site)
        with self._change:
            while set(self._open.get(site, ())) == set(known) and not stopping():
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._change.wait(min(left, _LOOK_S))
            found = [command.to_json() for command in self._open.get(site, {}).values()]
        self.hear(site)
        return found

    def answer(self, site: str, identity: str, body: JsonObject) -> None:
        """What a site's agent says of one of its commands. Raises NotFoundError."""
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
        command.answered(command, body)
        if command.answer:
            command.over.set()

    def polling(self) -> int:
        """How many agents were heard lately."""
        now = self._clock.monotonic()
        return sum(now - heard < SILENT_S for heard in self._heard.values())

    def forget(self, site: str) -> None:
        """The site is gone."""
        with self._change:
            self._open.pop(site, None)
            self._heard.pop(site, None)
