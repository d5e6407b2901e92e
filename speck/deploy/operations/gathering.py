"""Calls that operations share: what many ask for at the same time is one call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from typing import Generic, TypeVar

from speck.deploy.locks import NamedLocks

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class Gathering(Generic[Item, Answer]):
    """Makes one call at a time for each site. Those who ask meanwhile share the next one, with the
    items of all of them: a busy broker gathers more, and nobody waits for others to come."""

    def __init__(self, call: Callable[[str, frozenset[Item]], Answer]):
        self._call = call
        self._lock = threading.Lock()
        self._calling = NamedLocks()
        self._next: dict[str, tuple[set[Item], Future[Answer]]] = {}

    def ask(self, site: str, items: Iterable[Item]) -> Answer:
        """The answer of a call that began after this, with these items among others. Raises what
        the call raises, for all that share it."""
        with self._lock:
            leads = site not in self._next
            gathered, answer = self._next.setdefault(site, (set(), Future()))
            gathered.update(items)
        if leads:
            with self._calling[site]:
                with self._lock:  # who asks from now on needs a later call
                    del self._next[site]
                try:
                    answer.set_result(self._call(site, frozenset(gathered)))
                except BaseException as error:
                    answer.set_exception(error)
        return answer.result()

    def pending(self, site: str) -> frozenset[Item]:
        """The items of the next call."""
        with self._lock:
            items, _ = self._next.get(site, (set(), None))
            return frozenset(items)
