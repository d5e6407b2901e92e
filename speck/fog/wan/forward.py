"""Lets a fog's agents reach a service that listens on this machine's loopback only.

It listens at the address that this machine has in the fog's network, takes connections from that
network alone, and joins each to the service. A program of its own; it ends by itself when the
fog's router is gone, since it is the one process of a fog that is in none of its namespaces.
"""

from __future__ import annotations

import asyncio
import sys
from contextlib import suppress
from pathlib import Path

_CHUNK = 65536
_LOOK_S = 1.0


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(_CHUNK):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def serve(listen: str, port: int, host: str, to: int, network: str, alive: Path) -> None:
    """Forward until `alive` is gone."""

    async def join(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peer = writer.get_extra_info("peername")
        try:
            if peer is None or not str(peer[0]).startswith(f"{network}."):
                return
            inner, outer = await asyncio.open_connection(host, to)
            try:
                await asyncio.gather(_pump(reader, outer), _pump(inner, writer))
            finally:
                outer.close()
        except OSError:
            return  # the service is down: the agent sees a connection that ends, and asks again
        finally:
            writer.close()

    async with await asyncio.start_server(join, listen, port):
        while alive.exists():
            await asyncio.sleep(_LOOK_S)


def main(listen: str, port: str, host: str, to: str, network: str, alive: str) -> None:
    asyncio.run(serve(listen, int(port), host, int(to), network, Path(alive)))


if __name__ == "__main__":
    main(*sys.argv[1:])
