"""A TCP proxy that stands between two parties and disturbs what passes, on command.

A site that is registered under the proxy's address can be cut off, slowed down, or lose single
HTTP requests and answers. With `only` the faults meet the connections of one process alone: a
partition between the service and a site, while the site's own jobs reach its broker.
"""

from __future__ import annotations

import asyncio
import re
import socket
import struct
import threading
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal

import psutil

from speck.fog.ports import pick_port

Mode = Literal["pass", "blackhole", "refuse"]
Fate = Literal["lose the answer", "drop the request"]

_CHUNK = 16 * 1024
_REQUEST = re.compile(rb"(?:^|\r\n)([A-Z]+) (/\S*) HTTP/1\.1\r\n")


@dataclass(slots=True)
class Trap:
    """What happens to the n-th request that matches `<method> <path>`; `sprung` once it has.

    `lose the answer`: the request is delivered, its answer is dropped when it has come, and the
    connection is reset. `drop the request`: the connection is reset before it arrives.
    """

    fate: Fate
    pattern: re.Pattern[str]
    nth: int
    sprung: threading.Event


class Proxy:
    """Listens on `host` (a free port) and passes everything to `target` until it is closed.

    The faults are set from any thread, hold until they are set again, and meet connections that
    exist already: `mode` `blackhole` lets nothing through and keeps connections open, `refuse`
    resets them and takes no new ones. `bits_per_s` bounds both directions together, `delay_s` holds
    every piece back. `only` names a process by its id: others pass undisturbed.
    """

    def __init__(self, host: str, target: tuple[str, int], *, only: int | None = None) -> None:
        self.host, self.port = host, pick_port(host)
        self.bytes_passed = 0
        self._target = target
        self._only = only
        self._mode: Mode = "pass"
        self._bytes_per_s: float | None = None
        self._delay_s = 0.0
        self._free_at = 0.0
        self._traps: list[Trap] = []
        self._open: set[_Connection] = set()
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None
        self._changed = asyncio.Event()
        self._flapping: asyncio.Task[None] | None = None
        self._thread = threading.Thread(target=self._serve, name="proxy", daemon=True)
        self._thread.start()
        self._do(self._listen())

    @property
    def http(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def tcp(self) -> str:
        return f"tcp://{self.host}:{self.port}"

    def disturb_only(self, pid: int | None) -> None:
        """From now on only new connections of this process meet faults; None: all."""
        self._only = pid

    def set(
        self, mode: Mode = "pass", *, bits_per_s: float | None = None, delay_s: float = 0.0
    ) -> None:
        """Replace all faults by the given ones."""
        self._do(self._set(mode, bits_per_s, delay_s))

    def flap(self, up_s: float, down_s: float) -> None:
        """Passes for `up_s`, refuses for `down_s`, and so on until it is set again."""

        async def begin() -> None:
            self._flapping = asyncio.create_task(self._flap(up_s, down_s))

        self.set()
        self._do(begin())

    def trap(self, fate: Fate, pattern: str, nth: int = 1) -> Trap:
        """Set a trap for the n-th request from now on whose `<method> <path>` matches."""
        trap = Trap(fate, re.compile(pattern), nth, threading.Event())
        self._do(_now(lambda: self._traps.append(trap)))
        return trap

    def close(self) -> None:
        """Resets all connections and listens no more."""
        if not self._loop.is_running():
            return
        self._do(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- in the loop's thread -------------------------------------------------------------

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _do(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, self.host, self.port, limit=_CHUNK)

    async def _end(self) -> None:
        await self._set("pass", None, 0.0)
        if self._server is not None:
            self._server.close()
        for connection in list(self._open):
            connection.reset()
        tasks = [connection.task for connection in self._open]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _set(self, mode: Mode, bits_per_s: float | None, delay_s: float) -> None:
        if self._flapping is not None:
            self._flapping.cancel()
            self._flapping = None
        self._bytes_per_s = bits_per_s / 8 if bits_per_s else None
        self._delay_s = delay_s
        self._switch(mode)

    def _switch(self, mode: Mode) -> None:
        self._mode = mode
        if mode == "refuse":
            for connection in list(self._open):
                if connection.disturbed:
                    connection.reset()
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def _flap(self, up_s: float, down_s: float) -> None:
        while True:
            await asyncio.sleep(up_s)
            self._switch("refuse")
            await asyncio.sleep(down_s)
            self._switch("pass")

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        connection = _Connection(self, reader, writer, task)
        self._open.add(connection)
        try:
            await connection.run(self._target)
        except OSError:
            connection.reset()
        except asyncio.CancelledError:
            return  # the proxy ends; asyncio's streams would call it an error
        finally:
            self._open.discard(connection)

    def is_disturbed(self, peer: tuple[str, int], here: tuple[str, int]) -> bool:
        """Whether faults meet a connection that comes from `peer`; `here` is the proxy's end."""
        return self._only is None or _owns(self._only, peer, here)

    async def admit(self, size: int) -> None:
        """Wait until a piece of `size` bytes may pass."""
        if self._delay_s:
            await asyncio.sleep(self._delay_s)
        if self._bytes_per_s:
            now = time.monotonic()
            self._free_at = max(now, self._free_at) + size / self._bytes_per_s
            await asyncio.sleep(self._free_at - now)
        while self._mode == "blackhole":
            await self._changed.wait()
        self.bytes_passed += size

    def refuses(self) -> bool:
        return self._mode == "refuse"

    def sprung_by(self, piece: bytes) -> Trap | None:
        """The trap that a request in `piece` runs into; it is gone then."""
        if not self._traps:
            return None
        for method, path in _REQUEST.findall(piece):
            line = f"{method.decode()} {path.decode(errors='replace')}"
            for trap in self._traps:
                if trap.pattern.search(line):
                    trap.nth -= 1
                    if trap.nth == 0:
                        self._traps.remove(trap)
                        return trap
        return None


class _Connection:
    """One connection through the proxy."""

    def __init__(
        self,
        proxy: Proxy,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        task: asyncio.Task[Any],
    ) -> None:
        self.task = task
        self._proxy, self._reader, self._writer = proxy, reader, writer
        self._far: asyncio.StreamWriter | None = None
        self._losing: Trap | None = None
        peer, here = (writer.get_extra_info(end) for end in ("peername", "sockname"))
        self.disturbed = proxy.is_disturbed((peer[0], peer[1]), (here[0], here[1]))

    async def run(self, target: tuple[str, int]) -> None:
        if self.disturbed and self._proxy.refuses():
            self.reset()
            return
        if self.disturbed:
            await self._proxy.admit(0)
        far_reader, self._far = await asyncio.open_connection(*target, limit=_CHUNK)
        there = asyncio.create_task(self._pass(self._reader, self._far, self._spring))
        back = asyncio.create_task(self._pass(far_reader, self._writer, self._swallow))
        try:
            done, _ = await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            if back not in done:  # one side may be closed while the other has more to say
                await asyncio.wait({back}, timeout=5)
        finally:
            there.cancel()
            back.cancel()
            await asyncio.gather(there, back, return_exceptions=True)
            self._writer.close()
            self._far.close()

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        inspect: Callable[[bytes], bool],
    ) -> None:
        with suppress(OSError):
            while piece := await reader.read(_CHUNK):
                if self.disturbed:
                    await self._proxy.admit(len(piece))
                if inspect(piece):
                    return
                writer.write(piece)
                await writer.drain()
            if writer.can_write_eof():
                writer.write_eof()

    def _spring(self, piece: bytes) -> bool:
        """Whether the request in `piece` must not arrive."""
        trap = self._proxy.sprung_by(piece) if self.disturbed else None
        if trap is None:
            return False
        if trap.fate == "drop the request":
            self.reset()
            trap.sprung.set()
            return True
        self._losing = trap
        return False

    def _swallow(self, _: bytes) -> bool:
        """Whether this answer is lost."""
        if self._losing is None:
            return False
        self.reset()
        self._losing.sprung.set()
        return True

    def reset(self) -> None:
        """Ends both sides at once, with a reset."""
        for writer in (self._writer, self._far):
            if writer is None:
                continue
            sock = writer.get_extra_info("socket")
            with suppress(OSError):
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            writer.transport.abort()


async def _now(action: Callable[[], None]) -> None:
    action()


def _owns(pid: int, peer: tuple[str, int], here: tuple[str, int]) -> bool:
    """Whether process `pid` or a child of it has the socket from `peer` to `here`.

    Both ends are compared: the kernel gives one port to connections with several destinations.
    """
    with suppress(psutil.NoSuchProcess):
        process = psutil.Process(pid)
        for member in (process, *process.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                for connection in member.net_connections("tcp4"):
                    if (connection.laddr, connection.raddr) == (peer, here):
                        return True
    return False
