"""Views of brokers that operations share.

A view of all numbers of a broker costs what all jobs there have reported. A hundred releases that
each read them would cost more than everything else that they do, and so would a few views for each
dozen of them. So they read the numbers of the clients concerned, those of many in one view.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Future
from dataclasses import dataclass, field

from speck.deploy.operations.gathering import Gathering
from speck.model.observation import BrokerView

_ALL = None
"""Among the clients of a view: it reads the numbers of all."""


@dataclass(frozen=True, slots=True)
class _Look:
    """A view that is under way, or was made."""

    began: float
    client_ids: frozenset[str] | None
    """Whose numbers it reads; None: everybody's."""
    result: Future[BrokerView] = field(default_factory=Future)

    def has(self, client_ids: Collection[str]) -> bool:
        return self.client_ids is None or self.client_ids.issuperset(client_ids)


class SharedViews:
    """Views a broker once for all operations that ask while it is being viewed. Each gets a view
    that began after it had asked, or, of clients that have ended, after their end."""

    def __init__(self, view: Callable[[str, Collection[str] | None], BrokerView]):
        """`view` is given the clients whose numbers are needed, and None for all."""
        self._view = view
        self._gathering: Gathering[str | None, BrokerView] = Gathering(self._look)
        self._lock = threading.Lock()
        self._newest: dict[str, _Look] = {}
        self._ends: dict[tuple[str, str], float] = {}
        """By site and client id: when it ended, in monotonic time."""
        self._unread: dict[str, set[str]] = {}
        """By site, the clients that have ended since their numbers were read."""

    def record_end(self, site: str, client_id: str) -> None:
        """A client of a site's broker, which says nothing more, has ended. The next view reads its
        numbers, too: they will be asked for."""
        with self._lock:
            self._ends[site, client_id] = time.monotonic()
            self._unread.setdefault(site, set()).add(client_id)

    def record_start(self, site: str, client_id: str) -> None:
        """A client may say something again."""
        with self._lock:
            self._ends.pop((site, client_id), None)

    def view_after_end(self, site: str, client_ids: Collection[str]) -> BrokerView:
        """A view of a site's broker with everything that these clients have said; the newest one,
        which may be under way, if all have ended before it began. Raises like `view`."""
        with self._lock:
            ends = [self._ends.get((site, client_id), float("inf")) for client_id in client_ids]
            newest = self._newest.get(site)
        last = max(ends, default=float("inf"))
        if newest is not None and newest.has(client_ids) and last <= newest.began:
            return newest.result.result()
        return self.view(site, client_ids)

    def view(self, site: str, client_ids: Iterable[str] | None = None) -> BrokerView:
        """The broker of a site: what these clients say, at least. Raises what `MessageBroker.view`
        raises, for all that share it."""
        return self._gathering.ask(site, (_ALL,) if client_ids is None else client_ids)

    def _look(self, site: str, asked: frozenset[str | None]) -> BrokerView:
        with self._lock:
            known = {client_id for client_id in asked if client_id is not None}
            known |= self._unread.pop(site, set())
            look = _Look(time.monotonic(), None if _ALL in asked else frozenset(known))
            self._newest[site] = look
        try:
            view = self._view(site, look.client_ids)
        except BaseException as error:
            with self._lock:
                del self._newest[site]
            look.result.set_exception(error)
            raise
        look.result.set_result(view)
        return view
