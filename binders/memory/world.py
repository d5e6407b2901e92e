"""The engines and brokers of this process, and the pump that runs their jobs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from threading import Lock, RLock
from typing import Any, ClassVar

from binders.memory.messages import Message
from binders.memory.queues import Queues
from binders.memory.slots import MemoryJob, Saved, SlotPool
from speck.binding import normalise_address
from speck.model.observation import Sent


class World:
    """Engines and brokers by address, created at first use.

    Each new engine has `slots` slots. `clock` returns Unix milliseconds (by default from a
    counter, so that runs are reproducible). With `auto_pump` the jobs work whenever a broker's
    numbers are read, as if they ran by themselves.
    """

    _current: ClassVar[World | None] = None
    _guard: ClassVar[Lock] = Lock()

    def __init__(
        self,
        *,
        slots: int = 16,
        auto_pump: bool = True,
        clock: Callable[[], int] | None = None,
    ) -> None:
        self.lock = RLock()
        self.slots = slots
        self.auto_pump = auto_pump
        self.monotonic = time.monotonic
        self.saved: dict[str, Saved] = {}
        self.left: set[str] = set()
        """The addresses that their brokers have left, and nobody has taken."""
        self._engines: dict[str, SlotPool] = {}
        self._brokers: dict[str, Queues] = {}
        self._clock = clock
        self._ticks = 0

    @classmethod
    def current(cls) -> World:
        """The world that newly opened binders use."""
        with cls._guard:
            if cls._current is None:
                cls._current = cls()
            return cls._current

    @classmethod
    def reset(
        cls,
        *,
        slots: int = 16,
        auto_pump: bool = True,
        clock: Callable[[], int] | None = None,
    ) -> World:
        """Begin a new, empty world; binders that are already open keep the old one."""
        world = cls(slots=slots, auto_pump=auto_pump, clock=clock)
        with cls._guard:
            cls._current = world
        return world

    def engine(self, address: str) -> SlotPool:
        """The engine at an address (in any form that `normalise_address` accepts)."""
        address = normalise_address(address)
        with self.lock:
            if address not in self._engines:
                self._engines[address] = SlotPool(
                    address=address, lock=self.lock, world=self, total=self.slots
                )
            return self._engines[address]

    def readdress(self, addresses: Mapping[str, str]) -> None:
        """Give engines and brokers other addresses, old -> new, all at once; at old ones that
        nobody has taken nothing answers any more."""
        changes = {normalise_address(old): normalise_address(new) for old, new in addresses.items()}
        with self.lock:
            servers: tuple[dict[str, Any], ...] = self._engines, self._brokers
            for there in servers:
                moving = {new: there.pop(old) for old, new in changes.items() if old in there}
                for address, server in moving.items():
                    server.address = address
                there |= moving
            self.left = (self.left | changes.keys()) - {*changes.values()}
            for old in self.left:
                server = self.engine(old) if old.startswith("http") else self.broker(old)
                server.unreachable = True

    def broker(self, address: str) -> Queues:
        """The broker at an address (in any form that `normalise_address` accepts)."""
        address = normalise_address(address)
        with self.lock:
            if address not in self._brokers:
                self._brokers[address] = Queues(
                    address=address, lock=self.lock, monotonic=lambda: self.monotonic()
                )
            return self._brokers[address]

    def feed(
        self, address: str, topic: str, payloads: Iterable[bytes], producer: str | None = None
    ) -> None:
        """Publish as an outside program; with `producer`, numbered after its earlier messages."""
        with self.lock:
            broker = self.broker(address)
            number = sum(1 for each in broker.published[topic] if each.producer == producer)
            for payload in payloads:
                number += 1
                numbered = Message(payload, producer, 1, number)
                broker.publish(topic, numbered if producer else Message(payload))

    def pump(self, *, checkpoint: bool = True) -> int:
        """Run all jobs until no message is queued for them, then complete a checkpoint in each.
        Returns the number of messages taken."""
        with self.lock:
            total = 0
            while count := sum(job.work() for job in self._running()):
                total += count
            if checkpoint:
                for job in self._running():
                    job.checkpoint()
            return total

    def send_again(self, broker: Queues, topic: str) -> None:
        """Deliver again what the jobs that write to a topic have published in their epoch."""
        with self.lock:
            series = {
                job.series(topic)
                for job in self._running()
                if job.wiring is not None
                and topic in dict(job.wiring.port)
                and self.broker(job.wiring.sink_broker) is broker
            }
            for message in list(broker.published[topic]):
                if (message.producer, message.epoch) in series:
                    broker.deliver(topic, message)

    def resend(self, job: MemoryJob) -> None:
        """Deliver again what the broker of a job's sink does not have of all that it had published
        by its end."""
        wiring = job.wiring
        if wiring is None:
            return
        with self.lock:
            broker = self.broker(wiring.sink_broker)
            for topic, client_id in wiring.port:
                if job.numbers[topic]:
                    self._resend(broker, job, topic, client_id)

    def _resend(self, broker: Queues, job: MemoryJob, topic: str, client_id: str) -> None:
        sent, series = broker.sent.get(client_id), job.series(topic)
        has = sent.number if sent is not None and sent.epoch == job.epoch else 0
        for message in list(broker.published[topic]):
            if (message.producer, message.epoch) == series and message.number > has:
                broker.deliver(topic, message)
        number = max(has, job.numbers[topic])
        broker.sent[client_id] = Sent(*series, number, self.now_ms(), topic=topic)

    def now_ms(self) -> int:
        """Unix milliseconds of the clock, or the next tick of the counter."""
        with self.lock:
            self._ticks += 1
            return self._clock() if self._clock else self._ticks

    def _running(self) -> list[MemoryJob]:
        return [job for engine in self._engines.values() for job in engine.running()]
