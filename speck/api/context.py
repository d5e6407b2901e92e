"""What the routes share while the application lives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from flask import current_app

from speck.api.metrics import Metrics
from speck.service import Service

EXTENSION = "speck"


@dataclass(slots=True)
class Context:
    """The service and what guards its threads.

    Every open event stream and every waiting request holds a thread. Both are bounded so
    that some threads are always left for requests that answer at once.
    """

    service: Service
    metrics: Metrics
    stopping: threading.Event = field(default_factory=threading.Event)
    streams: threading.BoundedSemaphore = field(init=False)
    waits: threading.BoundedSemaphore = field(init=False)

    def __post_init__(self) -> None:
        threads = self.service.config.threads
        streams = max(1, threads // 4)
        self.streams = threading.BoundedSemaphore(streams)
        self.waits = threading.BoundedSemaphore(max(1, threads - streams - 2))


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
    waits = context().waits
    if seconds <= 0 or not waits.acquire(blocking=False):
        yield 0.0
        return
    try:
        yield seconds
    finally:
        waits.release()
