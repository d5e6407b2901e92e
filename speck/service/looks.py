"""The last look at each engine and broker, taken anew when it is old.

Looks run in threads of their own, one at a time for each engine or broker. Who asks waits for
at most `PATIENCE_S` after a look began and is then served the one before: a site that is slow
holds up neither the others nor the thread of a request.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from speck.clock import Clock
from speck.errors import SpeckError, TransientError

FRESH_S = 1.0
"""A look is good for so long."""
PATIENCE_S = 1.0
"""How long a look may keep somebody waiting."""
_AT_ONCE = 64

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Look(Generic[T]):
    """What one look gave: `found`, or None when there was no answer, and then the `error`.

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
    over: threading.Event = field(default_factory=threading.Event)


class Looks(Generic[T]):
    """Looks by the name of their site. `touched` says when (monotonic) things changed last."""

    def __init__(
        self, take: Callable[[str], T], clock: Clock, touched: Callable[[], float], name: str
    ):
        self._take = take
        self._clock = clock
        self._touched = touched
        self._lock = threading.Lock()
        self._subjects: dict[str, _Subject[T]] = {}
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix=f"look-{name}")
        self.ended = 0
        """How many looks have ended, answered or not."""

    def at(self, sites: Iterable[str]) -> dict[str, Look[T]]:
        """The looks at `sites`; one that never had an answer in time is missing."""
        names = set(sites)
        since = self._touched()  # what changes from now on is for those who ask later
        for site in names:
            self._begin(site, since)
        for site in names:
            self._await(site, since)
        found = {}
        with self._lock:
            for site in names:
                subject = self._subjects.get(site)
                if subject is not None and subject.known:
                    current = subject.begun > self._touched()
                    found[site] = Look(subject.last, current, subject.begun, subject.error)
        return found

    def begin(self, sites: Iterable[str]) -> None:
        """Take the looks at `sites` that are old, and do not wait for them."""
        since = self._touched()
        for site in sites:
            self._begin(site, since)

    def forget(self, site: str) -> None:
        """Know nothing of a site any more."""
        with self._lock:
            self._subjects.pop(site, None)

    def close(self) -> None:
        """Begin no further look."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _begin(self, site: str, since: float) -> None:
        with self._lock:
            subject = self._subjects.setdefault(site, _Subject())
            if subject.under_way is not None or self._good(subject, since):
                return
            subject.under_way = self._clock.monotonic()
            subject.over = threading.Event()
            try:
                self._pool.submit(self._look, site, subject)
            except RuntimeError as error:  # it is closed
                subject.under_way = None
                raise TransientError("cannot look at sites: the service is stopping") from error

    def _good(self, subject: _Subject[T], since: float) -> bool:
        fresh = subject.ended > self._clock.monotonic() - FRESH_S
        return subject.known and fresh and subject.begun > since

    def _look(self, site: str, subject: _Subject[T]) -> None:
        begun = self._clock.monotonic()
        found: T | None = None
        failure: str | None = "cannot say what is there: a fault in speck"
        try:
            found, failure = self._take(site), None
        except SpeckError as error:  # no answer, or a refusal: nothing is known of what is there
            failure = str(error)
        finally:
            with self._lock:
                subject.last, subject.error, subject.known = found, failure, True
                subject.begun, subject.ended = begun, self._clock.monotonic()
                subject.under_way = None
                self.ended += 1
            subject.over.set()

    def _await(self, site: str, since: float) -> None:
        """Until the look is good, or has been patience enough."""
        until = self._clock.monotonic() + PATIENCE_S
        while True:
            with self._lock:
                subject = self._subjects.get(site)
                if subject is None or subject.under_way is None:
                    if subject is None or self._good(subject, since):
                        return
                    over = None
                else:
                    until = min(until, subject.under_way + PATIENCE_S)
                    over = subject.over
            left = until - self._clock.monotonic()
            if left <= 0:
                return
            if over is None:
                self._begin(site, since)  # what was under way had begun before things changed
            else:
                over.wait(left)
