"""Loopback addresses and ports: every site of every fog has an address of its own."""

from __future__ import annotations

import errno
import hashlib
import random
import socket
from pathlib import Path

_LOWEST = 10_000
"""Below it are the ports that services are known by."""
_TRIES = 100
_CLIENTS_FROM = Path("/proc/sys/net/ipv4/ip_local_port_range")


def site_host(folder: Path, number: int) -> str:
    """The loopback address of site `number` (0..253) of the fog in `folder`.

    All of 127.0.0.0/8 is this machine's, so each fog takes a network of its own, chosen by its
    folder: two fogs can run at the same time, and a fog keeps its addresses when it comes back.
    """
    digest = hashlib.sha256(str(folder.resolve()).encode()).digest()
    # 127.0 and 127.255 are left to others: 127.0.1.1 is the host's own name on Debian
    return f"127.{1 + digest[0] % 254}.{digest[1]}.{1 + number}"


def pick_port(host: str, preferred: int = 0) -> int:
    """`preferred` if it is free on `host`, else a free port.

    It is none of those that the kernel gives to clients: between this pick and the start of the
    server one of them could be lent to somebody's connection. On an address that is another
    network namespace's all ports are taken for free.
    """
    for port in (*([preferred] if preferred else []), *_apart_from_clients(), 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
            # as the servers do it: a port in TIME_WAIT is free
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                server.bind((host, port))
            except OSError as error:
                if error.errno == errno.EADDRNOTAVAIL and preferred:
                    return preferred
                continue
            return int(server.getsockname()[1])
    raise OSError(f"cannot find a free port on {host}")


def _apart_from_clients() -> list[int]:
    try:
        end = int(_CLIENTS_FROM.read_text().split()[0])
    except (OSError, ValueError):
        return []  # not Linux: any that is free
    ports = range(_LOWEST, end)
    return random.SystemRandom().sample(ports, min(_TRIES, len(ports)))


def accepts(host: str, port: int) -> bool:
    """Whether something listens on `host:port`."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False
