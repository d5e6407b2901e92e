"""Notices released sessions that a killed broker has brought back. Pure; the time is passed in.

A broker that is killed soon after a release still has the session in its file, with the messages
that waited in it. Nobody would ever read it, and what is sent would pile up until it expires.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

KEPT_S = 600.0
"""Many autosaves later a session does not come back."""

SessionAt = tuple[str, str]
"""(site, client id) of a session."""


@dataclass(slots=True)
class ReleasedSessions:
    """Remembers the sessions that the store has dropped: since when, and whether the broker had
    dropped them, too. One that has been at the broker all the time was forgotten, not released."""

    _known: frozenset[SessionAt] = frozenset()
    _since: dict[SessionAt, float] = field(default_factory=dict)
    _was_absent: set[SessionAt] = field(default_factory=set)

    def update(self, now: float, known: frozenset[SessionAt]) -> None:
        """`known` are those of the store at this time."""
        self._since |= dict.fromkeys(self._known - known, now)
        self._since = {
            at: since
            for at, since in self._since.items()
            if at not in known and now - since < KEPT_S
        }
        self._was_absent &= self._since.keys()
        self._known = known

    def find_returned(
        self, site: str, begun: float, announced: Collection[tuple[str, str]], *, restarted: bool
    ) -> Iterable[tuple[str, str]]:
        """Those of `announced` (client id, topic) that have come back, in a poll that began at
        `begun`; `restarted`: the site's broker was, since the poll before."""
        topics = dict(announced)
        for at, since in self._since.items():
            client_id = at[1]
            if at[0] != site or begun <= since:
                continue
            if client_id not in topics:
                self._was_absent.add(at)
            elif restarted or at in self._was_absent:
                yield client_id, topics[client_id]
