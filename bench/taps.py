"""Listens in on all links of a run and counts what is published twice under one stamp.

One `mosquitto_sub` a broker (C, QoS 0, no session) prints topic, size and user properties of each
message; threads read the lines. What a tap costs the links:

- A broker answers PUBACK 0 to a message that nobody but the tap has subscribed to, where it would
  say 0x10 ("no matching subscribers"). A sink holds such messages until its reader is there, or,
  on a link that it has left, lets them go after `--resend-window`. With a tap it takes them for
  delivered. So a tap never hides a loss: a reader that comes too late loses here what the sink
  would have kept for it. It may hide a delay: a wait of up to 15 s at a link that nobody reads any
  more does not show in the silences. `--no-tap` measures without.
- The same holds while a killed broker comes back before its readers do. A tap leaves a broker
  before it is killed (`leave`) and comes back when messages flow again (`join`); what is sent
  again in between is not counted.

A broker drops QoS 0 messages for a tap that is too slow: `missed` counts the numbers that no tap
has seen.
"""

from __future__ import annotations

import subprocess
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from binders.mqtt.batches import STAMP
from speck.errors import TransientError
from speck.fog.process import find_program

_NEED = Path(__file__).parents[1] / "tools" / "need.sh"
_MARK = "$SYS/broker/version"
"""Retained on every broker: its line says that the tap has subscribed."""
_READY_S = 30.0
_STAMP = f"{STAMP}:"


@dataclass(slots=True)
class _Seen:
    """Numbers of one producer and epoch: all up to `up_to`, and some above it."""

    up_to: int = 0
    above: set[int] = field(default_factory=set)


class Stamps:
    """The counting itself; no I/O. Keeps at most `room` numbers of a producer and epoch.

    `messages` and `size` (bytes) count all messages with a stamp, `resent` and `bytes_resent`
    those whose stamp had been seen. `places`: `(mark, topic)` -> how many of `resent`, where
    `mark` is whatever was set last. A number that is not seen while `room` higher ones are is
    given up: `missed`.
    """

    def __init__(self, room: int = 20_000) -> None:
        self.messages = self.size = self.resent = self.bytes_resent = self.missed = 0
        self.places: Counter[tuple[int, str]] = Counter()
        self.mark = 0
        self._room = room
        self._series: dict[str, _Seen] = {}

    def see(self, topic: str, stamp: str, size: int) -> None:
        """Take in one message of `size` bytes; `stamp` is `<producer>/<epoch>/<number>`."""
        self.messages += 1
        self.size += size
        series, _, numbers = stamp.rpartition("/")
        number = int(numbers.partition("+")[0])  # of a batch: its first record
        progress = self._series.setdefault(series, _Seen(number - 1))
        if number <= progress.up_to or number in progress.above:
            self.resent += 1
            self.bytes_resent += size
            self.places[self.mark, topic] += 1
            return
        progress.above.add(number)
        if len(progress.above) > self._room:
            lowest = min(progress.above)
            self.missed += lowest - progress.up_to - 1
            progress.up_to = lowest - 1
        while progress.up_to + 1 in progress.above:
            progress.up_to += 1
            progress.above.discard(progress.up_to)

    def line(self, text: str) -> None:
        """Take in one line of a tap: topic, size, user properties. Others are left out."""
        topic, _, rest = text.partition(" ")
        size, _, properties = rest.partition(" ")
        for word in properties.split():
            if word.startswith(_STAMP):
                self.see(topic, word.removeprefix(_STAMP), int(size))
                return


class Taps:
    """Taps of the topics `<run>/#` on `brokers` (site -> `tcp://host:port`) until they are closed.

    Raises PermanentError when `mosquitto_sub` is not there and cannot be installed.
    """

    def __init__(self, brokers: Mapping[str, str], run: str) -> None:
        self.stamps = Stamps()
        self._brokers, self._run = brokers, run
        self._lock = threading.Lock()
        self._taps: dict[str, tuple[subprocess.Popen[str], threading.Thread]] = {}
        subprocess.run([_NEED, "mosquitto_sub", "mosquitto-clients", "listens to links"])
        self._program = find_program("mosquitto_sub", "install it (apt-get mosquitto-clients)")

    def join(self, site: str) -> None:
        """Subscribe at a site's broker, unless it is tapped. Raises TransientError."""
        if site in self._taps:
            return
        parts = urlsplit(self._brokers[site])
        command = [str(self._program), "-h", str(parts.hostname), "-p", str(parts.port or 1883)]
        command += ["-V", "5", "-q", "0", "-t", f"{self._run}/#", "-t", _MARK, "-F", "%t %l %P"]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        ready = threading.Event()
        thread = threading.Thread(target=self._read, args=(site, process, ready), daemon=True)
        thread.start()
        self._taps[site] = process, thread
        if not ready.wait(_READY_S):
            self.leave(site)
            raise TransientError(f"cannot listen to the links at {site}: see to its broker")

    def leave(self, site: str) -> None:
        """Listen there no longer."""
        if site not in self._taps:
            return
        process, thread = self._taps.pop(site)
        process.kill()
        process.wait()
        thread.join()

    def join_all(self) -> None:
        """Subscribe at every broker that is not tapped."""
        for site in self._brokers:
            self.join(site)

    def mark(self, number: int) -> None:
        """Count repeats from now on under this number."""
        with self._lock:
            self.stamps.mark = number

    def __enter__(self) -> Taps:
        self.join_all()
        return self

    def __exit__(self, *_: object) -> None:
        for site in list(self._taps):
            self.leave(site)

    def _read(self, site: str, process: subprocess.Popen[str], ready: threading.Event) -> None:
        assert process.stdout is not None
        with process.stdout as lines:
            for text in lines:
                if not text.endswith("\n"):
                    return  # it was cut off
                if text.startswith(_MARK):
                    ready.set()
                    continue
                with self._lock:
                    self.stamps.line(f"{site}:{text}")
