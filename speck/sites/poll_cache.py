"""Caches the last poll of each engine and broker, and polls again when it is old.

There is one poll at a time for each engine or broker. A caller waits at most `PATIENCE_S` after a
poll began, and then receives the previous one: a slow site delays neither the others nor the thread
of a request. Callers who want a poll of now share those that begin every `FRESH_S`.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Container, Iterable, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, TypeVar

from speck.clock import Clock, rfc3339
from speck.errors import SpeckError
from speck.sites.concurrency import PERIOD_S
from speck.sites.poll_scheduler import PATIENCE_S, PollScheduler, Turn

FRESH_S = 1.0
"""How long a poll is fresh."""
_FEW = 32
"""So many sites are polled at once for a caller that waits for them."""
_LOOK_S = 0.01
"""How often a caller that waits for many sites looks whether they have answered."""
_POLLS_PER_SECOND = 32
"""The number of polls each second that takes little of the service's CPU time."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Poll(Generic[T]):
    """The result of one poll: an `answer`, or None and an `error`.

    `begun` is the monotonic time at which it began, `at` the same in RFC 3339.
    """

    answer: T | None
    begun: float = float("-inf")
    error: str | None = None
    at: str | None = None


@dataclass(slots=True)
class _Subject(Generic[T]):
    """The last poll of a site; the time (monotonic) since which the next one is under way, or from
    which on it will be; and when the last one that was asked for anew began."""

    last: T | None = None
    error: str | None = None
    polled: bool = False
    begun: float = float("-inf")
    at: str | None = None
    ended: float = float("-inf")
    under_way: float | None = None
    begun_anew: float = float("-inf")


@dataclass(frozen=True, slots=True)
class _Requirement:
    """A caller accepts polls that began after the last change and ended, at most, the fresh time
    before the call. A poll that ends during the call always suffices, however long the call takes,
    unless polls are asked for `anew`: these begin after the call.
    """

    begun_after: float
    ended_after: float
    anew: bool = False

    def met_by(self, subject: _Subject[T]) -> bool:
        ended, begun = subject.ended, subject.begun
        return subject.polled and ended > self.ended_after and begun > self.begun_after


@dataclass(slots=True)
class Asked:
    """What a caller has asked a cache for, `until` when (monotonic) it waits: polls that wait for
    their `turns`, and the sites whose turns have `begun` since somebody looked."""

    sites: set[str]
    requirement: _Requirement
    until: float
    turns: dict[str, Turn] = field(default_factory=dict)
    begun: list[str] = field(default_factory=list)


def fresh_for(sites: int) -> float:
    """How old polls may be, in seconds, for a caller that reads many sites at once: each poll costs
    the service some milliseconds of CPU time, so that a thousand take more than a second."""
    return FRESH_S * max(1.0, sites / _POLLS_PER_SECOND)


class PollCache(Generic[T]):
    """Polls by the name of their site. `take` polls a site; `last_change` returns the monotonic
    time at which sites last changed."""

    def __init__(
        self,
        take: Callable[[str], T],
        clock: Clock,
        last_change: Callable[[], float],
        name: str,
        scheduler: PollScheduler,
    ):
        self._take = take
        self._clock = clock
        self._last_change = last_change
        self._name = name
        self._scheduler = scheduler
        self._lock = threading.Lock()
        self._over = threading.Condition(self._lock)
        self._closing = threading.Condition(self._lock)
        self._subjects: dict[str, _Subject[T]] = {}
        self._closed = False
        self.ended = 0
        """The number of polls that have ended, with or without an answer."""

    def poll(
        self,
        sites: Iterable[str],
        fresh_s: float = FRESH_S,
        within_s: float = PATIENCE_S,
        *,
        anew: bool = False,
        urgent: bool = True,
    ) -> dict[str, Poll[T]]:
        """`ask`, and `wait`."""
        return self.wait(self.ask(sites, fresh_s, within_s, anew=anew, urgent=urgent))

    def ask(
        self,
        sites: Iterable[str],
        fresh_s: float = FRESH_S,
        within_s: float = PATIENCE_S,
        *,
        anew: bool = False,
        urgent: bool = True,
    ) -> Asked:
        """Ask for polls of `sites`, if possible none that ended more than `fresh_s` ago, or with
        `anew` none that began before this call. `within_s` limits the wait for all of them.

        Polls take turns, the oldest first, so that sites that were left out come first next time;
        those of a few sites that are `urgent` begin at once. Of one site polls that are asked for
        `anew` begin `FRESH_S` apart, and the limit is later by as much: however many callers there
        are, they share them."""
        names = set(sites)
        requirement = self._requirement(fresh_s, anew=anew)
        until = self._clock.monotonic() + within_s + (FRESH_S if anew else 0.0)
        asked = Asked(names, requirement, until)
        with self._lock:
            if urgent and len(names) <= _FEW:
                for site in names:
                    self._begin(site, requirement)
            else:
                asked.turns = self._queue(names, requirement, asked.begun)
        return asked

    def wait(self, asked: Asked) -> dict[str, Poll[T]]:
        """Wait for what was asked for, and return the newest polls; a site that was never polled in
        time is missing."""
        requirement, until, turns = asked.requirement, asked.until, asked.turns
        awaited, waiting = asked.sites - turns.keys(), len(turns)
        with self._over:
            while not self._closed:
                now = self._clock.monotonic()
                awaited.update(asked.begun)
                waiting -= len(asked.begun)
                asked.begun.clear()
                deadlines = self._list_awaited(awaited, requirement, until, now)
                if not deadlines and (not waiting or now >= until):
                    break
                awaited = set(deadlines)
                wait_s = min(deadlines.values(), default=until) - now
                if len(turns) > _FEW:  # each look at what many are doing costs more than a poll
                    self._closing.wait(min(wait_s, _LOOK_S))
                else:
                    self._over.wait(min(wait_s, PERIOD_S) if waiting else wait_s)
        self._scheduler.withdraw(turns.values())
        with self._lock:
            polls = ((site, self._poll_of(site)) for site in asked.sites)
            return {site: poll for site, poll in polls if poll is not None}

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

    def forget(self, site: str) -> None:
        """Drop the poll of a site."""
        with self._lock:
            self._subjects.pop(site, None)

    @property
    def known(self) -> Set[str]:
        """The sites of which there is a poll, or will be."""
        with self._lock:
            return frozenset(self._subjects)

    def keep_only(self, sites: Container[str]) -> None:
        """Drop the polls of other sites: somebody may have asked for them just before they were
        removed."""
        with self._lock:
            for site in [site for site in self._subjects if site not in sites]:
                del self._subjects[site]

    def close(self) -> None:
        """Begin no further poll, and end all waits."""
        with self._over:
            self._closed = True
            self._over.notify_all()
            self._closing.notify_all()

    def _requirement(self, fresh_s: float, *, anew: bool = False) -> _Requirement:
        """Taken once for each call: later changes matter to later callers only."""
        changed, now = self._last_change(), self._clock.monotonic()
        if anew:
            just_before = math.nextafter(now, -math.inf)
            return _Requirement(max(changed, just_before), just_before, anew=True)
        return _Requirement(changed, now - fresh_s)

    def _poll_of(self, site: str) -> Poll[T] | None:
        """Call with the lock held."""
        subject = self._subjects.get(site)
        if subject is None or not subject.polled:
            return None
        return Poll(subject.last, subject.begun, subject.error, subject.at)

    def _oldest_first(self, sites: Iterable[str]) -> list[str]:
        """Call with the lock held. A site that was never polled counts as the oldest."""
        subjects = self._subjects
        ended = {site: subjects[site].ended if site in subjects else -math.inf for site in sites}
        return sorted(ended, key=ended.__getitem__)

    def _begin(self, site: str, requirement: _Requirement) -> None:
        """Call with the lock held. Begin a poll, as soon as it may, unless one is under way or the
        last suffices."""
        subject = self._subjects.setdefault(site, _Subject())
        if subject.under_way is None and not requirement.met_by(subject):
            at = self._clock.monotonic()
            if requirement.anew:
                at = subject.begun_anew = max(at, subject.begun_anew + FRESH_S)
            subject.under_way = at
            try:
                self._scheduler.begin((self._name, site), partial(self._run, site, subject), at)
            except SpeckError:  # it is closed
                subject.under_way = None
                raise

    def _queue(
        self, sites: set[str], requirement: _Requirement, begun: list[str]
    ) -> dict[str, Turn]:
        """Call with the lock held. Queue the polls that are needed; each site is added to `begun`
        when its turn has come."""
        turns = {}
        for site in self._oldest_first(sites):
            subject = self._subjects.setdefault(site, _Subject())
            if subject.under_way is None and not requirement.met_by(subject):
                run = partial(self._run_in_turn, site, subject, requirement, begun)
                turns[site] = Turn((self._name, site), run)
        self._scheduler.queue(turns.values())
        return turns

    def _list_awaited(
        self,
        sites: Iterable[str],
        requirement: _Requirement,
        until: float,
        now: float,
    ) -> dict[str, float]:
        """Call with the lock held. The deadlines (monotonic) of the sites whose polls are still to
        be awaited; their polls begin now unless they are under way. A poll that began before the
        last change is repeated when it ends."""
        awaited = {}
        for site in sites:
            subject = self._subjects.get(site)
            if subject is None or requirement.met_by(subject):
                continue
            self._begin(site, requirement)
            since = subject.under_way
            deadline = until if since is None else min(until, since + PATIENCE_S)
            if deadline > now:
                awaited[site] = deadline
        return awaited

    def _run_in_turn(
        self, site: str, subject: _Subject[T], requirement: _Requirement, begun: list[str]
    ) -> bool:
        """Poll, unless somebody else does or has done so meanwhile."""
        with self._lock:
            begun.append(site)
            if self._subjects.get(site) is not subject or requirement.met_by(subject):
                return subject.error is None
            if subject.under_way is not None:
                return subject.error is None
            subject.under_way = self._clock.monotonic()
        return self._run(site, subject)

    def _run(self, site: str, subject: _Subject[T]) -> bool:
        if self._subjects.get(site) is not subject:  # it was forgotten before its poll was due
            return True
        begun, at = self._clock.monotonic(), rfc3339(self._clock.now())
        answer: T | None = None
        failure: str | None = "cannot poll the site: internal error in speck"
        try:
            answer, failure = self._take(site), None
        except SpeckError as error:  # no answer, or a refusal: the site's state is not known
            failure = str(error)
        finally:
            with self._over:
                subject.last, subject.error, subject.polled = answer, failure, True
                subject.begun, subject.at = begun, at
                subject.ended = self._clock.monotonic()
                subject.under_way = None
                self.ended += 1
                self._over.notify_all()
        return failure is None
