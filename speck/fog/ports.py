"""Loopback addresses and ports: every site of every fog has its own address."""

from __future__ import annotations

import errno
import hashlib
import random
import socket
from pathlib import Path

_LOWEST = 10_000
"""Ports below it are well-known ports of services."""
_TRIES = 100
_CLIENTS_FROM = Path("/proc/sys/net/ipv4/ip_local_port_range")


def site_host(folder: Path, number: int) -> str:
    """The loopback address of site `number` (0..253) of the fog in `folder`.

    All of 127.0.0.0/8 belongs to this machine, so each fog uses a network of its own, derived from
    its folder: two fogs can run at the same time, and a fog keeps its addresses when it restarts.
    """
    digest = hashlib.sha256(str(folder.resolve()).encode()).digest()
    # 127.0 and 127.255 are left to others: 127.0.1.1 is the host's own name on Debian
    return f"127.{1 + digest[0] % 254}.{digest[1]}.{1 + number}"


def pick_port(host: str, preferred: int = 0) -> int:
    """`preferred` if it is free on `host`, else a free port.

    The port is outside the kernel's range for clients: a port in that range could be assigned to a
    connection before the server starts. On an address of another network namespace, all ports
    count as free.
    """
    for port in (*([preferred] if preferred else []), *_apart_from_clients(), 0):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as server:
            # like the servers: a port in TIME_WAIT is free
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
        return []  # not Linux: any free port
    ports = range(_LOWEST, end)
    return random.SystemRandom().sample(ports, min(_TRIES, len(ports)))


def accepts(host: str, port: int) -> bool:
    """Whether something listens on `host:port`."""
    try:
        with socket.create_connection((host, port), timeout=1.0):
            return True
    except OSError:
        return False
