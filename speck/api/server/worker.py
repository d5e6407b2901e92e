"""gunicorn's worker: one loop for all connections, threads for requests only.

A connection takes a thread when its request has arrived, and gives it back when its answer is
made: a client that sends or reads slowly costs memory, but no thread; a file is sent by the loop.
Threads wait for clients in two cases only, each with a minimum rate and a few at once: for a body
too large to collect, and for the reader of an event stream. Health and heartbeats have threads of
their own.

The number of connections is limited, in total and for each address. At the limit the connection
that has kept the loop waiting longest makes room, so that idle and slow ones lock nobody out; one
whose request is being answered is never cut.
"""

from __future__ import annotations

import errno
import gc
import ipaddress
import json
import os
import re
import resource
import secrets
import selectors
import ssl
import sys
import time
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any

from gunicorn.http import wsgi  # type: ignore[import-untyped]
from gunicorn.workers.base import Worker  # type: ignore[import-untyped]
from gunicorn.workers.gthread import PollableMethodQueue  # type: ignore[import-untyped]

from speck.api.context import count_site_calls
from speck.api.masking import mask_text
from speck.api.problems import MEDIA_TYPE, REQUEST_ID, problem_body
from speck.api.server.connection import Connection, Stage
from speck.api.server.unavailable_app import UnavailableApp
from speck.tls.contexts import TlsFiles

MAX_FILES = 65536
MAX_CONNECTIONS = 4096
"""At most, and no more than half of the files that the process may open."""

ADDRESS_SHARE = 2
"""One address may have this part of all connections: half of them."""

VITAL_THREADS = 4
"""For GET /livez, GET /readyz and heartbeats."""

MAX_COLLECTING = 64 * 1024 * 1024
"""Bytes of bodies that the loop collects at once; what is more goes to threads, where a body is
read only once its sender is known."""

MAX_UNSENT = 64 * 1024 * 1024
"""Bytes of answers that wait for their readers. Past it the slowest are dropped."""

GC_THRESHOLDS = 50_000, 20, 20
"""The garbage collector runs after so many new objects. By default it does after 700: with ten
thousand jobs it would take a quarter of the time of a plan, whose objects are in no cycle."""

SWITCH_S = 0.001
"""How long a busy thread may keep the interpreter. A health check needs its turn about ten times:
beside four requests of pure computing its p99 was 0.1 s, and 0.3 to 0.7 s with Python's 5 ms."""

TICK_S = 0.5
STOP_LINGER_S = 1.0
"""How long idle connections stay open at the end, for requests that are on their way."""

_ACCEPTS = 16  # then those that were accepted get their turn, before others push them out
_NO_FILES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_UNREADABLE = {
    "LimitRequestLine": 414,
    "LimitRequestHeaders": 431,
    "UnsupportedTransferCoding": 501,
    "ExpectationFailed": 417,
    "TimeoutError": 408,
}


def raise_file_limit() -> int:
    """Raise the soft limit of open files to the hard one (at most `MAX_FILES`); the new limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return soft if soft != resource.RLIM_INFINITY else MAX_FILES
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def group_address(host: str) -> str:
    """What counts as one address: an IPv4 address, or the /64 network of an IPv6 address, which
    is what a single customer is given."""
    if ":" not in host:
        return host
    address = ipaddress.IPv6Address(host.partition("%")[0])
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    return str(ipaddress.IPv6Network((address, 64), strict=False))


def is_vital(request: Any) -> bool:
    """Whether others conclude from the absence of this answer that something has died."""
    if request.method == "POST":
        return bool(re.fullmatch(r"/sites/[^/]+/heartbeat", request.path))
    return request.path in ("/livez", "/readyz")


def freeze_survivors(phase: str, info: Mapping[str, int]) -> None:
    """A callback of the garbage collector: what has survived a full collection is not looked at
    again. With ten thousand jobs each of these would stop all requests for half a second. Reference
    counts still free nearly everything, as records are in no cycle."""
    if phase == "stop" and info["generation"] == 2:
        gc.freeze()


class ConnectionWorker(Worker):  # type: ignore[misc]
    """Serves the application, which is told when the worker stops."""

    def __init__(self, *arguments: Any, **more: Any):
        super().__init__(*arguments, **more)
        self.alive: bool
        self._wakeups = PollableMethodQueue()
        self._connections: set[Connection] = set()
        self._by_address: dict[str, set[Connection]] = {}
        self._accepting = False
        self._resume_at = self._next_tick = 0.0
        self._tls: TlsFiles | None = None
        self._context: ssl.SSLContext | None = None

    # -- the life of the worker -----------------------------------------------------------

    def init_process(self) -> None:
        """Called in the worker's process; returns when it ends."""
        self._most = max(1, min(MAX_CONNECTIONS, raise_file_limit() // 2))
        self._most_per_address = max(1, self._most // ADDRESS_SHARE)
        sys.setswitchinterval(SWITCH_S)
        gc.set_threshold(*GC_THRESHOLDS)
        gc.callbacks.append(freeze_survivors)
        # those that wait for bodies, and those that look at sites or wait for their turn, come on
        # top: the application shares out its own threads
        slow_bodies = max(1, self.cfg.threads // 4)
        site_calls = 2 * count_site_calls(self.cfg.threads)
        self._slots = BoundedSemaphore(slow_bodies)
        self._pool = ThreadPoolExecutor(self.cfg.threads + slow_bodies + site_calls, "request")
        self._vital_pool = ThreadPoolExecutor(VITAL_THREADS, "vital")
        self._poller = selectors.DefaultSelector()
        self._wakeups.init()
        if self.cfg.is_ssl:
            ca = self.cfg.ca_certs
            cert, key = Path(self.cfg.certfile), Path(self.cfg.keyfile)
            self._tls = TlsFiles.of_server(cert, key, Path(ca) if ca else None)
            self._context = self._tls.context()
        super().init_process()

    def run(self) -> None:
        """Serve until a signal, then let requests under way finish."""
        wakeup = self._wakeups.fileno()
        self._poller.register(wakeup, selectors.EVENT_READ, self._wakeups.run_callbacks)
        self._accept_from(self.sockets)
        while self.alive and os.getppid() == self.ppid:
            self._step()
        self._accept_from(())
        self._drain()
        for connection in list(self._connections):
            self._close(connection)
        for pool in (self._pool, self._vital_pool):
            pool.shutdown(wait=False)
        # The pipe stays open: a thread that ends later writes to it, and its number could be that
        # of a file of the store by then.

    def _drain(self) -> None:
        now = time.monotonic()
        for connection in self._connections:
            if connection.stage is Stage.HEAD:
                connection.deadline = min(connection.deadline, now + STOP_LINGER_S)
        until = now + self.cfg.graceful_timeout
        while self._connections and time.monotonic() < until:
            self._step(0.1)

    def handle_exit(self, sig: int, frame: Any) -> None:
        """SIGTERM."""
        app = getattr(self, "wsgi", None)  # absent while the store is being opened
        if isinstance(app, UnavailableApp):
            app.stop()
        if self.alive:
            self.alive = False
            self._wakeups.defer(lambda: None)

    def handle_quit(self, sig: int, frame: Any) -> None:
        """SIGINT, SIGQUIT: also Ctrl-C, which reaches master and worker."""
        self.handle_exit(sig, frame)

    # -- the loop -------------------------------------------------------------------------

    def _step(self, timeout: float = TICK_S) -> None:
        self.notify()
        for key, _ in self._poller.select(timeout):
            key.data(key.fileobj)
        now = time.monotonic()
        if now >= self._next_tick:
            self._next_tick = now + timeout
            self._tick(now)

    def _tick(self, now: float) -> None:
        for connection in [each for each in self._connections if each.deadline <= now]:
            self._expire(connection)
        if self._tls is not None:
            self._context = self._tls.context()
        if self._resume_at and now >= self._resume_at and self.alive:
            self._resume_at = 0.0
            self._accept_from(self.sockets)

    def _accept_from(self, sockets: Iterable[Any]) -> None:
        """Accept connections from these listeners; none: stop accepting."""
        if self._accepting:
            for listener in self.sockets:
                self._poller.unregister(listener)
        self._accepting = False
        for listener in sockets:
            listener.setblocking(False)
            accept = partial(self._accept, listener.getsockname())
            self._poller.register(listener, selectors.EVENT_READ, accept)
            self._accepting = True

    def _accept(self, server: Any, listener: Any) -> None:
        for _ in range(_ACCEPTS):
            try:
                sock, client = listener.accept()
            except OSError as error:
                if error.errno in _NO_FILES:
                    self._free_files(error)
                return  # nobody is there any more, or that client has left
            try:
                self._admit(sock, client, server)
            except (OSError, ValueError) as error:
                self.log.debug("cannot take a connection: %s", error)
                sock.close()

    def _free_files(self, error: OSError) -> None:
        """Close what only waits; if that is nothing, accept again a little later: the listener
        stays readable, and the loop would spin."""
        closures = [self._make_room(self._connections) for _ in range(_ACCEPTS)]
        if not any(closures):
            self.log.warning("cannot accept connections for a moment: %s", error.strerror)
            self._accept_from(())
            self._resume_at = time.monotonic() + TICK_S

    def _admit(self, sock: Any, client: Any, server: Any) -> None:
        address = group_address(client[0])
        for connections, most in (
            (self._by_address.get(address, ()), self._most_per_address),
            (self._connections, self._most),
        ):
            if len(connections) >= most and not self._make_room(connections):
                sock.close()
                return
        connection = Connection(sock, client, server, self.cfg, self._slots, self._context)
        self._connections.add(connection)
        self._by_address.setdefault(address, set()).add(connection)
        self._drive(connection)

    def _make_room(self, connections: Collection[Connection]) -> bool:
        """Close the one that has waited longest for its client, if there is one."""
        candidates = (each for each in connections if each.stage is not Stage.ANSWERING)
        oldest = min(candidates, key=lambda each: each.since, default=None)
        if oldest is not None:
            self._close(oldest)
        return oldest is not None

    def _drive(self, connection: Connection) -> None:
        """Let a connection go on, whatever it was waiting for."""
        if connection.stage is Stage.CLOSED:  # by an earlier event of the same step
            return
        if connection.stage is Stage.ANSWERING:  # it sends more, or has left: that can wait
            self._watch(connection, 0)
            return
        try:
            connection.advance(self._may_collect)
        except OSError:
            connection.stage = Stage.CLOSED
        except Exception as error:
            self._refuse(connection, error)
        self._follow(connection)

    def _refuse(self, connection: Connection, error: Exception) -> None:
        """Answer what is no request, and close."""
        try:
            self.handle_error(None, connection, connection.client, error)
            connection.finish(False)
            connection.advance()
        except OSError:
            connection.stage = Stage.CLOSED

    def _follow(self, connection: Connection) -> None:
        """Do what the connection's stage asks for."""
        if connection.stage is Stage.ANSWERING:
            vital = is_vital(connection.request) and not connection.lacks_body
            (self._vital_pool if vital else self._pool).submit(self._handle, connection)
        elif connection.stage is Stage.CLOSED:
            self._close(connection)
        else:
            self._watch(connection, connection.interest)

    def _expire(self, connection: Connection) -> None:
        if connection.stage is Stage.BODY:
            connection.give_up_body()
            self._follow(connection)
        elif connection.stage is Stage.HEAD and not connection.idle:
            self._refuse(connection, TimeoutError("its headers did not arrive in time"))
            self._follow(connection)
        elif not connection.is_read():
            self._close(connection)

    def _finish(self, connection: Connection, keep: bool) -> None:
        """The thread is done with it."""
        connection.finish(keep)
        self._drive(connection)
        if connection.stage is Stage.SENDING:
            unsent = {each for each in self._connections if each.stage is Stage.SENDING}
            while sum(each.unsent for each in unsent) > MAX_UNSENT:
                slowest = min(unsent, key=lambda each: each.since)
                self._close(slowest)
                unsent.remove(slowest)

    def _may_collect(self, size: int) -> bool:
        return size + sum(each.size_to_collect for each in self._connections) <= MAX_COLLECTING

    def _watch(self, connection: Connection, interest: int) -> None:
        if interest == connection.watch:
            return
        if not interest:
            self._poller.unregister(connection)
        elif connection.watch:
            self._poller.modify(connection, interest, self._drive)
        else:
            self._poller.register(connection, interest, self._drive)
        connection.watch = interest

    def _close(self, connection: Connection) -> None:
        self._watch(connection, 0)
        connection.close()
        self._connections.discard(connection)
        address = group_address(connection.client[0])
        neighbours = self._by_address.get(address, set())
        neighbours.discard(connection)
        if not neighbours:
            self._by_address.pop(address, None)

    # -- in a thread ----------------------------------------------------------------------

    def _handle(self, connection: Connection) -> None:
        keep = False
        try:
            keep = self._answer(connection)
        except Exception as error:
            if not connection.broken:
                self.log.error("cannot answer %s", connection.client, exc_info=error)
        finally:
            self._wakeups.defer(self._finish, connection, keep)

    def _answer(self, connection: Connection) -> bool:
        """Answer the request; whether another may follow."""
        request = connection.request
        response, environ = wsgi.create(
            request, connection, connection.client, connection.server, self.cfg
        )
        environ["wsgi.multithread"] = True
        try:
            items = self.wsgi(environ, response.start_response)
            if not self.alive:
                response.force_close()
            if isinstance(items, wsgi.FileWrapper):
                response.send_headers()
                connection.send_file(items)
                return not response.should_close()
            try:
                for item in items:
                    response.write(item)
                response.close()
            finally:
                if hasattr(items, "close"):
                    items.close()
        except Exception as error:
            if connection.broken or response.headers_sent:
                raise
            self.log.error("cannot answer %s", mask_text(request.path), exc_info=error)
            self.handle_error(request, connection, connection.client, error)
            return False
        return not response.should_close()

    def handle_error(self, req: Any, client: Any, addr: Any, exc: Exception) -> None:
        """Answer a malformed request (`req` is None then), or an error outside the routes.

        Raises OSError when the client is gone.
        """
        identity = secrets.token_hex(8)
        status, detail = _UNREADABLE.get(type(exc).__name__, 400), f"cannot read the request: {exc}"
        if req is not None:
            status, detail = 500, "cannot answer: internal error in speck"
        level = self.log.debug if status == 408 else self.log.warning
        # not what the client sent: that may hold a secret
        level("request %s from %s: %s", identity, (addr or ["?"])[0], type(exc).__name__)
        body = problem_body(status, detail, identity)
        text = json.dumps(body).encode() + b"\n"
        head = (
            f"HTTP/1.1 {status} {body['title']}\r\nConnection: close\r\n"
            f"Content-Type: {MEDIA_TYPE}\r\nContent-Length: {len(text)}\r\n"
            f"{REQUEST_ID}: {identity}\r\n\r\n"
        )
        client.sendall(head.encode() + text)
