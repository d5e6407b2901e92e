"""The state of a broker in this process: sessions with queues, and retained numbers."""

from __future__ import annotations

import time
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import chain
from typing import Any

from binders.memory.faults import Faults
from binders.memory.messages import Message
from speck.binding import BrokerCapability
from speck.model.finding import Finding
from speck.model.measurement import BrokerMeasures
from speck.model.observation import Sent, Taken

_SAVED = ("sessions", "announced", "readers", "taken", "sent")
"""What a broker keeps in its file."""


@dataclass(slots=True)
class StoredSession:
    """A reader's session; `holder` is the engine job id of the incarnation that reads it. It
    accepts `marks` once it has had a holder. `in_flight` are the messages that the holder has got
    and not acknowledged: a broker saves these, too."""

    topics: set[str] = field(default_factory=set)
    queue: deque[Message] = field(default_factory=deque)
    in_flight: Sequence[list[Message]] = ()
    holder: str | None = None
    marks: bool = False

    def give_back(self) -> None:
        """End the holder's connection: what it has not acknowledged is delivered again."""
        self.queue.extendleft(reversed(list(chain(*self.in_flight))))
        self.in_flight, self.holder = (), None

    @property
    def waiting(self) -> list[Message]:
        """The queued messages of the link, without marks."""
        return [message for message in self.queue if message.mark is None]


@dataclass(slots=True, kw_only=True, eq=False)
class Queues(Faults):
    """A broker. Tests may examine:

    `published`, all messages by topic; `unread`, those published while the topic had no session,
    which are lost; `abandoned`, those in a session when it was released; `dropped`, those that a
    full queue refused; `thrown_out`, the client ids whose live holder was disconnected.
    """

    capabilities: frozenset[BrokerCapability] = frozenset(BrokerCapability)
    queue_limit: int | None = None
    kept_s: float | None = None
    identity: str | None = None
    bridges: set[str] = field(default_factory=set)
    uptime_s: int = 1000
    monotonic: Callable[[], float] = time.monotonic
    up_since: float = 0.0
    findings: list[Finding] = field(default_factory=list)
    sessions: dict[str, StoredSession] = field(default_factory=dict)
    announced: set[tuple[str, str]] = field(default_factory=set)
    """(client id, topic) of the sessions that were made for readers."""
    readers: dict[str, str] = field(default_factory=dict)
    taken: dict[str, Taken] = field(default_factory=dict)
    sent: dict[str, Sent] = field(default_factory=dict)
    published: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    unread: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    abandoned: dict[str, list[Message]] = field(default_factory=lambda: defaultdict(list))
    dropped: list[Message] = field(default_factory=list)
    measures: BrokerMeasures | None = None
    thrown_out: list[str] = field(default_factory=list)
    _file: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.up_since = self.monotonic() - self.uptime_s

    def subscribe(self, client_id: str, topic: str) -> StoredSession:
        """Return the session of `client_id`, created if necessary."""
        session = self.sessions.setdefault(client_id, StoredSession())
        session.topics.add(topic)
        return session

    def connect(self, client_id: str, topic: str, holder: str) -> StoredSession:
        """Make an incarnation the holder of the session; the previous holder is disconnected."""
        session = self.subscribe(client_id, topic)
        if session.holder not in (None, holder):
            self.thrown_out.append(client_id)
            session.give_back()
        session.holder = holder
        self.announced.add((client_id, topic))
        session.marks = True
        return session

    def restart(self) -> None:
        """Crash and restart without a file: everything in memory is lost."""
        self._file = {}
        self.kill()

    def autosave(self) -> None:
        """Write sessions, queues and retained messages to the file, all at the same moment."""
        with self.lock:
            self._file = {name: deepcopy(getattr(self, name)) for name in _SAVED}
            self._file["identity"] = self.identity

    def kill(self) -> None:
        """Crash and restart: what came since the last autosave is lost, and all are cut off."""
        with self.lock:
            self.uptime_s = 0
            self.up_since = self.monotonic()
            self.dropped.clear()
            for name in _SAVED:
                getattr(self, name).clear()
                getattr(self, name).update(deepcopy(self._file.get(name, ())))
            self.identity = self._file.get("identity")
            for session in self.sessions.values():
                session.give_back()

    def has_session(self, topic: str) -> bool:
        """Whether a message on `topic` would reach a session."""
        return any(topic in session.topics for session in self.sessions.values())

    def publish(self, topic: str, message: Message) -> None:
        """Deliver a message to every session on the topic."""
        self.published[topic].append(message)
        self.deliver(topic, message)

    def deliver(self, topic: str, message: Message) -> None:
        """Like `publish`, but without recording the message in `published`."""
        readers = [session for session in self.sessions.values() if topic in session.topics]
        if not readers:
            self.unread[topic].append(message)
        for session in readers:
            self._put(session, message)

    def mark(self, client_id: str, mark: str) -> bool:
        """Put a mark at the end of a session's queue; returns False if it accepts no marks."""
        session = self.sessions.get(client_id)
        if session is None or not session.marks:
            return False
        self._put(session, Message(b"", mark=mark))
        return True

    def _put(self, session: StoredSession, message: Message) -> None:
        if self.queue_limit is not None and len(session.queue) >= self.queue_limit:
            self.dropped.append(message)
        else:
            session.queue.append(message)

    def take(self, client_id: str) -> list[bytes]:
        """Read and acknowledge all messages of a session, as an outside reader does."""
        session = self.sessions[client_id]
        payloads = [message.payload for message in session.waiting]
        session.queue.clear()
        return payloads
