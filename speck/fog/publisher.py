"""Publishes numbered messages to one broker in order, and resends messages that may be lost.

It has no thread of its own; the caller's loop drives it (`fileno`, `read`, `write`, `tend`).
"""

from __future__ import annotations

import heapq
import struct
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import urlsplit

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from speck.errors import BrokerRefusedError, InvalidError, TransientError, UnreachableError
from speck.fog.reference import site_of
from speck.model.site import normalise_address
from speck.sites.credentials import Credentials
from speck.tls.certificates import explain_refusal

NO_READER = 0x10  # the reason code of a PUBACK for a message without a matching session
TICK_S = 0.2  # longest wait between two checks of cancellation and connections

Kind = Literal["detection", "malformed", "marker"]


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """The options of a replay.

    brokers: site -> `tcp://host:port` or `ssl://host:port`; logins: site -> Credentials.
    run: the name of this replay in the producers of its messages, `replay-<run>-<stream>`.
    rate: messages per second over all streams; speed: multiple of the trace's own speed; without
        both, messages are sent as fast as possible.
    readers: the meaning of PUBACK 0x10. `some`: the message is held and resent until there is a
        reader; `none`: it counts as delivered.
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


@dataclass(slots=True, eq=False)
class Message:
    """One numbered message of one stream."""

    stream: str
    number: int
    kind: Kind
    time_ms: int  # in the trace, for pacing
    payload: bytes
    acked: bool = False


def parse_broker(address: str) -> tuple[str, int, bool]:
    """Host, port and whether to use TLS, of `tcp://host:port` or `ssl://host:port` (ports 1883 and
    8883 when absent)."""
    try:
        parts = urlsplit(normalise_address(address))
    except ValueError:
        parts = urlsplit("")
    if parts.scheme not in ("tcp", "ssl") or parts.hostname is None or parts.port is None:
        raise InvalidError(
            f"cannot use the broker address '{address}': write tcp://host:port or ssl://host:port"
        )
    return parts.hostname, parts.port, parts.scheme == "ssl"


class Header(Properties):
    """The user property `speck`, packed here, since paho's general packing takes as long as all
    the rest.

    One object serves all messages of a connection, since paho packs it within `publish`.
    """

    packed: bytes

    def __init__(self) -> None:
        super().__init__(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]

    def set(self, value: str) -> None:
        text = value.encode()
        body = b"\x26\x00\x05speck" + struct.pack("!H", len(text)) + text
        # The length is one byte up to 127, else two: the value is at most some 120 bytes long.
        size = len(body)
        length = bytes([size]) if size < 128 else bytes([size % 128 | 128, size // 128])
        object.__setattr__(self, "packed", length + body)

    def pack(self) -> bytes:
        return self.packed


class Publisher:
    """One connection to one broker; unacknowledged messages survive a reconnection.

    Each connection has a new paho client, so that only this class decides what to resend.
    """

    def __init__(
        self,
        options: ReplayOptions,
        epoch: int,
        sites: Sequence[str],
        acked: Callable[[Message, bool], None],
    ) -> None:
        self.address = options.brokers[sites[0]]
        self.refused = self.resent = 0
        self._sites, self._options, self._epoch = sites, options, epoch
        self._host, self._port, self._encrypted = parse_broker(self.address)
        self._on_acked = acked
        self._header = Header()
        self._window = options.window
        self._connected = False
        self._failure: Exception | None = None
        self._pending: dict[int, Message] = {}
        # A heap of messages to send before any new one, in the trace's order.
        self._resend_queue: list[tuple[int, str, int, Message]] = []
        self._lacks_reader = False  # whether the last acknowledgement reported no reader
        self._recent: deque[tuple[float, Message]] = deque()
        self._held_until = self._retry_at = 0.0
        self._backoff = 0.1
        self._progress = time.monotonic()
        self._client = self._open()

    def _open(self) -> Client:
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=f"replay-{self._options.run}-{''.join(self._sites)}",
            protocol=MQTTProtocolVersion.MQTTv5,
        )
        login = (self._options.logins or {}).get(self._sites[0], Credentials())
        if login.user is not None:
            client.username_pw_set(login.user, login.password)
        if self._encrypted or login.tls.ca is not None:
            client.tls_set_context(login.context("mqtt"))
        client.max_inflight_messages_set(65535)  # this class enforces the window
        client.on_connect = self._connack
        client.on_publish = self._puback
        return client

    def connect(self) -> None:
        """Start to connect. Raises UnreachableError when the broker does not listen."""
        self._client = self._open()
        self._connected = False
        try:
            self._client.connect(self._host, self._port, keepalive=30, clean_start=True)
        except (OSError, ValueError) as error:
            if refusal := explain_refusal(error, self._host, self._port):
                raise BrokerRefusedError(
                    f"cannot trust the broker at {self.address}: {refusal}"
                ) from error
            raise UnreachableError(
                f"cannot reach the broker {self.address} of site {', '.join(self._sites)}:"
                f" {error}; start it, or give another address"
            ) from error

    def _connack(self, _: Any, __: Any, ___: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            text = f"cannot replay to the broker {self.address}: it refuses the connection"
            # "busy" or "shutting down" is temporary; a wrong password or protocol is not
            lasting = reason.value not in (0x88, 0x89, 0x8B, 0x97, 0x9F)
            self._failure = BrokerRefusedError(f"{text} ({reason})") if lasting else None
            return
        maximum = getattr(properties, "ReceiveMaximum", 65535)
        self._window = min(self._options.window, maximum)
        self._connected, self._backoff = True, 0.1

    def _puback(self, _: Any, __: Any, mid: int, reason: Any, ___: Any) -> None:
        message = self._pending.pop(mid, None)
        if message is None:
            return
        if reason.value == NO_READER:
            self.refused += 1
            if self._options.readers == "some":
                self._lacks_reader = True
                self._hold(message)
                self._held_until = time.monotonic() + TICK_S
                return
        elif reason.is_failure:
            self._failure = BrokerRefusedError(
                f"cannot publish to {self._topic(message)} on {self.address}: {reason}"
            )
            return
        self._lacks_reader = False
        now = self._progress = time.monotonic()
        self._recent.append((now, message))
        while self._recent[0][0] < now - self._options.resend_s:
            self._recent.popleft()
        first, message.acked = not message.acked, True
        self._on_acked(message, first)

    def _hold(self, message: Message) -> None:
        heapq.heappush(
            self._resend_queue, (message.time_ms, message.stream, message.number, message)
        )

    def _topic(self, message: Message) -> str:
        return self._options.topic.format(stream=message.stream, site=site_of(message.stream))

    @property
    def ready(self) -> bool:
        """Whether a new message may be sent now."""
        waiting = self._resend_queue or self._lacks_reader
        return self._connected and not waiting and len(self._pending) < self._window

    @property
    def drained(self) -> bool:
        """Whether everything sent was acknowledged."""
        return not self._resend_queue and not self._pending

    def send(self, message: Message) -> None:
        """Publish a message; if that is not possible now, it is resent later."""
        self._header.set(
            f"replay-{self._options.run}-{message.stream}/{self._epoch}/{message.number}"
        )
        if self.drained and not self._lacks_reader:
            self._progress = time.monotonic()  # patience counts from the first pending message
        info = self._client.publish(
            self._topic(message), message.payload, qos=1, properties=self._header
        )
        self._pending[info.mid] = message
        if info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._connected = False

    def fileno(self) -> int:
        """The socket's file number, for select; -1 while there is none."""
        socket = self._client.socket()
        return int(socket.fileno()) if socket is not None else -1

    def want_write(self) -> bool:
        """Whether bytes wait for the socket."""
        return bool(self._client.want_write())

    def read(self) -> None:
        """Read and handle the broker's packets."""
        self._client.loop_read()

    def write(self) -> None:
        """Write waiting bytes to the socket."""
        self._client.loop_write()

    def tend(self) -> None:
        """Keep the connection alive or open a new one, and resend messages that are due.

        Raises BrokerRefusedError, and TransientError when the broker accepted nothing for too long.
        """
        now = time.monotonic()
        if self._failure is not None:
            raise self._failure
        if self._client.socket() is None:
            self._reconnect(now)
        else:
            self._client.loop_misc()
        self._send_again(now)
        waiting = not (self._connected and self.drained)
        if waiting and now - self._progress > self._options.patience_s:
            raise TransientError(
                f"cannot publish to {self.address}: the broker"
                f" {'has no reader for the topic' if self._lacks_reader else 'does not answer'}"
                f" since {self._options.patience_s:g} s; fix that and replay again"
            )

    def _send_again(self, now: float) -> None:
        if not self._connected or now < self._held_until:
            return
        while self._resend_queue and len(self._pending) < self._window:
            self.send(heapq.heappop(self._resend_queue)[-1])
            if self._lacks_reader:  # one message is enough to find out whether there is a reader
                self._held_until = now + TICK_S
                return

    def _reconnect(self, now: float) -> None:
        if self._connected or self._pending:
            self._hold_unsure(now)
            self._connected = self._lacks_reader = False
            self._progress = now
        if now >= self._retry_at:
            self._retry_at = now + self._backoff
            self._backoff = min(2.0, 2 * self._backoff)
            with suppress(UnreachableError):
                self.connect()

    def _hold_unsure(self, now: float) -> None:
        """Queue every message for resending that the broker may not have on disk."""
        since = now - self._options.resend_s
        unsure = [message for at, message in self._recent if at >= since]
        unsure += self._pending.values()
        queued = {id(entry[-1]) for entry in self._resend_queue}
        for message in {id(m): m for m in unsure if id(m) not in queued}.values():
            self._hold(message)
            self.resent += 1
        self._recent.clear()
        self._pending.clear()

    def close(self) -> None:
        """Disconnect without waiting."""
        self._client.disconnect()
