"""paho's client with its own way of sending and reading, which has limits and takes less time.

paho reads a packet of any size (256 MiB at most) into memory, and for each property of a packet it
copies all that follow: one packet of a hostile broker holds the service for minutes, and an honest
broker passes on such messages of any publisher.

It also makes a call of the kernel for each byte of a packet's header, and one for each packet that
it sends. Here all that has come is read at once, and what is to be sent goes out together when the
connection is driven: CONNECT, the requests behind it, and acknowledgements.
"""

from __future__ import annotations

import time
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.exception import MalformedPacket

from binders.mqtt import properties
from binders.mqtt.packets import PacketReader

LARGEST_ANSWER = 16 * 1024
"""The most bytes of a packet that carries no message: a broker's own have less than 100."""
MOST_PROPERTIES = 16 * 1024
"""The most bytes of the properties of a message: those of a speck sink have less than 100."""
_LARGEST_MESSAGE = 2 * 1024 * 1024
_PIECE = 64 * 1024
"""The most bytes that are handled before the deadline of the connection is looked at again."""
_PUBLISH = 0x30

properties.share_tables()


class RefusedPacketError(Exception):
    """A broker sent a packet that is not taken. The text completes the sentence "it sends"."""


class BoundedClient(Client):
    """A message of more than `most_bytes` ends the connection. Without that limit the session may
    be that of a reader, who may subscribe at QoS 2: such messages, and larger ones than usual, are
    read but neither handed over nor acknowledged. They are for that reader."""

    def __init__(self, *args: Any, most_bytes: int | None, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._most_bytes = most_bytes
        self._unsent = bytearray()
        self._reader = PacketReader(self._keeps)

    # -- sending --------------------------------------------------------------------------

    def _packet_queue(
        self, command: int, packet: bytes | bytearray, mid: int, qos: int, info: Any = None
    ) -> MQTTErrorCode:
        """Let a packet wait for the next `loop_write`."""
        self._unsent += packet
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def want_write(self) -> bool:
        return bool(self._unsent)

    def _packet_write(self) -> MQTTErrorCode:
        try:
            while self._unsent:
                del self._unsent[: self._sock_send(self._unsent)]
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_AGAIN
        except OSError:
            return MQTTErrorCode.MQTT_ERR_CONN_LOST
        self._last_msg_out = time.monotonic()
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    # -- reading --------------------------------------------------------------------------

    def loop_read(self, max_packets: int = 1) -> MQTTErrorCode:
        """Read what has come, and handle the packets that are complete."""
        try:
            piece = self._sock_recv(_PIECE)
        except BlockingIOError:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        except OSError:
            piece = b""
        if not piece:
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_CONN_LOST)
        self._last_bytes_received = time.monotonic()
        try:
            for command, packet in self._reader.read(piece):
                self._in_packet |= {
                    "command": command,
                    "packet": bytearray(packet),
                    "remaining_length": len(packet),
                }
                code = self._packet_handle()
                if code != MQTTErrorCode.MQTT_ERR_SUCCESS:
                    return self._loop_rc_handle(code)
                if self._sock is None:
                    break
        except MalformedPacket:
            return self._loop_rc_handle(MQTTErrorCode.MQTT_ERR_PROTOCOL)
        return MQTTErrorCode.MQTT_ERR_SUCCESS

    def _keeps(self, command: int, size: int) -> bool:
        is_message = command & 0xF0 == _PUBLISH
        most = self._most_bytes if is_message else LARGEST_ANSWER
        if most is not None and size > most:
            raise RefusedPacketError(f"a packet of {size} bytes; at most {most} are taken")
        return size <= _LARGEST_MESSAGE or self._most_bytes is not None

    def _packet_handle(self) -> MQTTErrorCode:
        command, packet = self._in_packet["command"], self._in_packet["packet"]
        if command & 0xF0 != _PUBLISH:
            return super()._packet_handle()
        qos = command >> 1 & 3
        is_own = self._most_bytes is not None
        if is_own and qos > 1:  # paho keeps it until it is released
            raise RefusedPacketError("a message at QoS 2, which was not asked for")
        topic_end = 2 + int.from_bytes(packet[:2], "big")
        start = topic_end + (2 if qos else 0)
        identifier = int.from_bytes(packet[topic_end:start], "big")
        if qos > 1 or self._count_properties(packet, start) > MOST_PROPERTIES:
            if is_own and qos == 1:  # else the broker sends nothing more, after some of them
                return self._send_puback(identifier)
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        if self._protocol == MQTTProtocolVersion.MQTTv5:
            if packet[start : start + 1] != b"\0":
                return super()._packet_handle()
            start += 1
        if not 2 < topic_end <= start <= len(packet):
            raise MalformedPacket("a message without a topic")
        message = MQTTMessage(identifier, bytes(packet[2:topic_end]))
        message.qos, message.retain = qos, bool(command & 1)
        message.payload = bytes(packet[start:])
        return self._hand_over(message)

    def _hand_over(self, message: MQTTMessage) -> MQTTErrorCode:
        if self.on_message is not None:
            self.on_message(self, self._userdata, message)
        if not message.qos or self._manual_ack:
            return MQTTErrorCode.MQTT_ERR_SUCCESS
        return self._send_puback(message.mid)

    def _count_properties(self, packet: bytearray, start: int) -> int:
        """How many bytes of properties a message says that it has; 0 if it has none."""
        if self._protocol != MQTTProtocolVersion.MQTTv5:
            return 0
        number = 0
        for count, digit in enumerate(packet[start : start + 4]):
            number |= (digit & 0x7F) << 7 * count
            if digit < 0x80:
                break
        return number
