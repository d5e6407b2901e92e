"""What the agents of sites are bidden to do, until they have answered.

Agents ask; nobody calls them. Bids live in memory: who wants one asks again after a restart,
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
from speck.model import JsonObject

SILENT_S = 15.0
"""An agent that was not heard for so long is taken for away."""

_LOOK_S = 0.5


@dataclass(slots=True, eq=False)
class Bid:
    """One thing for one site's agent; `body` may change while it is open."""

    id: str
    site: str
    kind: str
    body: JsonObject
    answered: Callable[[Bid, JsonObject], None]
    over: threading.Event = field(default_factory=threading.Event)
    answer: JsonObject = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        """As the agent gets it."""
        return {"id": self.id, "kind": self.kind, **self.body}


class Bids:
    """The open bids of all sites. Callbacks run without its lock held."""

    def __init__(self, clock: Clock):
        self._clock = clock
        self._change = threading.Condition()
        self._open: dict[str, dict[str, Bid]] = {}
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
        answered: Callable[[Bid, JsonObject], None] = lambda _bid, _body: None,
    ) -> Bid:
        """A new bid; `answered` is called with each answer."""
        bid = Bid(f"{self._run}-{next(self._numbers)}", site, kind, body, answered)
        with self._change:
            self._open.setdefault(site, {})[bid.id] = bid
            self._change.notify_all()
        return bid

    def withdraw(self, *bids: Bid | None) -> None:
        """Nobody wants them any more; the agent is told with its next question."""
        with self._change:
            for bid in bids:
                if bid is not None:
                    self._open.get(bid.site, {}).pop(bid.id, None)
            self._change.notify_all()

    def open(
        self,
        site: str,
        known: Collection[str],
        wait_s: float,
        stopping: Callable[[], bool] = lambda: False,
    ) -> list[JsonObject]:
        """All open bids of a site, as soon as they are others than those `known`."""
        until = time.monotonic() + wait_s
        self.hear(site)
        with self._change:
            while set(self._open.get(site, ())) == set(known) and not stopping():
                left = until - time.monotonic()
                if left <= 0:
                    break
                self._change.wait(min(left, _LOOK_S))
            found = [bid.to_json() for bid in self._open.get(site, {}).values()]
        self.hear(site)
        return found

    def answer(self, site: str, identity: str, body: JsonObject) -> None:
        """What a site's agent says of one of its bids. Raises NotFoundError."""
        self.hear(site)
        with self._change:
            bid = self._open.get(site, {}).get(identity)
            if bid is None:
                raise NotFoundError(f"cannot find bid {identity!r} for site {site!r}: it is over")
            if body.get("state") in ("done", "failed"):
                del self._open[site][identity]
                bid.answer = body
                self._change.notify_all()
        bid.answered(bid, body)
        if bid.answer:
            bid.over.set()

    def polling(self) -> int:
        """How many agents were heard lately."""
        now = self._clock.monotonic()
        return sum(now - heard < SILENT_S for heard in self._heard.values())

    def forget(self, site: str) -> None:
        """The site is gone."""
        with self._change:
            self._open.pop(site, None)
            self._heard.pop(site, None)
