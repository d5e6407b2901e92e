"""Views of brokers that operations share.

A view reads all numbers of a broker. A hundred releases that each read them would cost more than
everything else that they do.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future

from speck.deploy.locks import NamedLocks
from speck.model.observation import BrokerView


class SharedViews:
    """Views a broker once for all operations that ask while it is being viewed. Each gets a view
    that began after it had asked, or, of clients that have ended, after their end."""

    def __init__(self, view: Callable[[str], BrokerView]):
        self._view = view
        self._lock = threading.Lock()
        self._next: dict[str, Future[BrokerView]] = {}
        self._viewing = NamedLocks()
        self._newest: dict[str, tuple[float, BrokerView]] = {}
        """By site, with the monotonic time at which the view began."""
        self._ends: dict[str, float] = {}

    def note_end(self, *client_ids: str) -> None:
        """Clients that say nothing more have ended."""
        with self._lock:
            self._ends |= dict.fromkeys(client_ids, time.monotonic())

    def note_start(self, client_id: str) -> None:
        """A client may say something again."""
        with self._lock:
            self._ends.pop(client_id, None)

    def view_after_end(self, site: str, client_ids: Iterable[str]) -> BrokerView:
        """A view of a site's broker with everything that these clients have said; the newest one if
        all have ended before it began. Raises like `view`."""
        with self._lock:
            ends = [self._ends.get(client_id, float("inf")) for client_id in client_ids]
            began, newest = self._newest.get(site, (float("-inf"), None))
        if newest is not None and max(ends, default=float("inf")) <= began:
            return newest
        return self.view(site)

    def view(self, site: str) -> BrokerView:
        """The broker of a site. Raises what `MessageBroker.view` raises, for all that share it."""
        with self._lock:
            leads = site not in self._next
            result = self._next.setdefault(site, Future())
        if leads:
            with self._viewing[site]:
                with self._lock:  # who asks from now on needs a later view
                    del self._next[site]
                try:
                    began = time.monotonic()
                    view = self._view(site)
                    with self._lock:
                        self._newest[site] = began, view
                    result.set_result(view)
                except BaseException as error:
                    result.set_exception(error)
        return result.result()
