"""What the routes share while the application lives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from flask import current_app

from speck.api.metrics import Metrics
from speck.errors import TransientError
from speck.service import Service

EXTENSION = "speck"


@dataclass(slots=True)
class Context:
    """The service, and the limits on what may hold its threads.

    Every open event stream, every waiting request, every agent that waits for a command, every
    relayed piece of state, and every task that waits for a site or works on a large file holds a
    thread. Each kind is limited, so that some threads are always
    left for requests that are answered at once.
    """

    service: Service
    metrics: Metrics
    stopping: threading.Event = field(default_factory=threading.Event)
    streams: threading.BoundedSemaphore = field(init=False)
    waits: threading.BoundedSemaphore = field(init=False)
    polls: threading.BoundedSemaphore = field(init=False)
    relays: threading.BoundedSemaphore = field(init=False)
    tasks: threading.BoundedSemaphore = field(init=False)

    def __post_init__(self) -> None:
        threads = self.service.config.threads
        streams = polls = max(1, threads // 4)
        relays = tasks = max(1, threads // 8)
        self.streams = threading.BoundedSemaphore(streams)
        self.polls = threading.BoundedSemaphore(polls)
        self.relays = threading.BoundedSemaphore(relays)
        self.tasks = threading.BoundedSemaphore(tasks)
        waits = threads - streams - polls - relays - tasks - 2
        self.waits = threading.BoundedSemaphore(max(1, waits))


def context() -> Context:
    """The context of the current application."""
    return cast(Context, current_app.extensions[EXTENSION])


def service() -> Service:
    """The use cases of the current application."""
    return context().service


@contextmanager
def waiting(seconds: float) -> Iterator[float]:
    """Yield how long this request may wait: `seconds`, or 0 when too many wait already (the
    caller then answers 202 with a Location)."""
    with _hold(context().waits, seconds) as allowed:
        yield allowed


@contextmanager
def polling(seconds: float) -> Iterator[float]:
    """The same for an agent that waits for commands or for a piece of state."""
    with _hold(context().polls, seconds) as allowed:
        yield allowed


@contextmanager
def relaying() -> Iterator[None]:
    """Hold a place while a piece of state is received. Raises TransientError when none is free."""
    with _hold(context().relays, 1.0) as allowed:
        if not allowed:
            raise TransientError("cannot take another piece of state now: too many arrive at once")
        yield


@contextmanager
def occupying(what: str) -> Iterator[None]:
    """Hold a place for a task that takes long: a check, a calibration, an upload, an export, an
    import, a search for a placement. Raises TransientError, which names it, when none is free."""
    with _hold(context().tasks, 1.0) as allowed:
        if not allowed:
            raise TransientError(
                f"cannot {what} now: as many tasks that take long as the service does at once are"
                " under way; try again later"
            )
        yield


@contextmanager
def _hold(places: threading.BoundedSemaphore, seconds: float) -> Iterator[float]:
    if seconds <= 0 or not places.acquire(blocking=False):
        yield 0.0
        return
    try:
        yield seconds
    finally:
        places.release()
