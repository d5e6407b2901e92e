"""Calls that operations share: what many ask for at the same time is one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from speck.deploy.locks import NamedLocks
from speck.deploy.scheduler import THREADS, Scheduler

Item = TypeVar("Item")
Value = TypeVar("Value")


class Answer(Generic[Value]):
    """What one thread finds out, and others wait for."""

    def __init__(self, scheduler: Scheduler):
        self._is_there = scheduler.event()
        self._value: Value
        self._error: BaseException | None = None

    def give(self, value: Value) -> None:
        """The answer is there."""
        self._value = value
        self._is_there.set()

    def fail(self, error: BaseException) -> None:
        """There is no answer: raise this where it is waited for."""
        self._error = error
        self._is_there.set()

    def get(self) -> Value:
        """Wait for it."""
        self._is_there.wait()
        if self._error is not None:
            raise self._error
        return self._value


class Gathering(Generic[Item, Value]):
    """Makes one call at a time for each site. Those who ask meanwhile share the next one, with the
    items of all of them: a busy broker gathers more, and nobody waits for others to come."""

    def __init__(
        self, call: Callable[[str, frozenset[Item]], Value], scheduler: Scheduler = THREADS
    ):
        self._call = call
        self._scheduler = scheduler
        self._lock = scheduler.lock()
        self._calling = NamedLocks(scheduler)
        self._next: dict[str, tuple[set[Item], Answer[Value]]] = {}

    def ask(self, site: str, items: Iterable[Item]) -> Value:
        """The answer of a call that began after this, with these items among others. Raises what
        the call raises, for all that share it."""
        with self._lock:
            leads = site not in self._next
            gathered, answer = self._next.setdefault(site, (set(), Answer(self._scheduler)))
            gathered.update(items)
        if leads:
            with self._calling[site]:
                with self._lock:  # who asks from now on needs a later call
                    del self._next[site]
                try:
                    answer.give(self._call(site, frozenset(gathered)))
                except BaseException as error:
                    answer.fail(error)
        return answer.get()

    def pending(self, site: str) -> frozenset[Item]:
        """The items of the next call."""
        with self._lock:
            items, _ = self._next.get(site, (set(), None))
            return frozenset(items)
