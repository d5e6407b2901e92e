"""Writes numbered records to one MQTT broker in order, and sends again what may be lost."""

from __future__ import annotations

import heapq
import itertools
import struct
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from speck.binding import Outgoing, WriterOptions
from speck.errors import BrokerRefusedError, TransientError, UnreachableError
from speck.sites.credentials import Credentials
from speck.tls.certificates import explain_refusal

NO_READER = 0x10  # the reason code of a PUBACK for a message without a matching session
HOLD_S = 0.2  # between two tries of a message that has no reader


def split_address(address: str) -> tuple[str, int, bool]:
    """Host, port and whether to use TLS, of a normalised address."""
    parts = urlsplit(address)
    return parts.hostname or "", parts.port or 0, parts.scheme == "ssl"


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


class MqttWriter:
    """One connection to one broker; unacknowledged messages survive a reconnection.

    Each connection has a new paho client, so that only this class decides what to resend.
    """

    def __init__(
        self,
        address: str,
        login: Credentials,
        options: WriterOptions,
        on_acked: Callable[[Outgoing, bool], None],
    ) -> None:
        self.address = address
        self.refused = self.resent = 0
        self._options, self._login = options, login
        self._host, self._port, self._encrypted = split_address(address)
        self._on_acked = on_acked
        self._header = Header()
        self._window = options.window
        self._connected = False
        self._failure: Exception | None = None
        self._pending: dict[int, Outgoing] = {}
        # A heap of messages to send before any new one, in their order.
        self._resend_queue: list[tuple[tuple[Any, ...], int, Outgoing]] = []
        self._serials = itertools.count()
        self._lacks_reader = False  # whether the last acknowledgement reported no reader
        self._recent: deque[tuple[float, Outgoing]] = deque()
        self._held_until = self._retry_at = 0.0
        self._backoff = 0.1
        self._progress = time.monotonic()
        self._client = self._open()

    def _open(self) -> Client:
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=self._options.name,
            protocol=MQTTProtocolVersion.MQTTv5,
        )
        login = self._login
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
                f"cannot reach the broker {self.address} of {self._options.label}:"
                f" {error}; start it, or give another address"
            ) from error

    def _connack(self, _: Any, __: Any, ___: Any, reason: Any, properties: Any) -> None:
        if reason.is_failure:
            text = f"cannot write to the broker {self.address}: it refuses the connection"
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
            if self._options.holds:
                self._lacks_reader = True
                self._hold(message)
                self._held_until = time.monotonic() + HOLD_S
                return
        elif reason.is_failure:
            self._failure = BrokerRefusedError(
                f"cannot publish to {message.topic} on {self.address}: {reason}"
            )
            return
        self._lacks_reader = False
        now = self._progress = time.monotonic()
        self._recent.append((now, message))
        while self._recent[0][0] < now - self._options.resend_s:
            self._recent.popleft()
        first, message.acked = not message.acked, True
        self._on_acked(message, first)

    def _hold(self, message: Outgoing) -> None:
        heapq.heappush(self._resend_queue, (message.order, next(self._serials), message))

    @property
    def ready(self) -> bool:
        """Whether a new message may be sent now."""
        waiting = self._resend_queue or self._lacks_reader
        return self._connected and not waiting and len(self._pending) < self._window

    @property
    def drained(self) -> bool:
        """Whether everything sent was acknowledged."""
        return not self._resend_queue and not self._pending

    def send(self, message: Outgoing) -> None:
        """Publish a message; if that is not possible now, it is resent later."""
        self._header.set(message.stamp)
        if self.drained and not self._lacks_reader:
            self._progress = time.monotonic()  # patience counts from the first pending message
        info = self._client.publish(message.topic, message.payload, qos=1, properties=self._header)
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
                f" since {self._options.patience_s:g} s; fix that and try again"
            )

    def _send_again(self, now: float) -> None:
        if not self._connected or now < self._held_until:
            return
        while self._resend_queue and len(self._pending) < self._window:
            self.send(heapq.heappop(self._resend_queue)[-1])
            if self._lacks_reader:  # one message is enough to find out whether there is a reader
                self._held_until = now + HOLD_S
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
