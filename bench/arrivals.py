"""When messages arrive at a reader that may stand at any site: a program of its own.

    python -m bench.arrivals CLIENT_ID BROKER TOPIC [CLIENT_ID BROKER TOPIC ...]

It prints `ready` when it has subscribed to all, and for each message one JSON line `[at, client_id,
record]`, `at` of time.monotonic, which all processes of a machine share, whatever their network. A
client whose id begins with `tap-` keeps no session and reads at QoS 0: it looks at a link without
being one of its readers; of its records only `[stream, id]` are told.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

TAP = "tap-"
_EXPIRY_S = 30 * 24 * 3600
_AT_ONCE = 1000
_READY_S = 30.0


@dataclass(frozen=True, slots=True)
class Arrival:
    """One message: when (of time.monotonic), under which client id, its record."""

    at: float
    client: str
    record: Any


class Arrivals:
    """Runs the program and keeps the records that it prints, until it is closed.

    `outputs`: (client id, broker, topic) of each reader; `prefix`: the command prefix that starts
    a program at the site of the readers. Raises RuntimeError when they cannot subscribe.
    """

    def __init__(self, outputs: Sequence[tuple[str, str, str]], prefix: Sequence[str] = ()) -> None:
        words = [word for each in outputs for word in each]
        self._process = subprocess.Popen(
            [*prefix, sys.executable, "-m", "bench.arrivals", *words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self._arrivals: list[Arrival] = []
        self._lock = threading.Lock()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._keep, name="arrivals", daemon=True)
        self._thread.start()
        if not self._ready.wait(_READY_S):
            self.close()
            raise RuntimeError(f"cannot read {', '.join(each[2] for each in outputs)}")

    @property
    def pid(self) -> int:
        return self._process.pid

    def count(self) -> int:
        """How many have come."""
        return len(self._arrivals)

    def await_count(self, count: int, limit_s: float = 180.0, quiet_s: float = 20.0) -> None:
        """Wait until so many have come, or none has come for `quiet_s`, or `limit_s` are over."""
        began = since = time.monotonic()
        before = self.count()
        while before < count and time.monotonic() - began < limit_s:
            time.sleep(0.1)
            if (now_count := self.count()) != before:
                before, since = now_count, time.monotonic()
            elif time.monotonic() - since > quiet_s:
                return

    def since(self, first: int) -> list[Arrival]:
        """The records that have arrived, except the first `first`."""
        with self._lock:
            return self._arrivals[first:]

    def close(self) -> None:
        """End the program; its sessions stay."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._thread.join()

    def __enter__(self) -> Arrivals:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _keep(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line == "ready\n":
                self._ready.set()
                continue
            arrival = Arrival(*json.loads(line))
            with self._lock:
                self._arrivals.append(arrival)


class _Reader:
    """One connection; prints each message."""

    def __init__(self, client_id: str, broker: str, topic: str) -> None:
        self._topic, self._tap = topic, client_id.startswith(TAP)
        self._id = client_id
        self.subscribed = threading.Event()
        parts = urlsplit(broker)
        self._client = Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5
        )
        self._client.on_connect = self._subscribe
        self._client.on_subscribe = lambda *_: self.subscribed.set()
        self._client.on_message = self._print
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 0 if self._tap else _EXPIRY_S
        properties.ReceiveMaximum = _AT_ONCE
        self._client.connect(
            parts.hostname or "",
            parts.port or 1883,
            keepalive=30,
            clean_start=self._tap,
            properties=properties,
        )
        self._client.loop_start()

    def _subscribe(self, client: Client, *_: Any) -> None:
        options = SubscribeOptions(
            qos=0 if self._tap else 1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND
        )
        client.subscribe(self._topic, options=options)

    def _print(self, _: Client, __: Any, message: MQTTMessage) -> None:
        at = time.monotonic()
        record = json.loads(message.payload)
        if self._tap:
            record = [record["stream"], record.get("id")]
        line = json.dumps([at, self._id, record], separators=(",", ":")) + "\n"
        os.write(sys.stdout.fileno(), line.encode())  # whole, though several threads print


def main(words: Sequence[str]) -> int:
    """Read until stdin ends, which it does when the parent is gone."""
    readers = [_Reader(*words[at : at + 3]) for at in range(0, len(words), 3)]
    if all(reader.subscribed.wait(_READY_S) for reader in readers):
        print("ready", flush=True)
        sys.stdin.read()
        return 0
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
