"""Publishes the messages of a replay, numbered, by the link client of each broker's binder."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from speck.binding import (
    BROKERS,
    Outgoing,
    WriterOptions,
    address_rules,
    kind_of_address,
    open_links,
)
from speck.errors import (
    InvalidError,
    PermanentError,
)
from speck.fog.trace import site_of
from speck.sites.credentials import Credentials

TICK_S = 0.2  # longest wait between two checks of cancellation and connections

Kind = Literal["detection", "malformed", "marker"]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay.

    brokers: site -> address; logins: site -> Credentials.
    run: the name of this replay in the producers of its messages, `replay-<run>-<stream>`.
    rate: messages per second over all streams; speed: multiple of the trace's own speed; without
        both, messages are sent as fast as possible.
    readers: what a message without a reader means. `some`: it is held and sent again until there
        is one; `none`: it counts as delivered.
    window: unacknowledged messages of one connection, at most the broker's Receive Maximum.
    patience_s: how long a broker may accept nothing before the replay fails.
    resend_s: after a lost connection, messages acknowledged within this time are resent (a
        broker's acknowledgement is not durable; readers drop the repeats). 15 s is three
        autosave intervals of 5 s.
    """

    brokers: Mapping[str, str]
    run: str
    epoch: int | None = None  # None: the Unix time in seconds
    rate: float | None = None
    speed: float | None = None
    copies: int = 1
    topic: str = "traffic/{stream}"
    readers: Literal["some", "none"] = "some"
    window: int = 1000
    patience_s: float = 60.0
    resend_s: float = 15.0
    logins: Mapping[str, Credentials] | None = None
    kinds: Mapping[str, str] | None = None

    def find_broker(self, site: str) -> tuple[str, str]:
        """The kind of a site's broker, and its address. Raises InvalidError."""
        return find_broker(self.brokers[site], (self.kinds or {}).get(site))


@dataclass(slots=True, eq=False)
class Message:
    """One numbered message of one stream."""

    stream: str
    number: int
    kind: Kind
    time_ms: int  # in the trace, for pacing
    payload: bytes


def find_broker(address: str, kind: str | None = None) -> tuple[str, str]:
    """The kind of the broker at an address, if it is not known, and the address in its normal form.
    Raises InvalidError."""
    try:
        rules = None if kind is None else address_rules(BROKERS, kind)
        if kind is not None and rules is not None:
            return kind, rules.normalise(address)
        return kind_of_address(BROKERS, address)
    except (ValueError, PermanentError) as error:
        raise InvalidError(f"cannot use the broker address '{address}': {error}") from error


class Publisher:
    """Writes messages to the broker of some sites; see `speck.binding.LinkWriter`, which is
    `writer`."""

    def __init__(
        self,
        options: ReplayOptions,
        epoch: int,
        sites: Sequence[str],
        acked: Callable[[Message, bool], None],
    ) -> None:
        self._options, self._epoch = options, epoch
        kind, self.address = options.find_broker(sites[0])
        login = (options.logins or {}).get(sites[0])
        self.writer = open_links(kind, self.address, login).writer(
            WriterOptions(
                f"replay-{options.run}-{''.join(sites)}",
                f"site {', '.join(sites)}",
                options.readers == "some",
                options.window,
                options.patience_s,
                options.resend_s,
            ),
            lambda record, first: acked(record.subject, first),
        )
        self.connect, self.close = self.writer.connect, self.writer.close
        self.fileno, self.want_write = self.writer.fileno, self.writer.want_write
        self.read, self.write, self.tend = self.writer.read, self.writer.write, self.writer.tend

    @property
    def refused(self) -> int:
        """How often the broker has reported that a message has no reader."""
        return self.writer.refused

    @property
    def resent(self) -> int:
        """Messages sent again after a lost connection."""
        return self.writer.resent

    @property
    def ready(self) -> bool:
        """Whether a new message may be sent now."""
        return self.writer.ready

    @property
    def drained(self) -> bool:
        """Whether everything sent was acknowledged."""
        return self.writer.drained

    def send(self, message: Message) -> None:
        """Publish a message; if that is not possible now, it is sent later."""
        topic = self._options.topic.format(stream=message.stream, site=site_of(message.stream))
        stamp = f"replay-{self._options.run}-{message.stream}/{self._epoch}/{message.number}"
        order = (message.time_ms, message.stream, message.number)
        self.writer.send(Outgoing(topic, stamp, message.payload, order, message))
