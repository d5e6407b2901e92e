"""One client of one link, kept connected, in its user's thread.

Each connection has a new client of paho's: what a broker that was killed says of packet ids of the
one before means other messages.
"""

from __future__ import annotations

import os
import random
import select
import ssl
import time
from contextlib import suppress
from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from speck_link.arguments import Link, via
from speck_link.credentials import find_credentials

KEEP_ALIVE_S = 15
_CONNECT_S = 5.0
_PACKETS = 100
_BAD_PACKET = (0x81, 0x82, 0x95, 0x99)
"""Reasons of DISCONNECT that the same packet meets again."""
_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.1, 5.0


class Connection:
    """A base: `_open` makes a client ready, `_admitted` is called when the broker accepts it."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.problem: str | None = "not connected yet"
        """Why nothing gets through, in words; None: nothing is wrong."""
        self.ready = False
        self.connections = 0
        self.client: Client | None = None
        self._pause = _FIRST_PAUSE_S
        self.is_guilty = False
        """Whether the broker ended the connection because of a packet that it was sent."""
        self._retry_at = 0.0
        self._admitted_at: float | None = None
        self._began = 0.0

    # -- for the loop

    def fileno(self) -> int:
        """The number of the socket; -1 while there is none."""
        socket = self.client.socket() if self.client is not None else None
        return int(socket.fileno()) if socket is not None else -1

    @property
    def is_full(self) -> bool:
        return False

    def wants_write(self) -> bool:
        return self.client is not None and self.client.want_write()

    def read(self) -> None:
        """Read the packets that are there, up to some."""
        for _ in range(_PACKETS):
            if self.client is None:
                return
            self.client.loop_read()
            socket: Any = self.client.socket()
            if socket is None:
                return
            buffered = isinstance(socket, ssl.SSLSocket) and socket.pending() > 0
            if not buffered and not select.select([socket], (), (), 0)[0]:
                return

    def write(self) -> None:
        if self.client is not None:
            self.client.loop_write()

    def tend(self, now: float) -> None:
        """Keep the connection alive, or open another one when it is time."""
        if self.fileno() >= 0:
            assert self.client is not None
            self.client.loop_misc()
            if self._admitted_at is None and now - self._began > 2 * _CONNECT_S:
                self._drop("the broker does not answer")
        if self.fileno() < 0:
            if self.client is not None:
                self._lose()
            if now >= self._retry_at:
                self._connect(now)

    def disconnect(self) -> None:
        """Say good-bye; what was sent before gets there before."""
        if self.client is not None:
            self.client.disconnect()
            with suppress(OSError, ValueError):
                self.client.loop_write()

    # -- inside

    def _connect(self, now: float) -> None:
        self._pause = min(_MOST_PAUSE_S, 2 * self._pause)
        self._retry_at = now + self._pause * random.uniform(0.5, 1.0)
        self._began = now
        host, port, encrypted = via(self.link.broker, os.environ.get("SPECK_MQTT_VIA", ""))
        client = Client(
            CallbackAPIVersion.VERSION2,
            client_id=self.link.client_id,
            protocol=MQTTProtocolVersion.MQTTv5,
            manual_ack=True,
        )
        client.connect_timeout = _CONNECT_S
        client.max_inflight_messages_set(65_535)
        client.max_queued_messages_set(0)
        client.on_connect = self._connack
        client.on_disconnect = self._ended
        self._open(client)
        try:
            self._log_in(client, encrypted)
            self._greet(client, host, port)
        except (OSError, ValueError, ssl.SSLError) as error:
            self.problem = f"cannot reach the broker {self.link.broker}: {error}"
            return
        self.client = client

    def _log_in(self, client: Client, encrypted: bool) -> None:
        own = via(self.link.broker, "")[:2]
        credentials = find_credentials(lambda address: via(address, "")[:2] == own)
        if credentials.user is not None:
            client.username_pw_set(credentials.user, credentials.password)
        if encrypted or credentials.has_ca:
            client.tls_set_context(credentials.make_context())

    def _greet(self, client: Client, host: str, port: int) -> None:
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        clean_start = self._describe(properties)
        client.connect(host, port, KEEP_ALIVE_S, clean_start=clean_start, properties=properties)

    def _connack(self, client: Any, _: Any, flags: Any, reason: Any, properties: Any) -> None:
        if self.client is None or client is not self.client:
            return
        if reason.is_failure:
            self.problem = f"cannot use the broker {self.link.broker}: it answers {reason}"
            return
        self._admitted_at, self._pause = time.monotonic(), _FIRST_PAUSE_S
        self.connections += 1
        self._admitted(self.client, bool(flags.session_present), properties)

    def _ended(self, client: Any, _: Any, flags: Any, reason: Any, __: Any) -> None:
        if client is self.client and self._admitted_at is not None:
            self.problem = f"cannot reach the broker {self.link.broker}: {reason}"
            self.is_guilty = flags.is_disconnect_packet_from_server and reason.value in _BAD_PACKET

    def _drop(self, problem: str) -> None:
        """End a connection that is of no use."""
        self.problem = f"cannot use the broker {self.link.broker}: {problem}"
        if self.client is not None:
            self.client.disconnect()
            with suppress(OSError, ValueError):
                self.client.loop_write()
            socket = self.client.socket()
            if socket is not None:
                socket.close()

    def _lose(self) -> None:
        self._lost()
        self.client, self.ready, self._admitted_at, self.is_guilty = None, False, None, False

    def _publish_beside(self, topic: str, payload: bytes, *, retained: bool) -> int | None:
        """Publish something beside the data, and return its packet id; None: it did not go."""
        if self.client is None:
            return None
        info = self.client.publish(topic, payload, qos=1, retain=retained)
        return info.mid if info.rc == MQTTErrorCode.MQTT_ERR_SUCCESS else None

    # -- what differs

    def _open(self, client: Client) -> None: ...
    def _describe(self, properties: Properties) -> bool:
        """Fill in CONNECT; returns whether the session starts clean."""
        raise NotImplementedError

    def _admitted(self, client: Client, session_present: bool, properties: Any) -> None:
        raise NotImplementedError

    def _lost(self) -> None: ...
