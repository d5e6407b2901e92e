"""Locks of the use cases that change compositions."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext

from speck.deploy.locks import NamedLocks
from speck.model.composition import job_posted_alone


class CompositionLocks:
    """One of each composition, held while it is accepted; and one over the names of jobs."""

    def __init__(self) -> None:
        self._named = NamedLocks()
        self.owning = threading.RLock()
        """Held while a job's name is checked to be free, and taken."""

    def __getitem__(self, name: str) -> AbstractContextManager[object]:
        return self._named[name]

    @contextmanager
    def all_of(self, names: Iterable[str]) -> Iterator[None]:
        """Held while nothing else may change these compositions, nor take or free a job's name."""
        with ExitStack() as stack:
            for name in sorted(names):
                stack.enter_context(self._named[name])
            stack.enter_context(self.owning)
            yield

    def guard_adoption(self, name: str) -> AbstractContextManager[object]:
        """Held while a job posted alone must not be adopted; nothing else can be, and starts of
        changes of other compositions do not wait for one another."""
        return self.owning if job_posted_alone(name) is not None else nullcontext()
