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
    """The service and what guards its threads.

    Every open event stream, every waiting request, every agent that waits for a command and every
    piece of state that is relayed holds a thread. All are bounded so that some threads are
    always left for requests that answer at once.
    """

    service: Service
    metrics: Metrics
    stopping: threading.Event = field(default_factory=threading.Event)
    streams: threading.BoundedSemaphore = field(init=False)
    waits: threading.BoundedSemaphore = field(init=False)
    polls: threading.BoundedSemaphore = field(init=False)
    relays: threading.BoundedSemaphore = field(init=False)

    def __post_init__(self) -> None:
        threads = self.service.config.threads
        streams = polls = max(1, threads // 4)
        relays = max(1, threads // 8)
        self.streams = threading.BoundedSemaphore(streams)
        self.polls = threading.BoundedSemaphore(polls)
        self.relays = threading.BoundedSemaphore(relays)
        waits = threads - streams - polls - relays - 2
        self.waits = threading.BoundedSemaphore(max(1, waits))


def context() -> Context:
    """That of the application that answers now."""
    return cast(Context, current_app.extensions[EXTENSION])


def service() -> Service:
    """The use cases of the application that answers now."""
    return context().service


@contextmanager
def waiting(seconds: float) -> Iterator[float]:
    """How long this request may wait: `seconds`, or 0 when too many wait already (the caller
    then answers 202, which tells where to look)."""
    with _held(context().waits, seconds) as allowed:
        yield allowed


@contextmanager
def polling(seconds: float) -> Iterator[float]:
    """The same for an agent that asks for commands, or for a piece of state."""
    with _held(context().polls, seconds) as allowed:
        yield allowed


@contextmanager
def relaying() -> Iterator[None]:
    """While a piece of state comes in. Raises TransientError when too many do."""
    with _held(context().relays, 1.0) as allowed:
        if not allowed:
            raise TransientError("cannot take another piece of state now: too many come at once")
        yield


@contextmanager
def _held(places: threading.BoundedSemaphore, seconds: float) -> Iterator[float]:
    if seconds <= 0 or not places.acquire(blocking=False):
        yield 0.0
        return
    try:
        yield seconds
    finally:
        places.release()
