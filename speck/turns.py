"""How many calls may be under way at one site, over all changes."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Protocol


class Claimant(Protocol):
    """Who wants turns: a change that is carried out."""

    def wake(self) -> None:
        """A turn that was refused may be free now."""


class Turns:
    """At most `per_site` turns at each site, shared evenly by those who want them.

    Nobody waits in here: who is refused a turn is woken when one is given back.
    """

    def __init__(self, per_site: int):
        self._per_site = per_site
        self._lock = threading.Lock()
        self._held: defaultdict[str, dict[Claimant, int]] = defaultdict(dict)
        self._refused: defaultdict[str, set[Claimant]] = defaultdict(set)

    def take(self, site: str, who: Claimant) -> bool:
        """Take a turn at a site; false while there is none for `who`."""
        with self._lock:
            held, refused = self._held[site], self._refused[site]
            mine = held.get(who, 0)
            wanted_by = held.keys() | refused | {who}
            # While others wait nobody takes more than its share, or who came first kept it all.
            others_wait = bool(refused - {who})
            share = max(1, self._per_site // len(wanted_by)) if others_wait else self._per_site
            if sum(held.values()) >= self._per_site or mine >= share:
                refused.add(who)
                return False
            refused.discard(who)
            held[who] = mine + 1
            return True

    def give_back(self, site: str, who: Claimant) -> None:
        """Give back a turn that was taken, and wake who was refused one."""
        with self._lock:
            held = self._held[site]
            held[who] -= 1
            if not held[who]:
                del held[who]
            waiting = list(self._refused[site])
        for claimant in waiting:
            claimant.wake()

    def leave(self, who: Claimant) -> None:
        """Give back whatever `who` holds, and want no more."""
        with self._lock:
            for refused in self._refused.values():
                refused.discard(who)
            left = [site for site, held in self._held.items() if held.pop(who, 0)]
            waiting = {claimant for site in left for claimant in self._refused[site]}
        for claimant in waiting:
            claimant.wake()
