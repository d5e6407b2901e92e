"""A poller: reads requests from the socket that it inherits, and answers each when it can.

    python -m gevent.monkey --module speck.sites.pollers.process FILENO

It runs unchanged on threads of the system, without the first three words behind `python`.
"""

from __future__ import annotations

import gc
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Generic, Protocol, TypeVar

from speck.binding import (
    EnginePoll,
    MessageBroker,
    StreamEngine,
    Target,
    open_broker,
    open_engine,
    poll_broker,
    poll_engine,
)
from speck.errors import SpeckError
from speck.model.plain_text import PlainFormatter
from speck.sites.pollers.messages import Failure, Inbox, PollRequest, Reply, pack

LOG = logging.getLogger(__name__)

THREADS = 1024
"""The most polls at a time: a site that does not answer occupies one until the time limit."""

UNUSED_S = 600.0
"""What was not polled for so long is closed when another is opened: its site is gone or moved."""

URGENT_S = 0.5
"""The most seconds for which other polls wait for urgent ones."""

GC_THRESHOLDS = 20_000, 20, 20
"""Answers are dropped by reference counts; cycles are few."""


class Poller:
    """Keeps the binders of its sites open."""

    def __init__(self, sock: socket.socket):
        self._sock = sock
        self._sending = threading.Lock()
        self._opening = threading.Lock()
        self._turn = threading.Condition()
        self._urgent = 0
        self._engines: _Opened[StreamEngine] = _Opened(open_engine)
        self._brokers: _Opened[MessageBroker] = _Opened(open_broker)

    def run(self) -> None:
        """Answer requests until the service is gone."""
        inbox = Inbox(self._sock)
        pool = ThreadPoolExecutor(THREADS, thread_name_prefix="poll")
        while (request := inbox.receive()) is not None:
            if request.urgent:
                with self._turn:
                    self._urgent += 1
            pool.submit(self._answer_in_turn, request)

    def _answer_in_turn(self, request: PollRequest) -> None:
        if request.urgent:
            try:
                self._answer(request)
            finally:
                with self._turn:
                    self._urgent -= 1
                    if not self._urgent:
                        self._turn.notify_all()
            return
        with self._turn:  # an urgent one that hangs holds nobody up for long
            self._turn.wait_for(lambda: not self._urgent, URGENT_S)
        self._answer(request)

    def _answer(self, request: PollRequest) -> None:
        try:
            message = pack(Reply(request.number, self._poll(request)))
        except SpeckError as error:
            message = pack(Reply(request.number, Failure.of(error)))
        except Exception as error:
            LOG.exception("cannot poll %s", request.target.address)
            failure = Failure(None, f"cannot poll {request.target.address}: {error!r}")
            message = pack(Reply(request.number, failure))
        with self._sending:
            self._sock.sendall(message)

    def _poll(self, request: PollRequest) -> Any:
        if isinstance(request.what, EnginePoll):
            with self._opening:
                engine = self._engines.find(request.kind, request.target)
            return poll_engine(engine, request.what, request.job_ids)
        with self._opening:
            broker = self._brokers.find(request.kind, request.target)
        return poll_broker(broker, request.what)


class _Binder(Protocol):
    def close(self) -> None: ...


_B = TypeVar("_B", bound=_Binder)


class _Opened(Generic[_B]):
    """The binders of one kind that are open."""

    def __init__(self, open_binder: Callable[[str, Target], _B]):
        self._open = open_binder
        self._binders: dict[tuple[str, Target], _B] = {}
        self._used_at: dict[tuple[str, Target], float] = {}

    def find(self, kind: str, target: Target) -> _B:
        """The binder of a target, opened if necessary."""
        key = kind, target
        self._used_at[key] = time.monotonic()
        if key not in self._binders:
            self._close_unused()
            self._binders[key] = self._open(kind, target)
        return self._binders[key]

    def _close_unused(self) -> None:
        last = time.monotonic() - UNUSED_S
        for key in [key for key, at in self._used_at.items() if at < last]:
            del self._used_at[key]
            if (binder := self._binders.pop(key, None)) is not None:
                binder.close()


def main() -> None:
    # a signal to the whole group, as Ctrl-C sends it, is for the service: it ends its pollers
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    gc.freeze()
    gc.set_threshold(*GC_THRESHOLDS)
    handler = logging.StreamHandler()
    handler.setFormatter(PlainFormatter("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    Poller(socket.socket(fileno=int(sys.argv[1]))).run()
    os._exit(0)  # nobody waits for the polls under way


if __name__ == "__main__":
    main()
