"""Publishes to a topic of MQTT, and hears what the broker has retained of the link."""

from __future__ import annotations

import struct
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from speck_link.arguments import Contract, Link
from speck_link.mqtt.connection import Connection
from speck_link.transport import Outcome, WriterListener

_NO_READER, _TOO_LARGE = 0x10, 0x95
_HEADERS = 1 + 4 + 2 + 2 + 4 + 3
_LARGEST_PACKET = 268_435_455


class Header(Properties):
    """The properties of a message, packed here: paho's general packing takes as long as all the
    rest."""

    packed: bytes

    def __init__(self, stamp: str | None, content_type: str | None) -> None:
        super().__init__(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
        body = b""
        if content_type is not None:
            body += b"\x03" + _text(content_type)
        if stamp is not None:
            body += b"\x26\x00\x05speck" + _text(stamp)
        size = len(body)
        length = bytes([size]) if size < 128 else bytes([size % 128 | 128, size // 128])
        object.__setattr__(self, "packed", length + body)

    def pack(self) -> bytes:
        return self.packed


def _text(text: str) -> bytes:
    encoded = text.encode()
    return struct.pack("!H", len(encoded)) + encoded


class MqttWriter(Connection):
    """A message's key is its packet id."""

    takes_batches = True
    keeps_log = False
    size_setting = "the broker's limit of packets (Mosquitto: max_packet_size, message_size_limit)"

    def __init__(self, contract: Contract, link: Link, listener: WriterListener) -> None:
        super().__init__(link)
        self._contract, self._listener = contract, listener
        self._fence: int | None = None
        self._announcing: int | None = None
        self.most_in_flight = contract.sink_window
        self.max_payload = _LARGEST_PACKET
        self.bytes_sent = 0

    # -- the connection

    def _describe(self, properties: Any) -> bool:
        properties.ReceiveMaximum = 16
        return True

    def _open(self, client: Client) -> None:
        client.on_message = self._receive
        client.on_subscribe = self._subscribed
        client.on_publish = self._acknowledged

    def _admitted(self, client: Client, session_present: bool, properties: Any) -> None:
        self._listener.admit()
        maximum = getattr(properties, "ReceiveMaximum", 65_535)
        self.most_in_flight = min(self._contract.sink_window, maximum)
        packet = getattr(properties, "MaximumPacketSize", _LARGEST_PACKET)
        stamp = len(self._contract.producer.encode()) + 60
        self.max_payload = packet - _HEADERS - len(self.link.topic.encode()) - stamp
        readers, sent, sessions = self._listener.status.topics
        client.subscribe(
            [
                (readers, SubscribeOptions(qos=1)),
                (sent, SubscribeOptions(qos=0)),
                (sessions, SubscribeOptions(qos=1)),
            ]
        )
        # what is retained comes before the acknowledgement of the next subscription
        again = SubscribeOptions(qos=0, retainHandling=2)
        _, self._fence = client.subscribe([(sent, again)])

    def _subscribed(self, client: Any, _: Any, packet: int, __: Any, ___: Any) -> None:
        if client is self.client and packet == self._fence:
            self.ready, self.problem = True, None
            self._listener.begin()

    def _receive(self, client: Any, _: Any, message: MQTTMessage) -> None:
        if self.client is not None and client is self.client:
            self.client.ack(message.mid, message.qos)
            self._listener.hear(message.topic, bytes(message.payload))

    def _lost(self) -> None:
        self._announcing = None
        self._listener.start_over(is_guilty=self.is_guilty)

    # -- for the sink

    def send(self, payload: bytes, stamp: str, content_type: str | None) -> int | None:
        assert self.client is not None
        numbered = self._contract.is_acknowledged
        header = Header(stamp, content_type)
        info = self.client.publish(self.link.topic, payload, qos=int(numbered), properties=header)
        self.bytes_sent += len(payload) + len(header.packed) + len(self.link.topic) + 6
        if numbered and info.rc != MQTTErrorCode.MQTT_ERR_SUCCESS:
            self._drop("a message cannot be sent")
        return info.mid if numbered else None

    def _acknowledged(self, client: Any, _: Any, packet: int, reason: Any, __: Any) -> None:
        if client is not self.client:
            return
        if packet == self._announcing:
            self._announcing = None
        elif reason.value == _NO_READER:
            self._listener.settle(packet, Outcome.UNREAD)
        elif reason.value == _TOO_LARGE:
            self._listener.settle(packet, Outcome.TOO_LARGE, str(reason))
        elif reason.is_failure:
            self._listener.settle(packet, Outcome.REFUSED, str(reason))
        else:
            self._listener.settle(packet, Outcome.TAKEN)

    def report(self, payload: bytes) -> bool:
        topic = f"speck/sent/{self.link.client_id}"
        self._announcing = self._publish_beside(topic, payload, retained=True)
        return self._announcing is not None

    @property
    def is_reporting(self) -> bool:
        return self._announcing is not None
