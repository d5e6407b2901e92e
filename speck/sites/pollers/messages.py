"""What the service and a poller say to each other: length-prefixed messages over a socket pair.

They are pickled. Nobody else has an end of the socket, and what a site has sent is in them only as
the plain data that its binder made of it.
"""

from __future__ import annotations

import pickle
import socket
import struct
from dataclasses import dataclass
from typing import Any

from speck.binding import BrokerPoll, EnginePoll, Target
from speck.errors import PermanentError, SpeckError, TransientError, UnreachableError

_LENGTH = struct.Struct("!I")

_KINDS: tuple[type[SpeckError], ...] = (UnreachableError, TransientError, PermanentError)
"""What a failure becomes: the first that fits."""


@dataclass(frozen=True, slots=True)
class PollRequest:
    """A poll of the engine or the broker at `target`, which a binder of `kind` reaches. While
    `urgent` ones are under way no other begins: somebody waits for the answer."""

    number: int
    what: EnginePoll | BrokerPoll
    kind: str
    target: Target
    job_ids: tuple[str, ...] = ()
    urgent: bool = False


@dataclass(frozen=True, slots=True)
class Failure:
    """A poll that failed: which of `_KINDS`; None: by a fault of speck's own."""

    kind: int | None
    message: str

    @classmethod
    def of(cls, error: SpeckError) -> Failure:
        kind = next((n for n, each in enumerate(_KINDS) if isinstance(error, each)), 1)
        return cls(kind, str(error))

    def error(self) -> Exception:
        """The exception to raise for it."""
        return RuntimeError(self.message) if self.kind is None else _KINDS[self.kind](self.message)


@dataclass(frozen=True, slots=True)
class Reply:
    """The answer to the request of that number."""

    number: int
    answer: Any


def pack(message: PollRequest | Reply) -> bytes:
    """A message as it is sent."""
    body = pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    return _LENGTH.pack(len(body)) + body


class Inbox:
    """Reads messages from a socket."""

    def __init__(self, sock: socket.socket):
        self._file = sock.makefile("rb", buffering=1 << 16)

    def receive(self) -> Any | None:
        """The next message; None: the other side is gone."""
        try:
            head = self._file.read(_LENGTH.size)
            if len(head) < _LENGTH.size:
                return None
            (length,) = _LENGTH.unpack(head)
            body = self._file.read(length)
        except OSError:
            return None
        return pickle.loads(body) if len(body) == length else None
