"""A broker that speaks MQTT 3.1.1 only."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from speck.fog.mosquitto import Mosquitto

REFUSAL = b"\x20\x02\x00\x01"
"""CONNACK: unacceptable protocol version."""


@contextmanager
def only_3_1_1(server: Mosquitto, *, refusal: bytes = REFUSAL) -> Iterator[str]:
    """In front of a broker: refuses MQTT 5 as a broker of 2015 does, passes on the rest. Without a
    `refusal` it only hangs up."""
    ended = threading.Event()
    threads: list[threading.Thread] = []
    ends: list[socket.socket] = []

    def start(target: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=target, args=args)
        thread.start()
        threads.append(thread)

    def serve(listener: socket.socket) -> None:
        while not ended.is_set():
            try:
                client, _ = listener.accept()
            except TimeoutError:
                continue
            first = client.recv(4096)
            if first[8] == 5:  # the protocol level in CONNECT
                client.sendall(refusal)
                client.close()
                continue
            broker = socket.create_connection((server.host, server.port))
            ends.extend((client, broker))
            broker.sendall(first)
            start(copy, client, broker)
            start(copy, broker, client)

    def copy(source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                sink.sendall(data)
        except OSError:
            pass
        finally:
            hang_up(source, sink)

    def hang_up(*ends: socket.socket) -> None:
        for end in ends:
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)
        start(serve, listener)
        try:
            yield f"tcp://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            ended.set()
            hang_up(*ends)
            for thread in threads:
                thread.join(10)
