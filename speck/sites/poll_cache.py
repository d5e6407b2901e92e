"""The last poll of each engine and broker, taken anew when it is old.

Looks run in threads of their own, one at a time for each engine or broker. Who asks waits for
at most `PATIENCE_S` after a poll began and is then served the one before: a site that is slow
holds up neither the others nor the thread of a request.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from speck.clock import Clock
from speck.errors import SpeckError, TransientError
from speck.sites.concurrency import MANY, PERIOD_S

FRESH_S = 1.0
"""A poll is good for so long."""
PATIENCE_S = 1.0
"""How long polls may keep somebody waiting."""
_AT_ONCE = 256
"""Threads at most: sites that do not answer hold theirs until the time limit."""
_A_SECOND = 32
"""So many sites can be polled each second without taking much of the service's time."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Poll(Generic[T]):
    """What one poll gave: `found`, or None when there was no answer, and then the `error`.

    `begun` is when (monotonic) it began; `current` is false when things may have changed
    since.
    """

    found: T | None
    current: bool = True
    begun: float = float("-inf")
    error: str | None = None


@dataclass(slots=True)
class _Subject(Generic[T]):
    last: T | None = None
    error: str | None = None
    known: bool = False
    begun: float = float("-inf")
    ended: float = float("-inf")
    under_way: float | None = None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """Looks that began after what changed last, and ended no longer before it was asked than is
    fresh: one that is taken meanwhile is good for that asker, however many sites there are."""

    begun_after: float
    ended_after: float

    def met_by(self, subject: _Subject[T]) -> bool:
        ended, begun = subject.ended, subject.begun
        return subject.known and ended > self.ended_after and begun > self.begun_after


def fresh_for(sites: int) -> float:
    """How old polls may be, in seconds, for who reads many sites at once: each poll costs the
    service some milliseconds, and a thousand of them more than there are in a second."""
    return FRESH_S * max(1.0, sites / _A_SECOND)


class PollCache(Generic[T]):
    """Looks by the name of their site. `touched` says when (monotonic) things changed last."""

    def __init__(
        self, take: Callable[[str], T], clock: Clock, touched: Callable[[], float], name: str
    ):
        self._take = take
        self._clock = clock
        self._touched = touched
        self._lock = threading.Lock()
        self._over = threading.Condition(self._lock)
        self._subjects: dict[str, _Subject[T]] = {}
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=f"poll-{name}")
        self._closed = False
        self.ended = 0
        """How many polls have ended, answered or not."""
        self.cpu_s = 0.0
        """CPU time that their threads used for them."""

    def at(
        self,
        sites: Iterable[str],
        fresh_s: float = FRESH_S,
        within_s: float = PATIENCE_S,
        at_once: Callable[[], int] = lambda: MANY,
    ) -> dict[str, Poll[T]]:
        """The polls of `sites`, if possible none that ended more than `fresh_s` ago; one that
        never had an answer in time is missing. `within_s`: to wait for all of them together.
        `at_once` tells how many that answered the last time may be awaited at a time; `MANY` are
        the most.

        Looks at many sites are begun a few at a time, the oldest first: who wants one of another
        site meanwhile does not wait for all of these, and those left out are the next."""
        names = set(sites)
        wanted = self._wanted(fresh_s)
        until = self._clock.monotonic() + within_s
        with self._over:
            left, awaited = self._oldest_last(names), dict[str, float]()
            while (left or awaited) and not self._closed:
                if (now := self._clock.monotonic()) >= until:
                    break
                while left and self._has_room(awaited, at_once):
                    site = left.pop()
                    self._begin(site, wanted)
                    awaited[site] = min(until, now + PATIENCE_S)
                still = self._awaited(awaited, wanted)
                if len(still) == len(awaited):
                    waits_s = min(still.values()) - now
                    self._over.wait(min(waits_s, PERIOD_S) if left else waits_s)
                awaited = still
        with self._lock:
            return {site: poll for site in names if (poll := self._poll_of(site)) is not None}

    def answered(self, sites: Iterable[str], fresh_s: float) -> dict[str, Poll[T]]:
        """Those polls of `sites` that had an answer and are as wanted by now; none is begun."""
        wanted = self._wanted(fresh_s)
        with self._lock:
            return {
                site: poll
                for site in sites
                if (poll := self._poll_of(site)) is not None
                and poll.error is None
                and wanted.met_by(self._subjects[site])
            }

    def begin(self, sites: Iterable[str], fresh_s: float = FRESH_S) -> None:
        """Begin what `at` would begin at once, and do not wait for it."""
        wanted = self._wanted(fresh_s)
        with self._lock:
            for site in self._oldest_last(sites)[-MANY:]:
                self._begin(site, wanted)

    def forget(self, site: str) -> None:
        """Know nothing of a site any more."""
        with self._lock:
            self._subjects.pop(site, None)

    def close(self) -> None:
        """Begin no further poll, and let nobody wait."""
        with self._over:
            self._closed = True
            self._over.notify_all()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _wanted(self, fresh_s: float) -> _Wanted:
        """What changes from now on is for those who ask later."""
        return _Wanted(self._touched(), self._clock.monotonic() - fresh_s)

    def _poll_of(self, site: str) -> Poll[T] | None:
        """With the lock."""
        subject = self._subjects.get(site)
        if subject is None or not subject.known:
            return None
        current = subject.begun > self._touched()
        return Poll(subject.last, current, subject.begun, subject.error)

    def _oldest_last(self, sites: Iterable[str]) -> list[str]:
        """With the lock. One that was never polled is the oldest."""
        subjects = self._subjects
        ended = {site: subjects[site].ended if site in subjects else -math.inf for site in sites}
        return sorted(ended, key=lambda site: -ended[site])

    def _begin(self, site: str, wanted: _Wanted) -> None:
        """With the lock: have a poll taken, unless one is under way or there is one as wanted."""
        subject = self._subjects.setdefault(site, _Subject())
        if subject.under_way is None and not wanted.met_by(subject):
            subject.under_way = self._clock.monotonic()
            try:
                self._pool.submit(self._poll, site, subject)
            except RuntimeError as error:  # it is closed
                subject.under_way = None
                raise TransientError("cannot poll sites: the service is stopping") from error

    def _has_room(self, awaited: Mapping[str, float], at_once: Callable[[], int]) -> bool:
        """With the lock. A site that did not answer the last time costs nothing but a thread."""
        known = (self._subjects.get(site) for site in awaited)
        answering = sum(subject is not None and subject.error is None for subject in known)
        return len(awaited) < MANY and answering < at_once()

    def _awaited(self, sites: Mapping[str, float], wanted: _Wanted) -> dict[str, float]:
        """With the lock: those `sites` for whose polls to wait on, and until when (monotonic). A
        poll that had begun before things changed is taken again when it is over."""
        now, found = self._clock.monotonic(), {}
        for site, until in sites.items():
            subject = self._subjects.get(site)
            if subject is None or wanted.met_by(subject):
                continue
            self._begin(site, wanted)
            if subject.under_way is not None:
                until = min(until, subject.under_way + PATIENCE_S)
            if until > now:
                found[site] = until
        return found

    def _poll(self, site: str, subject: _Subject[T]) -> None:
        begun, cpu_s = self._clock.monotonic(), time.thread_time()
        found: T | None = None
        failure: str | None = "cannot say what is there: a fault in speck"
        try:
            found, failure = self._take(site), None
        except SpeckError as error:  # no answer, or a refusal: nothing is known of what is there
            failure = str(error)
        finally:
            with self._over:
                subject.last, subject.error, subject.known = found, failure, True
                subject.begun, subject.ended = begun, self._clock.monotonic()
                subject.under_way = None
                self.ended += 1
                self.cpu_s += time.thread_time() - cpu_s
                self._over.notify_all()
