"""Adds latency: packets that come out of a TUN device are written back to it after a delay.

The router sends each packet between sites with latency to the device once; what this program writes
back is then delivered. It is a separate program (`python -m speck.fog.wan.delay`) that uses the
standard library only and runs in the router's namespace. It reads the table of latencies again on
SIGHUP, and then writes the table's version to `<table>.seen`.

It reads the clock for each packet, and the next wake-up is exact to microseconds (select, with a
timer slack of 1 us). If permitted, it runs with real-time priority, since on a busy machine the
scheduler would add milliseconds.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import json
import os
import select
import signal
import struct
import sys
import time
from contextlib import suppress
from pathlib import Path

MOST_HELD = 50_000
"""Maximum of held packets (75 MB): 50 ms at a million packets per second, 5 s at 10 000."""

_TUNSETIFF = 0x400454CA
_IFF_TUN = 0x0001
_IFF_NO_PI = 0x1000
_PR_SET_TIMERSLACK = 29
_BATCH = 64  # reads between two checks for due packets
_MTU = 1500


class Delays:
    """The delay of a packet in seconds, by its two addresses (8 bytes: from, to)."""

    def __init__(self, table: Path) -> None:
        self._table = table
        self._sites: dict[bytes, float] = {}
        self._pairs: dict[bytes, float] = {}

    def load(self) -> None:
        """Read the table: {"version": n, "latency_ms": {address: one way to the core}}."""
        table = json.loads(self._table.read_text())
        self._sites = {_pack(a): ms / 1000 for a, ms in table["latency_ms"].items()}
        self._pairs = {}
        version_file = self._table.with_suffix(".seen")
        fresh = version_file.with_suffix(".new")
        fresh.write_text(str(table["version"]))
        fresh.replace(version_file)

    def of(self, pair: bytes) -> float:
        delay_s = self._pairs.get(pair)
        if delay_s is None:
            delay_s = self._sites.get(pair[:4], 0.0) + self._sites.get(pair[4:], 0.0)
            self._pairs[pair] = delay_s
        return delay_s


def run(tun: int, delays: Delays, most_held: int = MOST_HELD) -> None:
    """Hold packets and write them back until the process ends."""
    queue: list[tuple[float, int, bytes]] = []
    number = dropped = 0
    while True:
        now = time.monotonic()
        while queue and queue[0][0] <= now:
            with suppress(OSError):  # as on a wire: what cannot be delivered is lost
                os.write(tun, queue[0][2])
            heapq.heappop(queue)
        wait_s = max(0.0, queue[0][0] - time.monotonic()) if queue else None
        if not select.select([tun], [], [], wait_s)[0]:
            continue
        for _ in range(_BATCH):
            try:
                packet = os.read(tun, 65536)
            except BlockingIOError:
                break
            if len(queue) >= most_held:
                dropped += 1
                if dropped in (1, 1000, 1_000_000):
                    print(f"{most_held} packets are held: {dropped} dropped so far", flush=True)
                continue
            number += 1
            due = time.monotonic() + delays.of(packet[12:20])
            heapq.heappush(queue, (due, number, packet))


def open_tun(device: str) -> int:
    """Attach to an existing TUN device; packets have no extra header."""
    tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(tun, _TUNSETIFF, struct.pack("16sH14x", device.encode(), _IFF_TUN | _IFF_NO_PI))
    return tun


def _raise_priority() -> None:
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_TIMERSLACK, 1000)
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))


def _pack(address: str) -> bytes:
    return bytes(int(part) for part in address.split("."))


def main(device: str, table: str) -> None:
    tun = open_tun(device)
    delays = Delays(Path(table))
    signal.signal(signal.SIGHUP, lambda *_: delays.load())
    delays.load()  # only now, since SIGHUP without a handler would end this process
    _raise_priority()
    run(tun, delays)


if __name__ == "__main__":
    main(*sys.argv[1:])
