"""The state of a broker in this process: sessions with queues, and retained numbers."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import dataclass, field

from binders.memory.faults import Faults
from binders.memory.messages import Message
from speck.binding import BrokerCapability, Finding
from speck.model.measurement import BrokerMeasures
from speck.model.observation import Sent, Taken


@dataclass(slots=True)
class Session:
    """A reader's session; `holder` is the engine job id of the incarnation that reads it. It
    takes `marks` once one has."""

    topics: set[str] = field(default_factory=set)
    queue: deque[Message] = field(default_factory=deque)
    holder: str | None = None
    marks: bool = False

    @property
    def waiting(self) -> list[Message]:
        """The link's messages in it, without marks."""
        return [message for message in self.queue if message.mark is None]


@dataclass(slots=True, kw_only=True, eq=False)
class Queues(Faults):
    """A broker. What a test may want to assert about is kept apart:

    `published` is everything by topic; `unread` what came while the topic had no session, and
    so is lost; `abandoned` what a session held when it was released; `dropped` what a full
    queue refused; `thrown_out` the client ids that were taken from a live incarnation.
    """

    capabilities: frozenset[BrokerCapability] = frozenset(BrokerCapability)
    queue_limit: int | None = None
    uptime_s: int = 1000
    findings: list[Finding] = field(default_factory=list)
    sessions: dict[str, Session] = field(default_factory=dict)
    readers: dict[str, str] = field(default_factory=dict)
    taken: dict[str, Taken] = field(default_factory=dict)
    sent: dict[str, Sent] = field(default_factory=dict)
    published: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    unread: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    abandoned: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    dropped: list[Message] = field(default_factory=list)
    measures: BrokerMeasures | None = None
    thrown_out: list[str] = field(default_factory=list)

    def subscribe(self, client_id: str, topic: str) -> Session:
        """The session of `client_id`, made when there is none."""
        session = self.sessions.setdefault(client_id, Session())
        session.topics.add(topic)
        return session

    def connect(self, client_id: str, topic: str, holder: str) -> Session:
        """Let an incarnation hold the session, throwing out the one that does."""
        session = self.subscribe(client_id, topic)
        if session.holder not in (None, holder):
            self.thrown_out.append(client_id)
        session.holder = holder
        session.marks = True
        return session

    def restart(self) -> None:
        """Die without a chance to write anything down, and start anew."""
        with self.lock:
            self.uptime_s = 0
            for kept in (self.sessions, self.readers, self.taken, self.sent, self.dropped):
                kept.clear()

    def read_by_any(self, topic: str) -> bool:
        """Whether a message on `topic` would reach a session."""
        return any(topic in session.topics for session in self.sessions.values())

    def publish(self, topic: str, message: Message) -> None:
        """Hand a message to every session on the topic."""
        self.published[topic].append(message)
        self.deliver(topic, message)

    def deliver(self, topic: str, message: Message) -> None:
        """The same without a note that it was published."""
        readers = [session for session in self.sessions.values() if topic in session.topics]
        if not readers:
            self.unread[topic].append(message)
        for session in readers:
            self._put(session, message)

    def mark(self, client_id: str, mark: str) -> bool:
        """Put a mark behind what waits in a session; False when it takes none."""
        session = self.sessions.get(client_id)
        if session is None or not session.marks:
            return False
        self._put(session, Message(b"", mark=mark))
        return True

    def _put(self, session: Session, message: Message) -> None:
        if self.queue_limit is not None and len(session.queue) >= self.queue_limit:
            self.dropped.append(message)
        else:
            session.queue.append(message)

    def take(self, client_id: str) -> list[bytes]:
        """Read and acknowledge all that waits in a session, as a reader outside speck does."""
        session = self.sessions[client_id]
        payloads = [message.payload for message in session.waiting]
        session.queue.clear()
        return payloads
