"""Where engines and brokers of this process live, and the pump that lets their jobs work."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from threading import Lock, RLock
from typing import ClassVar

from binders.memory.messages import Message
from binders.memory.queues import Queues
from binders.memory.slots import MemoryJob, Saved, SlotPool
from speck.model.site import normalise_address


class World:
    """Engines and brokers by address, made when they are first asked for.

    `slots` is how many each new engine has; `clock` gives Unix milliseconds (by default a
    counter, so that runs are the same). With `auto_pump` the jobs work whenever a broker's
    numbers are looked at, as if they ran by themselves.
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
        self.saved: dict[str, Saved] = {}
        self._engines: dict[str, SlotPool] = {}
        self._brokers: dict[str, Queues] = {}
        self._clock = clock
        self._ticks = 0

    @classmethod
    def current(cls) -> World:
        """The world that binders opened now look into."""
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
        """Begin a new, empty world; binders opened before keep the old one."""
        world = cls(slots=slots, auto_pump=auto_pump, clock=clock)
        with cls._guard:
            cls._current = world
        return world

    def engine(self, address: str) -> SlotPool:
        """The engine at an address (any form that `normalise_address` takes)."""
        address = normalise_address(address)
        with self.lock:
            if address not in self._engines:
                self._engines[address] = SlotPool(
                    address=address, lock=self.lock, world=self, total=self.slots
                )
            return self._engines[address]

    def broker(self, address: str) -> Queues:
        """The broker at an address (any form that `normalise_address` takes)."""
        address = normalise_address(address)
        with self.lock:
            if address not in self._brokers:
                self._brokers[address] = Queues(address=address, lock=self.lock)
            return self._brokers[address]

    def feed(
        self, address: str, topic: str, payloads: Iterable[bytes], producer: str | None = None
    ) -> None:
        """Publish from outside; with `producer` numbered after what it has published so far."""
        with self.lock:
            broker = self.broker(address)
            number = sum(1 for said in broker.published[topic] if said.producer == producer)
            for payload in payloads:
                number += 1
                numbered = Message(payload, producer, 1, number)
                broker.publish(topic, numbered if producer else Message(payload))

    def pump(self, *, checkpoint: bool = True) -> int:
        """Let all running jobs pass on what waits for them until nothing moves, and then
        complete a checkpoint in each. Gives the number of messages taken."""
        with self.lock:
            total = 0
            while moved := sum(job.work() for job in self._running()):
                total += moved
            if checkpoint:
                for job in self._running():
                    job.checkpoint()
            return total

    def send_again(self, broker: Queues, topic: str) -> None:
        """Let the jobs that write to a topic publish once more what they have in this epoch."""
        with self.lock:
            series = {
                job.series
                for job in self._running()
                if job.wiring is not None
                and job.wiring.sink_topic == topic
                and self.broker(job.wiring.sink_broker) is broker
            }
            for message in list(broker.published[topic]):
                if (message.producer, message.epoch) in series:
                    broker.deliver(topic, message)

    def now_ms(self) -> int:
        """Unix milliseconds of the clock, or the next tick."""
        with self.lock:
            self._ticks += 1
            return self._clock() if self._clock else self._ticks

    def _running(self) -> list[MemoryJob]:
        return [job for engine in self._engines.values() for job in engine.running()]
