"""Bytes that cross between sites of a fog, as the kernel counts them: by TCP connection.

Independent of all counters of ours. Everything on one machine is loopback; what crosses is told by
the process at one end (a site's engine) and the address at the other (another site's broker).
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from dataclasses import dataclass

from speck.errors import PermanentError
from speck.fog.sites import Fog

_PID = re.compile(r"pid=(\d+)")
_ACKED = re.compile(r"\bbytes_acked:(\d+)")
_MAPPED = re.compile(r"\[::ffff:([0-9.]+)\]:")  # of sockets that could do IPv6, as Java's
_RECEIVED = re.compile(r"\bbytes_received:(\d+)")


@dataclass(frozen=True, slots=True)
class Connection:
    """One established TCP connection, seen from the process that opened it: bytes that the other
    end has acknowledged, and bytes received from it, payload of TCP only."""

    local: str
    peer: str
    pid: int
    acked: int
    received: int


def parse_connections(output: str) -> list[Connection]:
    """The connections in the output of `ss -tinpOH state established` whose process is known."""
    rows = []
    for line in output.splitlines():
        words = _MAPPED.sub(r"\1:", line).split()
        pid = _PID.search(line)
        if pid is None or len(words) < 4:
            continue
        acked, received = (pattern.search(line) for pattern in (_ACKED, _RECEIVED))
        rows.append(
            Connection(
                words[2],
                words[3],
                int(pid[1]),
                int(acked[1]) if acked else 0,
                int(received[1]) if received else 0,
            )
        )
    return rows


def established() -> list[Connection]:
    """All that are established now. Raises PermanentError without iproute2."""
    return parse_connections(_list_connections())


class Crossings:
    """Byte counts of the running engines; a closed connection keeps its last count.

    Poll at least every second: the bytes between the last poll of a connection and its end are
    not counted.
    """

    def __init__(self, fog: Fog) -> None:
        self._engines = {
            process.pid: site.name
            for site in fog.status()
            for process in site.processes
            if process.what not in ("broker", "agent")
        }
        self._brokers = {f"{s.host}:{s.broker_port}": s.name for s in fog.sites()}
        self._last: dict[tuple[str, str, int], tuple[str, str, int]] = {}

    def poll(self) -> Counter[tuple[str, str]]:
        """Bytes so far, both ways, by (site of the engine, site of the broker)."""
        for each in established():
            engine, broker = self._engines.get(each.pid), self._brokers.get(each.peer)
            if engine is not None and broker is not None and engine != broker:
                key = (each.local, each.peer, each.pid)
                self._last[key] = (engine, broker, each.acked + each.received)
        crossings: Counter[tuple[str, str]] = Counter()
        for engine, broker, count in self._last.values():
            crossings[engine, broker] += count
        return crossings


def _list_connections() -> str:
    command = ["ss", "-tinpOH", "state", "established"]
    try:
        process = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError) as error:
        raise PermanentError(
            f"cannot count what crosses between sites: {error}; install iproute2 (ss)"
        ) from error
    return process.stdout
