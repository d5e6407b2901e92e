"""Reads a session of MQTT: acknowledges what checkpoints cover, announces what was taken."""

from __future__ import annotations

import sys
from collections import deque
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.subscribeoptions import SubscribeOptions

from speck_link.arguments import Contract
from speck_link.mqtt.connection import Connection
from speck_link.transport import Incoming, Position, ReaderListener, TakenReport

SESSION_S = 30 * 24 * 3600
MOST_WAITING = 16 << 20
_OVERHEAD = 500
"""About what a message takes in memory beside its payload: paho's own with its properties, which is
not kept, some 5 kB."""


class MqttReader(Connection):
    """A message's place is its packet id and its QoS."""

    def __init__(self, contract: Contract, listener: ReaderListener) -> None:
        super().__init__(contract.source)
        self._contract, self._listener = contract, listener
        self._waiting: deque[Incoming] = deque()
        self._waiting_bytes = 0
        self._topic = self.link.topic
        self._marks = f"speck/marks/{self.link.client_id}"
        self._unacknowledged: deque[tuple[int, ...]] = deque()
        self._session_made = False
        self._subscription: int | None = None
        self._announcing: int | None = None
        self.dropped = self.sessions_lost = 0

    # -- the connection

    def _describe(self, properties: Any) -> bool:
        properties.SessionExpiryInterval = SESSION_S
        properties.ReceiveMaximum = self._contract.receive_maximum
        return False

    def _open(self, client: Client) -> None:
        client.on_message = self._receive
        client.on_subscribe = self._subscribed
        client.on_publish = self._published

    def _published(self, client: Any, _: Any, packet: int, __: Any, ___: Any) -> None:
        if client is self.client and packet == self._announcing:
            self._announcing = None

    def _admitted(self, client: Client, session_present: bool, properties: Any) -> None:
        self._session_made = not session_present
        if self._session_made and self._contract.is_acknowledged:
            self.sessions_lost += 1
            print(f"the session of {self.link} is lost, or was never made", file=sys.stderr)
        qos = 1 if self._contract.is_acknowledged else 0
        options = [
            (self._topic, SubscribeOptions(qos=qos, retainHandling=2)),
            (self._marks, SubscribeOptions(qos=1, retainHandling=2)),
        ]
        _, self._subscription = client.subscribe(options)

    def _subscribed(self, client: Any, _: Any, packet: int, reasons: Any, __: Any) -> None:
        if client is not self.client or packet != self._subscription:
            return
        if reasons[0].is_failure:
            self._drop(f"it refuses the subscription: {reasons[0]}")
            return
        self.ready, self.problem = True, None
        if self._session_made:
            self._session_made = False
            if self._contract.is_acknowledged:
                self._publish_beside(f"speck/readers/{self._topic}", b"again", retained=False)
            session = f"speck/sessions/{self._topic}/{self.link.client_id}"
            self._publish_beside(session, b"made", retained=True)

    def _lost(self) -> None:
        self._waiting.clear()
        self._unacknowledged.clear()
        self._waiting_bytes = 0
        self._announcing = None
        self._listener.start_over()

    def _receive(self, client: Any, _: Any, message: MQTTMessage) -> None:
        if client is not self.client:
            return
        is_mark = message.topic == self._marks
        if self._waiting_bytes > MOST_WAITING and message.qos == 0 and not is_mark:
            self.dropped += 1
            return
        properties = message.properties
        stamp = dict(getattr(properties, "UserProperty", ())).get("speck")
        content_type = getattr(properties, "ContentType", None)
        payload = bytes(message.payload)
        place = message.mid, message.qos
        self._waiting.append(Incoming(payload, stamp, content_type, is_mark, place))
        self._waiting_bytes += len(payload) + _OVERHEAD

    # -- for the source

    @property
    def is_full(self) -> bool:
        return self._waiting_bytes > MOST_WAITING

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def poll(self) -> Incoming:
        message = self._waiting.popleft()
        self._waiting_bytes -= len(message.payload) + _OVERHEAD
        return message

    def keep(self, message: Incoming) -> None:
        if message.is_mark or message.place[1]:
            self._unacknowledged.append(message.place)

    def position(self) -> Position:
        return {}

    def acknowledge(self) -> None:
        while self._unacknowledged and self.client is not None:
            self.client.ack(*self._unacknowledged.popleft())

    def report(self, report: TakenReport) -> bool:
        payload = report.taken.announce(report.at_ms, report.checkpoint, self.dropped, report.mark)
        topic = f"speck/taken/{self.link.client_id}"
        self._announcing = self._publish_beside(topic, payload, retained=True)
        return self._announcing is not None

    @property
    def has_reported(self) -> bool:
        """Also all acknowledgements are on their way."""
        return self._announcing is None and not self.wants_write()
