"""How one MQTT connection is opened, driven by the calling thread, and closed: it has no thread of
its own and no shared state.

Every wait polls the socket until the connection's deadline, so that a call takes only its round
trips, and any number of threads may have connections at once.
"""

from __future__ import annotations

import logging
import secrets
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self, cast
from urllib.parse import urlsplit

from paho.mqtt.client import Client, ConnectFlags, DisconnectFlags, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode

from binders.mqtt.answers import (
    PLAIN_HINT,
    TLS_HINT,
    LostError,
    NoAnswerError,
    explain_connack,
    explain_disconnect,
    explain_no_connection,
)
from binders.mqtt.client import BoundedClient, RefusedPacketError
from binders.mqtt.connect_options import ConnectOptions, pack
from binders.mqtt.properties import read
from speck.binding import ignore_request
from speck.errors import (
    BrokerRefusedError,
    PermanentError,
    SpeckError,
)
from speck.sites.credentials import Credentials

log = logging.getLogger(__name__)

V5 = MQTTProtocolVersion.MQTTv5
V311 = MQTTProtocolVersion.MQTTv311

KEEPALIVE_S = 60
_LONGEST_POLL_S = 15.0  # well below the keep-alive, whose PINGREQ is sent between polls
_DRAIN_S = 2.0


class Channel:
    """A connected MQTT client. Use it as a context manager, in one thread. What it can ask of the
    broker is in `Connection`.

    Opening raises UnreachableError (no answer until `deadline`, in `time.monotonic()`
    seconds), BrokerRefusedError or UnsupportedVersionError. With `eager` it does not wait for the
    broker's answer: MQTT lets a client send its requests right behind CONNECT, which saves a round
    trip, and a broker that refuses the connection ignores them. The first wait raises the refusal,
    and `session_present` is known after it.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        options: ConnectOptions,
        deadline: float,
        version: MQTTProtocolVersion = V5,
        on_message: Callable[[MQTTMessage], None] | None = None,
        on_request: Callable[[], None] = ignore_request,
        *,
        eager: bool = False,
    ) -> None:
        self.address = address
        self._on_request = on_request
        self.version = version
        self.session_present = False
        self.connack: dict[str, Any] = {}
        self.opened_at = time.monotonic()
        self.deadline = deadline
        self._connack_code: ReasonCode | None = None
        self._credentials = credentials
        self._tls: ssl.SSLContext | None = None
        self._is_accepted = False
        self._is_eager = eager
        self._failure: str | None = None
        self._failure_kind: type[SpeckError] = LostError
        self._pubacks: dict[int, ReasonCode] = {}
        self._subacks: dict[int, list[ReasonCode]] = {}
        self._lingers = options.lingers
        self._has_request = False
        """Whether a request waits to be sent."""
        self._on_message = on_message
        self._client = self._make_client(options, credentials)
        try:
            self._connect(options, credentials)
            self.opened_at = time.monotonic()
            if not eager:
                self._accept()
        except BaseException:
            self.drop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close() if kind is None else self.drop()

    @contextmanager
    def dropped_on_error(self) -> Iterator[None]:
        """Drop the connection if the body raises; else it stays open."""
        try:
            yield
        except BaseException:
            self.drop()
            raise

    @property
    def is_open(self) -> bool:
        """Whether the connection was open when it was last used."""
        sock = self._client.socket()
        return self._failure is None and sock is not None and sock.fileno() >= 0

    def is_like(self, version: MQTTProtocolVersion, credentials: Credentials) -> bool:
        """Whether it was opened with this version and these credentials, and the certificates that
        their files hold now."""
        if version != self.version or credentials != self._credentials:
            return False
        try:
            return self._tls is None or credentials.context("mqtt") is self._tls
        except PermanentError:
            return False

    def wait(self, done: Callable[[], bool], what: str) -> None:
        """Drive the connection until `done()`; `what` completes the message "cannot ..."."""
        self._accept()
        self._drive(done, what)

    def _drive(self, done: Callable[[], bool], what: str) -> None:
        while not done():
            if self._failure is not None:
                raise self._failure_kind(f"cannot {what} at {self.address}: {self._failure}")
            remaining = self.deadline - time.monotonic()
            if remaining <= 0:
                raise NoAnswerError(f"cannot {what} at {self.address}: no answer in time")
            self._turn(min(remaining, _LONGEST_POLL_S))

    def close(self) -> None:
        """Disconnect; a connection that lingers waits until the broker has closed its side. Never
        raises."""
        sock = cast("socket.socket | None", self._client.socket())
        if sock is None or self._failure is not None:
            self.drop()
            return
        try:
            self._client.disconnect()
            self._has_request = True
            self._flush()
            while self._client.want_write() and self.is_open:
                if time.monotonic() > self.deadline:
                    break
                self._turn(max(0.0, self.deadline - time.monotonic()))
            # A close with unread input resets the connection, and the reset may overtake the
            # DISCONNECT. So the socket stays open until the broker has closed its side.
            sock.shutdown(socket.SHUT_WR)
            if self._lingers:
                _drain(sock, min(_DRAIN_S, self.deadline - time.monotonic()))
        except OSError as error:
            log.debug("broker at %s: unclean disconnect: %s", self.address, error)
        self.drop()

    def _make_client(self, options: ConnectOptions, credentials: Credentials) -> Client:
        client = BoundedClient(
            CallbackAPIVersion.VERSION2,
            most_bytes=options.most_bytes,
            client_id=options.client_id,
            clean_session=None if self.version == V5 else options.clean,
            protocol=self.version,
            reconnect_on_failure=False,
            manual_ack=options.manual_ack,
        )
        client.max_queued_messages_set(0)
        client.on_connect = self._on_connect
        client.on_disconnect = self._on_disconnect
        client.on_publish = self._on_publish
        client.on_subscribe = self._on_subscribe
        client.on_socket_open = _set_no_delay
        client.on_message = self._hand_over
        if credentials.user is not None:
            client.username_pw_set(credentials.user, credentials.password)
        return client

    def _connect(self, options: ConnectOptions, credentials: Credentials) -> None:
        scheme, host, port = _split(self.address)
        if scheme == "ssl" or credentials.tls.ca is not None:
            try:
                self._tls = credentials.context("mqtt")
                self._client.tls_set_context(self._tls)
            except PermanentError as error:
                raise BrokerRefusedError(f"{error} (for the broker {self.address})") from error
        self._client.connect_timeout = max(0.001, self.deadline - time.monotonic())
        try:
            if self.version == V5:
                self._client.connect(
                    host, port, KEEPALIVE_S, clean_start=options.clean, properties=pack(options)
                )
            else:
                self._client.connect(host, port, KEEPALIVE_S)
        except OSError as error:
            raise explain_no_connection(error, self.address, credentials) from error
        self._has_request = True

    def _accept(self) -> None:
        """Wait until the broker has accepted the connection. Raises what opening it raises."""
        if self._is_accepted:
            return
        credentials = self._credentials
        try:
            self._drive(lambda: self._connack_code is not None, "connect")
        except LostError as error:
            if self._is_eager:
                self._raise_refusal()
            if self._tls is not None and credentials.tls.cert is not None:
                raise
            hint = PLAIN_HINT if self._tls is None else TLS_HINT
            raise LostError(f"{error}; {hint}") from error
        assert self._connack_code is not None
        if self._connack_code.is_failure:
            raise explain_connack(self._connack_code, self.address, credentials)
        self._is_accepted = True

    def _raise_refusal(self) -> None:
        """Raise why the broker accepts no connection with these credentials, if it does not.

        A broker that refuses a connection closes it. What was sent behind CONNECT then makes TCP
        reset the connection, and a reset discards the refusal if it was not read before.
        """
        visitor = ConnectOptions("speck-visit-" + secrets.token_hex(8), lingers=False)
        with type(self)(
            self.address,
            self._credentials,
            visitor,
            self.deadline,
            self.version,
            on_request=self._on_request,
        ):
            pass

    def _turn(self, timeout_s: float) -> None:
        """Send what waits, wait up to `timeout_s` for the socket, then let paho process its input.

        It uses `poll`, since `select` (used by paho's own loop) fails for more than 1024 files.
        """
        self._flush()
        sock = self._client.socket()
        if sock is None:
            self._failure = self._failure or "the connection was lost"
            return
        pending = isinstance(sock, ssl.SSLSocket) and sock.pending() > 0
        poller = select.poll()
        poller.register(
            sock.fileno(),
            select.POLLIN | (select.POLLOUT if self._client.want_write() else 0),
        )
        events = poller.poll(0 if pending else timeout_s * 1000)
        flags = events[0][1] if events else 0
        if pending or flags & ~select.POLLOUT:
            self._read()
        self._client.loop_misc()

    def _flush(self) -> None:
        """Send what waits, as far as the kernel takes it."""
        if self._client.want_write() and self._client.socket() is not None:
            self._client.loop_write()
            if self._has_request and not self._client.want_write():
                self._has_request = False
                self._on_request()

    def _read(self) -> None:
        """Let paho read; what is no MQTT, or too much of it, ends the connection."""
        try:
            self._client.loop_read()
        except SpeckError:  # of the caller's own `on_message`
            raise
        except RefusedPacketError as error:
            self._end(f"it sends {error}")
        except Exception as error:
            self._end(f"it sends what is not MQTT ({type(error).__name__}: {error})")

    def _end(self, why: str) -> None:
        self.drop()
        self._failure, self._failure_kind = why, BrokerRefusedError

    def _on_connect(
        self,
        _client: Client,
        _data: Any,
        flags: ConnectFlags,
        reason: ReasonCode,
        properties: Properties | None,
    ) -> None:
        self._connack_code = reason
        self.session_present = flags.session_present
        self.connack = read(properties) if properties else {}

    def _on_disconnect(
        self,
        _client: Client,
        _data: Any,
        flags: DisconnectFlags,
        reason: ReasonCode,
        _properties: Properties | None,
    ) -> None:
        if flags.is_disconnect_packet_from_server:
            self._failure, self._failure_kind = explain_disconnect(reason)
        else:
            self._failure = "the connection was lost"

    def _hand_over(self, _client: Client, _data: Any, message: MQTTMessage) -> None:
        if self._on_message is not None:
            self._on_message(message)

    def _on_publish(
        self, _client: Client, _data: Any, mid: int, reason: ReasonCode, _properties: Properties
    ) -> None:
        self._pubacks[mid] = reason

    def _on_subscribe(
        self,
        _client: Client,
        _data: Any,
        mid: int,
        reasons: list[ReasonCode],
        _properties: Properties | None,
    ) -> None:
        self._subacks[mid] = reasons

    def drop(self) -> None:
        sock = self._client.socket()
        if sock is not None:
            sock.close()


def _split(address: str) -> tuple[str, str, int]:
    """Scheme, host and port of a broker's address. Raises BrokerRefusedError."""
    parts = urlsplit(address)
    if parts.scheme not in ("tcp", "ssl") or parts.hostname is None:
        raise BrokerRefusedError(
            f"cannot use {address} as an MQTT broker: write tcp://host:1883 or ssl://host:8883"
        )
    return parts.scheme, parts.hostname, parts.port or 1883


def _drain(sock: socket.socket, seconds: float) -> None:
    """Read until the other side has closed the connection, or goes on sending for too long."""
    end = time.monotonic() + seconds
    while (remaining := end - time.monotonic()) > 0:
        sock.settimeout(remaining)
        if not sock.recv(65536):
            return


def _set_no_delay(_client: Client, _data: Any, sock: Any) -> None:
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
