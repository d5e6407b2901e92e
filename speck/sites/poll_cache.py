"""Caches the last poll of each engine and broker, and polls again when it is old.

Polls run in threads of their own, one at a time for each engine or broker. A caller waits at most
`PATIENCE_S` after a poll began, and then receives the previous one: a slow site delays neither
the others nor the thread of a request.
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
"""How long a poll is fresh."""
PATIENCE_S = 1.0
"""How long a caller waits for a poll."""
_MAX_THREADS = 256
"""The most threads: a site that does not answer occupies one until the time limit."""
_POLLS_PER_SECOND = 32
"""The number of polls each second that takes little of the service's CPU time."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Poll(Generic[T]):
    """The result of one poll: an `answer`, or None and an `error`.

    `begun` is the monotonic time at which it began.
    """

    answer: T | None
    begun: float = float("-inf")
    error: str | None = None


@dataclass(slots=True)
class _Subject(Generic[T]):
    last: T | None = None
    error: str | None = None
    polled: bool = False
    begun: float = float("-inf")
    ended: float = float("-inf")
    under_way: float | None = None


@dataclass(frozen=True, slots=True)
class _Requirement:
    """A caller accepts polls that began after the last change and ended, at most, the fresh time
    before the call. A poll that ends during the call always suffices, however long the call takes.
    """

    begun_after: float
    ended_after: float

    def met_by(self, subject: _Subject[T]) -> bool:
        ended, begun = subject.ended, subject.begun
        return subject.polled and ended > self.ended_after and begun > self.begun_after


def fresh_for(sites: int) -> float:
    """How old polls may be, in seconds, for a caller that reads many sites at once: each poll costs
    the service some milliseconds of CPU time, so that a thousand take more than a second."""
    return FRESH_S * max(1.0, sites / _POLLS_PER_SECOND)


class PollCache(Generic[T]):
    """Polls by the name of their site. `take` polls a site; `last_change` returns the monotonic
    time at which sites last changed."""

    def __init__(
        self, take: Callable[[str], T], clock: Clock, last_change: Callable[[], float], name: str
    ):
        self._take = take
        self._clock = clock
        self._last_change = last_change
        self._lock = threading.Lock()
        self._over = threading.Condition(self._lock)
        self._subjects: dict[str, _Subject[T]] = {}
        self._pool = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix=f"poll-{name}")
        self._closed = False
        self.ended = 0
        """The number of polls that have ended, with or without an answer."""
        self.cpu_s = 0.0
        """The CPU time that these polls have used."""

    def poll(
        self,
        sites: Iterable[str],
        fresh_s: float = FRESH_S,
        within_s: float = PATIENCE_S,
        at_once: Callable[[], int] = lambda: MANY,
        *,
        anew: bool = False,
    ) -> dict[str, Poll[T]]:
        """Return the polls of `sites`, if possible none that ended more than `fresh_s` ago, or with
        `anew` none that began before this call; a site that was never polled in time is missing.
        `within_s` limits the wait for all of them. `at_once` returns how many polls of answering
        sites may run at a time, at most `MANY`.

        Polls of many sites begin a few at a time, the oldest first: a concurrent caller for another
        site does not wait for all of them, and sites that were left out come first next time."""
        names = set(sites)
        requirement = self._requirement(fresh_s)
        if anew:
            now = math.nextafter(self._clock.monotonic(), -math.inf)
            requirement = _Requirement(max(requirement.begun_after, now), now)
        until = self._clock.monotonic() + within_s
        with self._over:
            pending, deadlines = self._oldest_last(names), dict[str, float]()
            while (pending or deadlines) and not self._closed:
                if (now := self._clock.monotonic()) >= until:
                    break
                while pending and self._has_room(deadlines, at_once):
                    site = pending.pop()
                    self._begin(site, requirement)
                    deadlines[site] = min(until, now + PATIENCE_S)
                remaining = self._still_awaited(deadlines, requirement)
                if len(remaining) == len(deadlines):
                    wait_s = min(remaining.values()) - now
                    self._over.wait(min(wait_s, PERIOD_S) if pending else wait_s)
                deadlines = remaining
        with self._lock:
            return {site: poll for site in names if (poll := self._poll_of(site)) is not None}

    def find_fresh(self, sites: Iterable[str], fresh_s: float) -> dict[str, Poll[T]]:
        """Return the polls of `sites` that have an answer and are fresh, without beginning any."""
        requirement = self._requirement(fresh_s)
        with self._lock:
            return {
                site: poll
                for site in sites
                if (poll := self._poll_of(site)) is not None
                and poll.error is None
                and requirement.met_by(self._subjects[site])
            }

    def last(self, site: str) -> Poll[T] | None:
        """The last poll of a site, however old; None if it was never polled."""
        with self._lock:
            return self._poll_of(site)

    def begin(self, sites: Iterable[str], fresh_s: float = FRESH_S) -> None:
        """Begin the first polls that `poll` would begin, without waiting for them."""
        requirement = self._requirement(fresh_s)
        with self._lock:
            for site in self._oldest_last(sites)[-MANY:]:
                self._begin(site, requirement)

    def forget(self, site: str) -> None:
        """Drop the poll of a site."""
        with self._lock:
            self._subjects.pop(site, None)

    def close(self) -> None:
        """Begin no further poll, and end all waits."""
        with self._over:
            self._closed = True
            self._over.notify_all()
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _requirement(self, fresh_s: float) -> _Requirement:
        """Taken once for each call: later changes matter to later callers only."""
        return _Requirement(self._last_change(), self._clock.monotonic() - fresh_s)

    def _poll_of(self, site: str) -> Poll[T] | None:
        """Call with the lock held."""
        subject = self._subjects.get(site)
        if subject is None or not subject.polled:
            return None
        return Poll(subject.last, subject.begun, subject.error)

    def _oldest_last(self, sites: Iterable[str]) -> list[str]:
        """Call with the lock held. A site that was never polled counts as the oldest."""
        subjects = self._subjects
        ended = {site: subjects[site].ended if site in subjects else -math.inf for site in sites}
        return sorted(ended, key=lambda site: -ended[site])

    def _begin(self, site: str, requirement: _Requirement) -> None:
        """Call with the lock held. Begin a poll, unless one is under way or the last suffices."""
        subject = self._subjects.setdefault(site, _Subject())
        if subject.under_way is None and not requirement.met_by(subject):
            subject.under_way = self._clock.monotonic()
            try:
                self._pool.submit(self._run, site, subject)
            except RuntimeError as error:  # it is closed
                subject.under_way = None
                raise TransientError("cannot poll sites: the service is stopping") from error

    def _has_room(self, deadlines: Mapping[str, float], at_once: Callable[[], int]) -> bool:
        """Call with the lock held. A site that did not answer last time costs only a thread."""
        subjects = (self._subjects.get(site) for site in deadlines)
        answering = sum(subject is not None and subject.error is None for subject in subjects)
        return len(deadlines) < MANY and answering < at_once()

    def _still_awaited(
        self, deadlines: Mapping[str, float], requirement: _Requirement
    ) -> dict[str, float]:
        """Call with the lock held. Return the deadlines (monotonic) of the sites whose polls are
        still to be awaited. A poll that began before the last change is repeated when it ends."""
        now, remaining = self._clock.monotonic(), {}
        for site, until in deadlines.items():
            subject = self._subjects.get(site)
            if subject is None or requirement.met_by(subject):
                continue
            self._begin(site, requirement)
            if subject.under_way is not None:
                until = min(until, subject.under_way + PATIENCE_S)
            if until > now:
                remaining[site] = until
        return remaining

    def _run(self, site: str, subject: _Subject[T]) -> None:
        begun, cpu_s = self._clock.monotonic(), time.thread_time()
        answer: T | None = None
        failure: str | None = "cannot poll the site: internal error in speck"
        try:
            answer, failure = self._take(site), None
        except SpeckError as error:  # no answer, or a refusal: the site's state is not known
            failure = str(error)
        finally:
            with self._over:
                subject.last, subject.error, subject.polled = answer, failure, True
                subject.begun, subject.ended = begun, self._clock.monotonic()
                subject.under_way = None
                self.ended += 1
                self.cpu_s += time.thread_time() - cpu_s
                self._over.notify_all()
