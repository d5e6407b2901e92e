"""Links for programs that are no jobs: replays and checkers write and read them as jobs do.

A broker's binder offers its `LinkClient` as `links` of its class. How a record and its stamp are
packed into messages, and how several records share one, is the client's secret.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

from speck.model.record import Record
from speck.tls.contexts import ClientTls


class Login(Protocol):
    """What a broker demands of its clients."""

    @property
    def user(self) -> str | None: ...
    @property
    def password(self) -> str | None: ...
    @property
    def tls(self) -> ClientTls: ...


@dataclass(slots=True, eq=False)
class Outgoing:
    """A numbered record for a link. Records that are sent again go in the order of `order`, before
    any new one. `subject` is the caller's own."""

    topic: str
    stamp: str
    payload: bytes
    order: tuple[Any, ...] = ()
    subject: Any = None
    acked: bool = False


@dataclass(frozen=True, slots=True)
class WriterOptions:
    """How records are written.

    name: of this writer, unique at its broker; label: what error messages call the broker.
    holds: whether a record without a reader is held and sent again until there is one; otherwise it
        counts as delivered.
    window: unacknowledged records, at most as many as the broker takes.
    patience_s: how long the broker may accept nothing before the writer fails.
    resend_s: after a lost connection, records acknowledged within this time are sent again (a
        broker's acknowledgement may not be durable; readers drop the repeats).
    """

    name: str
    label: str
    holds: bool = True
    window: int = 1000
    patience_s: float = 60.0
    resend_s: float = 15.0


class LinkWriter(Protocol):
    """One connection that sends records in order, and those again that may be lost.

    It has no thread of its own: the caller's loop drives it (`fileno`, `read`, `write`, `tend`).
    """

    refused: int
    """How often the broker has reported that a record has no reader."""
    resent: int
    """Records sent again after a lost connection."""

    def connect(self) -> None:
        """Start to connect. Raises UnreachableError when the broker does not listen."""

    @property
    def ready(self) -> bool:
        """Whether a new record may be sent now."""

    @property
    def drained(self) -> bool:
        """Whether everything sent was acknowledged."""

    def send(self, record: Outgoing) -> None:
        """Send a record; if that is not possible now, it is sent later."""

    def fileno(self) -> int:
        """The connection's file number, for select; -1 while there is none."""

    def want_write(self) -> bool:
        """Whether bytes wait for the connection."""

    def read(self) -> None:
        """Read and handle what the broker has sent."""

    def write(self) -> None:
        """Write what waits."""

    def tend(self) -> None:
        """Keep the connection alive or open a new one, and send again what is due. Raises
        BrokerRefusedError, and TransientError when the broker accepted nothing for too long."""

    def close(self) -> None:
        """Disconnect without waiting."""


class LinkReader(Protocol):
    """A reader's session that is read until the end of a `with`; it continues to exist."""

    def __enter__(self) -> LinkReader: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class LinkClient(Protocol):
    """The links of one broker."""

    def __init__(self, address: str, login: Login | None = None) -> None:
        """`address` is normalised."""

    def writer(
        self, options: WriterOptions, on_acked: Callable[[Outgoing, bool], None]
    ) -> LinkWriter:
        """`on_acked` is called for each acknowledgement: with the record, and whether it is the
        first of that record."""

    def reader(
        self,
        topic: str,
        name: str,
        on_record: Callable[[Record], None],
        on_damaged: Callable[[bytes], None],
    ) -> LinkReader:
        """Read a link under the session of the reader `name`. The callbacks run in another thread;
        `on_damaged` gets a message that holds no records. Raises UnreachableError."""
