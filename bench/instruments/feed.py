"""Numbered messages at a set rate from a thread of its own, as the publisher of an experiment.

Each message carries the publisher's own number in its payload and the connector's number in its
properties; after a lost connection everything is sent again that the broker may not have kept.
"""

from __future__ import annotations

import json
import math
import select
import threading
import time
from dataclasses import dataclass
from typing import Protocol

from speck.errors import TransientError
from speck.fog.publisher import Message, Publisher, ReplayOptions

_TICK_S = 0.01
_KEYS = 16
PATIENCE_S = 600.0
"""Longer than any fault lasts: a broker that is away is part of the experiment."""


class Pace(Protocol):
    """How many messages are due when; seconds since the feed began."""

    def count(self, seconds: float) -> float:
        """How many are due by then."""

    def due(self, number: int) -> float:
        """When message `number` is due."""


@dataclass(frozen=True, slots=True)
class Steady:
    """So many messages a second."""

    rate: float

    def count(self, seconds: float) -> float:
        return seconds * self.rate

    def due(self, number: int) -> float:
        return number / self.rate


@dataclass(frozen=True, slots=True)
class Ramp:
    """Messages a second that grow evenly, from `first` to `last` in `seconds`, and then stay."""

    first: float
    last: float
    seconds: float

    def rate(self, seconds: float) -> float:
        """Messages a second at that moment."""
        return self.first + self._growth * min(seconds, self.seconds)

    def count(self, seconds: float) -> float:
        growing = min(seconds, self.seconds)
        whole = (self.first + self._growth * growing / 2) * growing
        return whole + self.last * (seconds - growing)

    def due(self, number: int) -> float:
        whole = self.count(self.seconds)
        if number >= whole:
            return self.seconds + (number - whole) / self.last
        # the root of growth / 2 t^2 + first t = number, in the form that a growth of 0 is no
        # trouble to
        root = math.sqrt(self.first**2 + 2 * self._growth * number)
        return 2 * number / (self.first + root)

    @property
    def _growth(self) -> float:
        return (self.last - self.first) / self.seconds


class Feed:
    """Publishes `{"n": 1, "k": ...}`, `{"n": 2, ...}` ... to `topic` until it is ended.

    `broker` is `tcp://host:port`, `rate` messages/s or a pace. `k` is one of 16 keys, for jobs with
    state.
    What could not go out in time follows as fast as the broker takes it. `resend_s`: what was
    acknowledged so recently is sent again after a lost connection (15 s: three autosave
    intervals of 5 s). `pad`: so many more bytes in each payload.
    `began`: of time.monotonic, when number 0 would have been due (None: now).
    """

    def __init__(
        self,
        broker: str,
        topic: str,
        *,
        rate: float | Pace = 1000.0,
        run: str,
        resend_s: float = 15.0,
        pad: int = 0,
        began: float | None = None,
    ) -> None:
        options = ReplayOptions(
            brokers={"feed": broker},
            run=run,
            topic=topic,
            window=1000,
            patience_s=PATIENCE_S,
            resend_s=resend_s,
        )
        self._pace = Steady(rate) if isinstance(rate, int | float) else rate
        self._multiple = 1
        self._began = time.monotonic() if began is None else began
        self._pad = {"pad": "x" * pad} if pad else {}
        self._acked = 0
        self._sent = 0
        self._over = threading.Event()
        self._cancel = threading.Event()
        self._failure: BaseException | None = None
        self._publisher = Publisher(options, int(time.time()), ["feed"], self._count)
        self._publisher.connect()
        self._thread = threading.Thread(target=self._run, name=f"feed {topic}", daemon=True)
        self._thread.start()

    @property
    def sent(self) -> int:
        """The highest number that was published; safe from any thread."""
        return self._sent

    def due_at(self, number: int) -> float:
        """When message `number` was due, of time.monotonic."""
        return self._began + self._pace.due(number)

    @property
    def acked(self) -> int:
        """How many numbers a broker has acknowledged; safe from any thread."""
        return self._acked

    @property
    def resent(self) -> int:
        """Messages sent again after lost connections."""
        return self._publisher.resent

    def check(self) -> None:
        """Raise the error that ended the feed, if any."""
        if self._failure is not None:
            raise self._failure

    def end(self, timeout_s: float = 120.0, *, multiple: int = 1) -> int:
        """Publish no more than a whole `multiple` needs, wait for every acknowledgement; how many
        numbers were published.

        Raises TransientError when the broker does not take everything in `timeout_s`, and
        whatever ended the feed before.
        """
        self._multiple = multiple
        self._over.set()
        self._thread.join(timeout_s)
        if self._thread.is_alive():
            self._cancel.set()
            self._thread.join()
            raise TransientError(
                f"cannot end the feed: {self._sent - self._acked} messages wait for"
                f" {self._publisher.address} since {timeout_s:g} s; see to that broker"
            )
        self.check()
        return self._sent

    def __enter__(self) -> Feed:
        return self

    def __exit__(self, *_: object) -> None:
        self._cancel.set()
        self._thread.join()

    def _count(self, _: Message, first: bool) -> None:
        self._acked += first

    def _run(self) -> None:
        publisher = self._publisher
        try:
            while not (self._over.is_set() or self._cancel.is_set()):
                due = int(self._pace.count(time.monotonic() - self._began))
                while self._sent < due and publisher.ready:
                    self._publish(self._sent + 1)
                self._pump()
            while self._sent % self._multiple and not self._cancel.is_set():
                if publisher.ready:
                    self._publish(self._sent + 1)
                else:
                    self._pump()
            while not (publisher.drained or self._cancel.is_set()):
                self._pump()
        except BaseException as error:
            self._failure = error
        finally:
            publisher.close()

    def _publish(self, number: int) -> None:
        record = {"n": number, "k": f"k{number % _KEYS}", **self._pad}
        payload = json.dumps(record, separators=(",", ":"))
        self._sent = number
        self._publisher.send(Message("feed", number, "detection", number, payload.encode()))

    def _pump(self) -> None:
        publisher = self._publisher
        deadline = time.monotonic() + _TICK_S
        while (wait := deadline - time.monotonic()) > 0:
            if publisher.fileno() < 0:
                self._cancel.wait(wait)
                break
            writers = [publisher] if publisher.want_write() else []
            readable, writable, _ = select.select([publisher], writers, [], wait)
            if readable:
                publisher.read()
            if writable and publisher.fileno() >= 0:
                publisher.write()
        publisher.tend()
