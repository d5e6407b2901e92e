"""The poller processes as the service sees them: started, asked, started again, ended."""

from __future__ import annotations

import itertools
import logging
import socket
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from speck.binding import BrokerPoll, EnginePoll, Target
from speck.errors import TransientError
from speck.sites.pollers.messages import Failure, Inbox, PollRequest, Reply, pack

LOG = logging.getLogger(__name__)

ANSWER_S = 120.0
"""The most seconds for an answer. The binder's own limits are lower; this one is for a poller that
hangs."""

_COMMAND = (sys.executable, "-m", "gevent.monkey", "--module", "speck.sites.pollers.process")
"""Its threads are gevent's: hundreds of polls at a time would otherwise spend half of its CPU time
on taking turns."""

_SHORT_LIFE_S, _RESTART_S = 5.0, 1.0
"""One that dies sooner than the first is started again after the second."""


@dataclass(slots=True)
class _Pending:
    """A request without an answer, which is awaited `until` a time (monotonic); `sent`: how many
    processes have got it."""

    request: PollRequest
    until: float
    answer: Future[Any] = field(default_factory=Future)
    sent: int = 0


class _Process:
    """One poller: a thread reads its answers, and starts it again when it has died."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[int, _Pending] = {}
        self._closing = threading.Event()
        self._process: subprocess.Popen[bytes] | None = None
        self._sock: socket.socket | None = None
        self._thread = threading.Thread(target=self._run, name="poller", daemon=True)
        self._thread.start()

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    def ask(self, pending: _Pending) -> None:
        """Send a request now, or as soon as there is a process."""
        with self._lock:
            self._pending[pending.request.number] = pending
            self._send(pending)

    def withdraw(self, number: int) -> None:
        """Wait no longer for an answer."""
        with self._lock:
            self._pending.pop(number, None)

    def close(self) -> None:
        """End the process, and fail what is pending."""
        self._closing.set()
        with self._lock:
            if self._sock is not None:
                self._sock.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def _send(self, pending: _Pending) -> None:
        """Call with the lock held. The death of the process is noticed by the thread."""
        if self._sock is not None:
            pending.sent += 1
            try:
                self._sock.sendall(pack(pending.request))
            except OSError as error:
                LOG.debug("a poller is gone: %s", error)

    def _run(self) -> None:
        while not self._closing.is_set():
            began = time.monotonic()
            self._live()
            if not self._closing.is_set():
                LOG.warning("a poller process has ended; it is started again")
                if time.monotonic() - began < _SHORT_LIFE_S:
                    self._closing.wait(_RESTART_S)
        with self._lock:
            for pending in self._pending.values():
                _fail(pending, "the service is stopping")
            self._pending.clear()

    def _live(self) -> None:
        """From the start of a process to its end."""
        ours, its = socket.socketpair()
        command = [*_COMMAND, str(its.fileno())]
        with ours:
            with its:
                self._process = process = subprocess.Popen(
                    command, stdin=subprocess.DEVNULL, pass_fds=(its.fileno(),)
                )
            with self._lock:
                self._sock = ours
                for pending in list(self._pending.values()):
                    if pending.sent > 1:  # it may be what kills them
                        del self._pending[pending.request.number]
                        _fail(pending, "its poller has died twice")
                    else:
                        self._send(pending)
            if self._closing.is_set():  # since before there was a socket
                ours.shutdown(socket.SHUT_RDWR)
            self._read(Inbox(ours))
            with self._lock:
                self._sock = None
        try:
            process.wait(5)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _read(self, inbox: Inbox) -> None:
        while isinstance(reply := inbox.receive(), Reply):
            with self._lock:
                pending = self._pending.pop(reply.number, None)
            if pending is not None:
                pending.answer.set_result(reply.answer)


def _await_answer(process: _Process, pending: _Pending) -> Any:
    address = pending.request.target.address
    try:
        answer = pending.answer.result(max(0.0, pending.until - time.monotonic()))
    except FutureTimeoutError as error:
        process.withdraw(pending.request.number)
        raise TransientError(f"cannot poll {address}: no answer in time") from error
    if isinstance(answer, Failure):
        raise answer.error()
    return answer


def _fail(pending: _Pending, why: str) -> None:
    target = pending.request.target.address
    pending.answer.set_result(Failure(1, f"cannot poll {target}: {why}"))


class Pollers:
    """`count` processes; each site has its own."""

    def __init__(self, count: int):
        self._numbers = itertools.count()
        self._processes = [_Process() for _ in range(count)]

    @property
    def pids(self) -> list[int]:
        """The processes that run now."""
        return [pid for each in self._processes if (pid := each.pid) is not None]

    def ask(
        self,
        what: EnginePoll | BrokerPoll,
        kind: str,
        target: Target,
        job_ids: tuple[str, ...] = (),
        *,
        urgent: bool = False,
    ) -> Callable[[], Any]:
        """Begin a poll of the engine or broker at `target`. What is returned waits for its answer,
        and raises SpeckError. `urgent`: before the polls that have not begun."""
        process = self._processes[zlib.crc32(target.address.encode()) % len(self._processes)]
        request = PollRequest(next(self._numbers), what, kind, target, job_ids, urgent)
        pending = _Pending(request, time.monotonic() + ANSWER_S)
        process.ask(pending)
        return partial(_await_answer, process, pending)

    def close(self) -> None:
        """End the processes."""
        for process in self._processes:
            process.close()
