"""What the routes share while the application lives."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import cast

from flask import current_app, g, request

from speck.api.metrics import Metrics
from speck.api.permits import Holder, Permits
from speck.errors import TransientError, UnauthorizedError
from speck.model.token import Role
from speck.service import Service

EXTENSION = "speck"
SITE_CALL_PATIENCE_S = 2.0
"""How long a call that looks at sites waits for its permit: most take a few milliseconds."""


def count_site_calls(threads: int) -> int:
    """How many calls may look at sites at once; as many may wait for their turn. They have threads
    in addition to the other `threads`."""
    return max(1, threads // 4)


@dataclass(slots=True)
class Context:
    """The service, and the limits on what may hold its threads.

    Every open event stream, every waiting request, every agent that waits for a command, every
    relayed piece of state, every call that looks at sites, and every task that waits for a site or
    works on a large file holds a thread. Each kind is limited, so that some threads are always
    left for requests that are answered at once. A file that is being sent holds no thread, but
    room on the disk. Of each kind one token has a share (`Permits`).
    """

    service: Service
    metrics: Metrics
    stopping: threading.Event = field(default_factory=threading.Event)
    streams: Permits = field(init=False)
    waits: Permits = field(init=False)
    polls: Permits = field(init=False)
    relays: Permits = field(init=False)
    tasks: Permits = field(init=False)
    site_calls: Permits = field(init=False)
    downloads: Permits = field(init=False)

    def __post_init__(self) -> None:
        threads = self.service.config.threads
        streams = polls = max(1, threads // 4)
        relays = tasks = max(1, threads // 8)
        self.streams, self.polls = Permits(streams), Permits(polls)
        self.relays, self.tasks = Permits(relays), Permits(tasks)
        self.waits = Permits(max(1, threads - streams - polls - relays - tasks - 2))
        self.site_calls = Permits(count_site_calls(threads))
        self.downloads = Permits(max(1, threads // 4))


def context() -> Context:
    """The context of the current application."""
    return cast(Context, current_app.extensions[EXTENSION])


def service() -> Service:
    """The use cases of the current application."""
    return context().service


def holder() -> Holder:
    """Who holds the permits that this request takes."""
    requester = g.get("caller")
    if requester is None:
        return Holder()
    return Holder(requester.name, requester.role is Role.ADMIN)


def is_over() -> bool:
    """Whether a wait of this request must end at once: the service stops, or the token that it was
    sent with has been removed or has expired meanwhile."""
    is_stopping = context().stopping.is_set() or service().closing.is_set()
    return is_stopping or not service().tokens.is_valid(holder().token)


def refuse_if_over() -> None:
    """Raises UnauthorizedError when the token of this request has been removed or has expired while
    the request waited, TransientError when the service closes, and its store with it."""
    if service().closing.is_set():
        raise TransientError(
            f"cannot {request.method} {request.path} any longer: the service is stopping"
        )
    if not service().tokens.is_valid(holder().token):
        raise UnauthorizedError(
            f"cannot {request.method} {request.path} any longer: this token has been removed or has"
            " expired"
        )


@contextmanager
def waiting(seconds: float) -> Iterator[float]:
    """Yield how long this request may wait: `seconds`, or 0 when too many wait already (the
    caller then answers 202 with a Location). Who waits gives up when `is_over`, and gets no answer
    but UnauthorizedError then."""
    with _hold(context().waits, seconds) as allowed:
        yield allowed
        if allowed:
            refuse_if_over()


@contextmanager
def watching(what: str) -> Iterator[None]:
    """Hold a permit among those that wait, for a request that shows what happens meanwhile. Raises
    TransientError, which names it, when none is free."""
    with waiting(1.0) as allowed:
        if not allowed:
            raise TransientError(
                f"cannot {what} now: as many requests wait as the service, or one token, may have"
                " at once; try again later"
            )
        yield


@contextmanager
def polling(seconds: float) -> Iterator[float]:
    """The same for an agent that waits for commands or for a piece of state."""
    with _hold(context().polls, seconds) as allowed:
        yield allowed


@contextmanager
def relaying() -> Iterator[None]:
    """Hold a permit while a piece of state is received. Raises TransientError when none is free."""
    with _hold(context().relays, 1.0) as allowed:
        if not allowed:
            raise TransientError("cannot take another piece of state now: too many arrive at once")
        yield


@contextmanager
def looking(what: str) -> Iterator[None]:
    """Hold a permit for a call that looks at sites, which takes as long as the slowest of them.
    Raises TransientError, which names it, when none becomes free soon."""
    with _hold(context().site_calls, 1.0, SITE_CALL_PATIENCE_S) as allowed:
        if not allowed:
            raise TransientError(
                f"cannot {what} now: as many calls as the service, or one token, may make at once"
                " are waiting for sites; try again later"
            )
        yield


@contextmanager
def acting(what: str, seconds: float) -> Iterator[float]:
    """Hold a permit for a request that looks at sites and then waits for the outcome of a change:
    one of those that wait, or, when it does not wait or too many do, one of those that look. Yields
    how long it may wait. Raises TransientError, which names it."""
    with waiting(seconds) as allowed:
        if allowed:
            yield allowed
            return
        with looking(what):
            yield 0.0


@contextmanager
def occupying(what: str) -> Iterator[None]:
    """Hold a permit for a task that takes long: a check, a calibration, an upload, an export, an
    import, a search for a placement. Raises TransientError, which names it, when none is free."""
    with _hold(context().tasks, 1.0) as allowed:
        if not allowed:
            raise TransientError(
                f"cannot {what} now: as many tasks that take long are under way as the service, or"
                " one token, may have at once; try again later"
            )
        yield


@contextmanager
def _hold(permits: Permits, seconds: float, patience_s: float = 0.0) -> Iterator[float]:
    mine = holder()
    if seconds <= 0 or not permits.acquire(mine, patience_s):
        yield 0.0
        return
    try:
        yield seconds
    finally:
        permits.release(mine)
