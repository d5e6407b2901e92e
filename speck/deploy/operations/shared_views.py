"""Views of brokers that operations share.

A view reads all numbers of a broker. A hundred releases that each read them would cost more than
everything else that they do.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import Future

from speck.deploy.locks import NamedLocks
from speck.model.observation import BrokerView


class SharedViews:
    """Views a broker once for all operations that ask while it is being viewed. Each gets a view
    that began after it had asked."""

    def __init__(self, view: Callable[[str], BrokerView]):
        self._view = view
        self._lock = threading.Lock()
        self._next: dict[str, Future[BrokerView]] = {}
        self._viewing = NamedLocks()

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
                    result.set_result(self._view(site))
                except BaseException as error:
                    result.set_exception(error)
        return result.result()
