"""Views of brokers that operations share.

A view of all numbers of a broker costs what all jobs there have reported. A hundred releases that
each read them would cost more than everything else that they do, and so would a few views for each
dozen of them. So they read the numbers of the clients concerned, those of many in one view.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from speck.deploy.operations.gathering import Answer, Gathering
from speck.deploy.scheduler import THREADS, Scheduler
from speck.model.observation import BrokerView

_ALL = None
"""Among the clients of a view: it reads the numbers of all."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A view that is under way, or was made."""

    began: int
    """The moment."""
    client_ids: frozenset[str] | None
    """Whose numbers it reads; None: everybody's."""
    answer: Answer[BrokerView]

    def has(self, client_ids: Collection[str]) -> bool:
        return self.client_ids is None or self.client_ids.issuperset(client_ids)


class SharedViews:
    """Views a broker once for all operations that ask while it is being viewed. Each gets a view
    that began after it had asked, or, of clients that have ended, after their end."""

    def __init__(
        self,
        view: Callable[[str, Collection[str] | None], BrokerView],
        scheduler: Scheduler = THREADS,
    ):
        """`view` is given the clients whose numbers are needed, and None for all."""
        self._view = view
        self._scheduler = scheduler
        self._gathering: Gathering[str | None, BrokerView] = Gathering(self._look, scheduler)
        self._lock = scheduler.lock()
        self._moments = itertools.count()
        self._newest: dict[str, _Look] = {}
        self._ends: dict[tuple[str, str], int] = {}
        """By site and client id: the moment at which it ended."""
        self._unread: dict[str, set[str]] = {}
        """By site, the clients that have ended since their numbers were read."""

    def record_end(self, site: str, client_id: str) -> None:
        """A client of a site's broker, which says nothing more, has ended. The next view reads its
        numbers, too: they will be asked for."""
        with self._lock:
            self._ends[site, client_id] = next(self._moments)
            self._unread.setdefault(site, set()).add(client_id)

    def record_start(self, site: str, client_id: str) -> None:
        """A client may say something again."""
        with self._lock:
            self._ends.pop((site, client_id), None)

    def view_after_end(self, site: str, client_ids: Collection[str]) -> BrokerView:
        """A view of a site's broker with everything that these clients have said; the newest one,
        which may be under way, if all have ended before it began. Raises like `view`."""
        with self._lock:
            ends = [self._ends.get((site, client_id), math.inf) for client_id in client_ids]
            newest = self._newest.get(site)
        last = max(ends, default=math.inf)
        if newest is not None and newest.has(client_ids) and last < newest.began:
            return newest.answer.get()
        return self.view(site, client_ids)

    def view(self, site: str, client_ids: Iterable[str] | None = None) -> BrokerView:
        """The broker of a site: what these clients say, at least. Raises what `MessageBroker.view`
        raises, for all that share it."""
        return self._gathering.ask(site, (_ALL,) if client_ids is None else client_ids)

    def _look(self, site: str, asked: frozenset[str | None]) -> BrokerView:
        with self._lock:
            known = {client_id for client_id in asked if client_id is not None}
            known |= self._unread.pop(site, set())
            client_ids = None if _ALL in asked else frozenset(known)
            look = _Look(next(self._moments), client_ids, Answer(self._scheduler))
            self._newest[site] = look
        try:
            view = self._view(site, look.client_ids)
        except BaseException as error:
            with self._lock:
                del self._newest[site]
            look.answer.fail(error)
            raise
        look.answer.give(view)
        return view
