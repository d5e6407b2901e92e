"""paho's client, with limits on what it reads from a broker.

paho reads a packet of any size (256 MiB at most) into memory, and for each property of a packet it
copies all that follow: one packet of a hostile broker holds the service for minutes, and an honest
broker passes on such messages of any publisher.
"""

from __future__ import annotations

from typing import Any

from paho.mqtt.client import Client
from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion

LARGEST_ANSWER = 16 * 1024
"""The most bytes of a packet that carries no message: a broker's own have less than 100."""
MOST_PROPERTIES = 16 * 1024
"""The most bytes of the properties of a message: those of a speck sink have less than 100."""
_LARGEST_MESSAGE = 2 * 1024 * 1024
_PIECE = 256 * 1024
_PUBLISH = 0x30


class RefusedPacketError(Exception):
    """A broker sent a packet that is not taken. The text completes the sentence "it sends"."""


class BoundedClient(Client):
    """A message of more than `most_bytes` ends the connection. Without that limit the session may
    be that of a reader, who may subscribe at QoS 2: such messages, and larger ones than usual, are
    read but neither handed over nor acknowledged. They are for that reader."""

    def __init__(self, *args: Any, most_bytes: int | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._most_bytes = most_bytes

    def _sock_recv(self, bufsize: int) -> bytes:
        """paho asks for a packet's kind and length byte by byte, then for all that is left."""
        if self._in_packet["have_remaining"]:
            self._limit()
        return super()._sock_recv(min(bufsize, _PIECE))

    def _limit(self) -> None:
        size = self._in_packet["remaining_length"]
        most = self._most_bytes if self._is_message else LARGEST_ANSWER
        if most is None:
            del self._in_packet["packet"][_LARGEST_MESSAGE:]
        elif size > most:
            raise RefusedPacketError(f"a packet of {size} bytes; at most {most} are taken")

    @property
    def _is_message(self) -> bool:
        return bool(self._in_packet["command"] & 0xF0 == _PUBLISH)

    def _packet_handle(self) -> MQTTErrorCode:
        if not self._is_message:
            return super()._packet_handle()
        qos = self._in_packet["command"] >> 1 & 3
        is_own = self._most_bytes is not None
        if is_own and qos > 1:  # paho keeps it until it is released
            raise RefusedPacketError("a message at QoS 2, which was not asked for")
        most = self._most_bytes or _LARGEST_MESSAGE
        is_large = self._in_packet["remaining_length"] > most or self._properties > MOST_PROPERTIES
        if not (is_large or qos > 1):
            return super()._packet_handle()
        if is_own and qos == 1:  # else the broker sends nothing more, after some of them
            return self._send_puback(self._identifier)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    @property
    def _identifier(self) -> int:
        """The packet identifier of a message at QoS 1 or 2."""
        packet = self._in_packet["packet"]
        start = 2 + int.from_bytes(packet[:2], "big")
        return int.from_bytes(packet[start : start + 2], "big")

    @property
    def _properties(self) -> int:
        """How many bytes of properties the message says that it has; 0 if it has none."""
        if self._protocol != MQTTProtocolVersion.MQTTv5:
            return 0
        packet = self._in_packet["packet"]
        identifier = 2 if self._in_packet["command"] & 0x06 else 0
        start = 2 + int.from_bytes(packet[:2], "big") + identifier
        return sum((digit & 0x7F) << 7 * n for n, digit in enumerate(_length_at(packet, start)))


def _length_at(packet: bytearray, start: int) -> bytes:
    """The digits of the number at `start`, of which the last is below 128."""
    digits = bytes(packet[start : start + 4])
    end = next((n for n, digit in enumerate(digits, 1) if digit < 0x80), len(digits))
    return digits[:end]
