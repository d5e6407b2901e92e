"""Limits the concurrent calls to one site, over all changes."""

from __future__ import annotations

from collections import defaultdict
from typing import Protocol

from speck.deploy.scheduler import THREADS, Scheduler


class Holder(Protocol):
    """A change under way, which acquires permits."""

    def wake(self) -> None:
        """Called when a permit that was refused may be available."""


class Limiter:
    """At most `per_site` permits for each site, shared evenly by the changes that want them.

    Never blocks: a holder that was refused is woken when a permit is released.
    """

    def __init__(self, per_site: int, scheduler: Scheduler = THREADS):
        self._per_site = per_site
        self._lock = scheduler.lock()
        self._permits: defaultdict[str, dict[Holder, int]] = defaultdict(dict)
        self._waiting: defaultdict[str, set[Holder]] = defaultdict(set)

    def acquire(self, site: str, holder: Holder) -> bool:
        """Acquire a permit for a site; false if none is available for `holder`."""
        with self._lock:
            permits, waiting = self._permits[site], self._waiting[site]
            own = permits.get(holder, 0)
            holders = permits.keys() | waiting | {holder}
            # While others wait, a holder gets its share only; otherwise the first would keep all.
            others_wait = bool(waiting - {holder})
            share = max(1, self._per_site // len(holders)) if others_wait else self._per_site
            if sum(permits.values()) >= self._per_site or own >= share:
                waiting.add(holder)
                return False
            waiting.discard(holder)
            permits[holder] = own + 1
            return True

    def release(self, site: str, holder: Holder) -> None:
        """Release a permit, and wake the holders that were refused one."""
        with self._lock:
            permits = self._permits[site]
            permits[holder] -= 1
            if not permits[holder]:
                del permits[holder]
            to_wake = list(self._waiting[site])
        for holder in to_wake:
            holder.wake()

    def leave(self, holder: Holder) -> None:
        """Release all permits of `holder` and forget its requests."""
        with self._lock:
            for waiting in self._waiting.values():
                waiting.discard(holder)
            sites = [site for site, permits in self._permits.items() if permits.pop(holder, 0)]
            to_wake = {holder for site in sites for holder in self._waiting[site]}
        for holder in to_wake:
            holder.wake()
