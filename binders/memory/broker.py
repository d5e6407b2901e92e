"""The binder of kind `memory` for brokers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from threading import Event
from typing import TypeVar

from binders.memory.messages import Message
from binders.memory.queues import Queues
from binders.memory.world import World
from binders.mqtt.topics import ADDRESSES, topic_fault, topic_matches
from speck.binding import AddressRules, BrokerCapability, LinkClient, Reservation, Target
from speck.model.finding import Finding
from speck.model.measurement import BrokerMeasures
from speck.model.observation import BrokerView, Position
from speck.model.record import Record


class MemoryBroker:
    """A broker in this process; tests control it by `World.current().broker(address)`."""

    simulated = True
    addresses: AddressRules | None = ADDRESSES
    topic_fault = staticmethod(topic_fault)
    topic_matches = staticmethod(topic_matches)
    links: type[LinkClient] | None = None
    capabilities: frozenset[BrokerCapability]

    def __init__(self, target: Target) -> None:
        self._world = World.current()
        self._address = target.address
        self._broker.on_request = target.on_request
        self.capabilities = self._broker.capabilities

    @property
    def _broker(self) -> Queues:
        """What is at the address now."""
        return self._world.broker(self._address)

    def reach(self) -> str:
        """Always `memory`."""
        with self._call("reach"):
            return "memory"

    def identify(self, proposed: str | None = None) -> str | None:
        """Return the identity, the proposed one if there was none."""
        with self._call("identify"):
            self._broker.identity = self._broker.identity or proposed
            return self._broker.identity

    def reserve(
        self,
        reader: str,
        topic: str,
        *,
        fresh: bool = False,
        first: bool = False,
        lost: bool = False,
        at: Position | None = None,
    ) -> Reservation:
        """Create the session; a live holder is disconnected, which is recorded as a fault. If it
        should have existed, all sessions on the topic get what the jobs that write to it have
        published."""
        with self._call("reserve", reader):
            existed = reader in self._broker.sessions
            if fresh and existed:
                if self._broker.sessions[reader].holder is not None:
                    self._broker.thrown_out.append(reader)
                del self._broker.sessions[reader]
            session = self._broker.subscribe(reader, topic)
            if session.holder is not None:
                self._broker.thrown_out.append(reader)
            if lost or not (existed or fresh or first):
                self._world.send_again(self._broker, topic)
            self._broker.readers[topic] = "some"
            self._broker.announced.add((reader, topic))
            return Reservation(existed, kept_s=self._broker.kept_s)

    def release(self, reader: str, topic: str, *, last_reader: bool) -> None:
        """End the session and clear its reader's numbers; its messages go to `abandoned`."""
        with self._call("release", reader):
            session = self._broker.sessions.pop(reader, None)
            self._broker.announced.discard((reader, topic))
            if session is not None and session.holder is not None:
                self._broker.thrown_out.append(reader)
            if session is not None and session.waiting:
                self._broker.abandoned[reader].extend(session.waiting)
            if last_reader:
                self._broker.readers[topic] = "none"
            self._broker.taken.pop(reader, None)

    def announce(self, topic: str, *, readers: bool) -> None:
        """Store whether the link has readers."""
        with self._call("announce"):
            self._broker.readers[topic] = "some" if readers else "none"

    def confirm_sessions(self, topic: str, readers: Iterable[str]) -> bool:
        """Return whether all of them exist; the jobs of this binder wait for no session."""
        with self._call("confirm_sessions", topic):
            return {(reader, topic) for reader in readers} <= self._broker.announced

    def mark(self, reader: str, mark: str) -> bool:
        """Put the mark into the session, if an incarnation has ever held the session."""
        with self._call("mark", reader):
            return self._broker.mark(reader, mark)

    def publish(self, topic: str, payloads: Sequence[bytes]) -> int:
        """Publish messages without numbers."""
        with self._call("publish", topic):
            has_reader = self._broker.has_session(topic)
            for payload in payloads:
                self._broker.publish(topic, Message(payload))
            return 0 if has_reader else len(payloads)

    def tap(
        self, topic: str, on_record: Callable[[Record], None], go_on: Callable[[], bool]
    ) -> None:
        """Look at what has been published 50 times a second."""
        with self._call("tap", topic):
            first = len(self._broker.published[topic])
        pause = Event()
        while go_on():
            pause.wait(0.02)
            messages = self._broker.published[topic][first:]
            first += len(messages)
            for each in messages:
                stamp = each.producer and f"{each.producer}/{each.epoch}/{each.number}"
                on_record(Record(stamp, each.payload))

    def view(self, clients: Collection[str] | None = None) -> BrokerView:
        """Let the jobs work (unless `World.auto_pump` is off), and return their numbers; with
        `clients` nothing but what is asked for."""
        with self._call("view"):
            if self._world.auto_pump:
                self._world.pump()
            if clients is not None:
                return BrokerView(
                    taken=_of(self._broker.taken, clients),
                    sent=_of(self._broker.sent, clients),
                    uptime_s=self._broker.uptime_s,
                    identity=self._broker.identity,
                    up_since=self._broker.up_since,
                )
            return BrokerView(
                taken=dict(self._broker.taken),
                sent=dict(self._broker.sent),
                uptime_s=self._broker.uptime_s,
                dropped=len(self._broker.dropped),
                readers={topic: some == "some" for topic, some in self._broker.readers.items()},
                sessions=frozenset(self._broker.announced),
                identity=self._broker.identity,
                bridges=frozenset(self._broker.bridges),
                up_since=self._broker.up_since,
            )

    def forget(self, *sinks: str) -> None:
        """Clear the retained numbers; counts as one call."""
        if not sinks:
            return
        with self._call("forget", ", ".join(sinks)):
            for client_id in sinks:
                self._broker.sent.pop(client_id, None)

    def measure(self) -> tuple[BrokerMeasures, BrokerView]:
        """Count the published, dropped and queued messages, unless a test has set `measures`."""
        with self._call("measure"):
            broker = self._broker
            measures = broker.measures or BrokerMeasures(
                messages_in=sum(map(len, broker.published.values())),
                dropped=len(broker.dropped),
                queued=sum(len(session.queue) for session in broker.sessions.values()),
                uptime_s=broker.uptime_s,
            )
        return measures, self.view()

    def check(self) -> list[Finding]:
        """Return the `findings` that a test has set."""
        with self._call("check"):
            return list(self._broker.findings)

    def close(self) -> None:
        """Does nothing: there are no connections."""

    def _call(self, kind: str, subject: str = "") -> AbstractContextManager[None]:
        return self._broker.call(kind, subject)


_Numbers = TypeVar("_Numbers")


def _of(numbers: Mapping[str, _Numbers], client_ids: Collection[str]) -> dict[str, _Numbers]:
    return {client_id: numbers[client_id] for client_id in client_ids if client_id in numbers}
