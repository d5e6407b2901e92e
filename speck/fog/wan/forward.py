"""Forwards connections of a fog's agents to a service that listens on this machine's loopback only.

At each site it listens on the service's port, on the site's own loopback, since the service refuses
other host names. From there it connects, like a program of the site, to this machine's address in
the fog's network, so that the traffic crosses the WAN if this machine is behind it. At that address
it accepts connections from that network only, and forwards each to the service.

A socket stays in the namespace where it was created, so one program can hold sockets in all of
them. It ends by itself when the fog's router is removed, since no namespace of the fog contains it.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import socket
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

_CLONE_NEWNET = 0x40000000
_CHUNK = 65536
_POLL_S = 1.0
_LOOPBACK = "127.0.0.1"

Connect = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]


@contextmanager
def enter_namespace(namespace: Path) -> Iterator[None]:
    """Enter a network namespace: sockets that this thread creates in the block belong to it.

    Raises OSError when it does not exist, or when this process lacks the permission.
    """
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
    try:
        there = os.open(namespace, os.O_RDONLY)
        try:
            _enter(there)
            try:
                yield
            finally:
                _enter(home)
        finally:
            os.close(there)
    finally:
        os.close(home)


def _enter(namespace: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.setns(namespace, _CLONE_NEWNET) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _listen(server: socket.socket, network: str, connect: Connect) -> None:
    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            peer = writer.get_extra_info("peername")
            if peer is None or not str(peer[0]).startswith(f"{network}."):
                return
            far_reader, far_writer = await connect()
            try:
                await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
            finally:
                far_writer.close()
        except OSError:
            return  # the service is down: the agent sees a closed connection, and tries again
        finally:
            writer.close()

    await asyncio.start_server(join, sock=server)


async def serve(
    root: str, host: str, port: int, network: str, alive: Path, sites: list[Path]
) -> None:
    """Forward to `host:port` through `root:port` while the file `alive` exists. `network` holds the
    first three bytes of the fog's addresses, `sites` the files of the sites' namespaces."""
    # sites first: when the root accepts connections, all sites do
    for site in sites:
        with enter_namespace(site):
            server = socket.create_server((_LOOPBACK, port))
        await _listen(server, "127.0.0", lambda site=site: _across(site, root, port))  # type: ignore[misc]
    server = socket.create_server((root, port))
    await _listen(server, network, lambda: asyncio.open_connection(host, port))
    while alive.exists():
        await asyncio.sleep(_POLL_S)


async def _across(
    site: Path, root: str, port: int
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    with enter_namespace(site):
        near = socket.socket()
    try:
        near.setblocking(False)
        await asyncio.get_running_loop().sock_connect(near, (root, port))
        return await asyncio.open_connection(sock=near)
    except BaseException:
        near.close()
        raise


def main(root: str, host: str, port: str, network: str, alive: str, *sites: str) -> None:
    asyncio.run(serve(root, host, int(port), network, Path(alive), list(map(Path, sites))))


if __name__ == "__main__":
    main(*sys.argv[1:])
