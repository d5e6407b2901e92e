"""One MQTT broker for many sites: a forwarder that keeps their topics apart.

    python -m bench.mount --sites 1000 --base 127.40.0.0 --port 1883 --to 127.0.0.1:1884

What comes to the n-th address goes to the one broker with `site-<n>/` before every topic, and what
the broker sends loses it again; `$SYS` is the broker's own for all. (Mosquitto's own `mount_point`
does not take the prefix away again in 2.0.11, and speck needs a broker of its own for each site.)
Plain MQTT 3.1.1 and 5 without wills, topic aliases and shared subscriptions: what speck speaks.
"""

from __future__ import annotations

import argparse
import asyncio
import resource

from bench.simulated_flink import addresses

_CONNECT, _PUBLISH, _SUBSCRIBE, _UNSUBSCRIBE = 1, 3, 8, 10


class Mount:
    """Rewrites the packets of one client under `prefix`."""

    def __init__(self, prefix: str):
        self._prefix = prefix.encode()
        self._version = 5

    def inward(self, first: int, body: bytes) -> bytes:
        """The body of a packet from the client, as the broker is to get it."""
        kind = first >> 4
        if kind == _CONNECT:
            name = int.from_bytes(body[:2], "big")
            self._version = body[2 + name]
        elif kind == _PUBLISH:
            topic, rest = _text(body, 0)
            return _pack(self._mount_topic(topic)) + body[rest:]
        elif kind in (_SUBSCRIBE, _UNSUBSCRIBE):
            return self._subscription(body, options=kind == _SUBSCRIBE)
        return body

    def outward(self, first: int, body: bytes) -> bytes:
        """The body of a packet from the broker, as the client is to get it."""
        if first >> 4 != _PUBLISH:
            return body
        topic, rest = _text(body, 0)
        return _pack(topic.removeprefix(self._prefix)) + body[rest:]

    def _subscription(self, body: bytes, *, options: bool) -> bytes:
        at = 2
        if self._version == 5:
            length, at = _varint(body, at)
            at += length
        packet = bytearray(body[:at])
        while at < len(body):
            topic, at = _text(body, at)
            packet += _pack(self._mount_topic(topic))
            if options:
                packet += body[at : at + 1]
                at += 1
        return bytes(packet)

    def _mount_topic(self, topic: bytes) -> bytes:
        return topic if topic.startswith(b"$") else self._prefix + topic


def _text(body: bytes, at: int) -> tuple[bytes, int]:
    end = at + 2 + int.from_bytes(body[at : at + 2], "big")
    return body[at + 2 : end], end


def _pack(text: bytes) -> bytes:
    return len(text).to_bytes(2, "big") + text


def _varint(data: bytes | bytearray, at: int) -> tuple[int, int]:
    """The number at `at` and where it ends. Raises IndexError when it is cut."""
    value, shift = 0, 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if not byte & 0x80:
            return value, at
        shift += 7


def _varint_of(value: int) -> bytes:
    varint = bytearray()
    while True:
        value, byte = value >> 7, value & 0x7F
        varint.append(byte | (0x80 if value else 0))
        if not value:
            return bytes(varint)


class _Half(asyncio.Protocol):
    """One side of a connection: cuts what comes into packets, and hands them to the other."""

    def __init__(self, outward: bool, mount: Mount):
        self._rewrite = mount.outward if outward else mount.inward
        self._bytes = bytearray()
        self._waiting: list[bytes] = []
        self.transport: asyncio.Transport | None = None
        self.other: _Half | None = None
        self.over = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self._bytes += data
        ready = bytearray()
        while len(self._bytes) > 1:
            try:
                length, start = _varint(self._bytes, 1)
            except IndexError:
                break
            if len(self._bytes) < start + length:
                break
            body = self._rewrite(self._bytes[0], bytes(self._bytes[start : start + length]))
            ready += self._bytes[:1] + _varint_of(len(body)) + body
            del self._bytes[: start + length]
        if ready:
            self._hand_on(bytes(ready))

    def _hand_on(self, data: bytes) -> None:
        if self.other is None or self.other.transport is None:
            self._waiting.append(data)
        else:
            self.other.transport.write(data)

    def joined(self, other: _Half) -> None:
        """The other side is connected: forward the data that waited for it."""
        self.other = other
        for data in self._waiting:
            self._hand_on(data)
        self._waiting.clear()

    def connection_lost(self, exc: Exception | None) -> None:
        self.over = True
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


class _Client(_Half):
    """The side of the client; it dials the broker."""

    def __init__(self, mount: Mount, to: tuple[str, int]):
        super().__init__(False, mount)
        self._mount = mount
        self._to = to
        self._dialling: asyncio.Task[None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        self._dialling = asyncio.get_running_loop().create_task(self._dial())

    async def _dial(self) -> None:
        try:
            _, broker = await asyncio.get_running_loop().create_connection(
                lambda: _Half(True, self._mount), *self._to
            )
        except OSError:
            assert self.transport is not None
            self.transport.abort()
            return
        broker.joined(self)
        self.joined(broker)
        if self.over and broker.transport is not None:
            broker.transport.close()


async def listen(hosts: list[str], port: int, to: tuple[str, int]) -> list[asyncio.Server]:
    """A forwarder at each host; the n-th one's topics lie under `site-<n>/`."""
    loop = asyncio.get_running_loop()

    def factory(number: int) -> _Client:
        return _Client(Mount(f"site-{number:04d}/"), to)

    return [
        await loop.create_server(lambda n=n: factory(n), host, port, backlog=128)
        for n, host in enumerate(hosts, 1)
    ]


async def _serve(options: argparse.Namespace) -> None:
    host, _, port = options.to.rpartition(":")
    hosts = addresses(options.base, options.sites)
    servers = await listen(hosts, options.port, (host, int(port)))
    print(f"{len(servers)} sites answer", flush=True)
    await asyncio.gather(*(server.serve_forever() for server in servers))


def main() -> None:
    parser = argparse.ArgumentParser(description="one MQTT broker for many sites")
    parser.add_argument("--sites", type=int, required=True)
    parser.add_argument("--base", default="127.40.0.0", help="the address before the first site's")
    parser.add_argument("--port", type=int, default=1883)
    parser.add_argument("--to", required=True, help="host:port of the broker")
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    asyncio.run(_serve(parser.parse_args()))


if __name__ == "__main__":
    main()
