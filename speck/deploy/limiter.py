"""Limits the concurrent calls to one site, over all changes."""

from __future__ import annotations

import threading
from collections import defaultdict
from typing import Protocol


class Holder(Protocol):
    """A change under way, which acquires permits."""

    def wake(self) -> None:
        """A permit that was refused may be available now."""


class Limiter:
    """At most `per_site` permits at each site, shared evenly by those who want them.

    Never blocks: a holder that was refused is woken when a permit is released.
    """

    def __init__(self, per_site: int):
        self._per_site = per_site
        self._lock = threading.Lock()
        self._held: defaultdict[str, dict[Holder, int]] = defaultdict(dict)
        self._refused: defaultdict[str, set[Holder]] = defaultdict(set)

    def acquire(self, site: str, who: Holder) -> bool:
        """Acquire a permit at a site; false while there is none for `who`."""
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

    def release(self, site: str, who: Holder) -> None:
        """Release a permit, and wake those who were refused one."""
        with self._lock:
            held = self._held[site]
            held[who] -= 1
            if not held[who]:
                del held[who]
            waiting = list(self._refused[site])
        for holder in waiting:
            holder.wake()

    def leave(self, who: Holder) -> None:
        """Release all permits of `who`, which wants no more."""
        with self._lock:
            for refused in self._refused.values():
                refused.discard(who)
            left = [site for site, held in self._held.items() if held.pop(who, 0)]
            waiting = {holder for site in left for holder in self._refused[site]}
        for holder in waiting:
            holder.wake()
