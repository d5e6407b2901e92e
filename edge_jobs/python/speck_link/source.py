"""Reads a link: takes records once, acknowledges at checkpoints, announces what was taken."""

from __future__ import annotations

import re
import sys
import time
from collections import deque
from typing import Any, NamedTuple

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.subscribeoptions import SubscribeOptions

from speck_link.arguments import Contract
from speck_link.batches import FRAMED, ZSTD, BatchError, unpack
from speck_link.connection import Connection
from speck_link.taken import TakenNumbers, parse_number, split_stamp

SESSION_S = 30 * 24 * 3600
MOST_WAITING = 16 << 20
_MARK = re.compile(rb"[0-9a-f]{1,32}")
_OVERHEAD = 500
"""About what a message takes in memory beside its payload."""


class Waiting(NamedTuple):
    """A message that waits to be taken: paho's own with its properties is some 5 kB."""

    packet: int
    qos: int
    is_mark: bool
    stamp: str | None
    content_type: str | None
    payload: bytes


class Source(Connection):
    """The reader of a link."""

    def __init__(self, contract: Contract, taken: TakenNumbers) -> None:
        super().__init__(contract.source)
        self._contract = contract
        self.taken = taken
        taken.use_link(self.link.client_id)
        taken.take_over(contract.taken)
        self._waiting: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._topic = self.link.topic
        self._marks = f"speck/marks/{self.link.client_id}"
        self._unacknowledged: deque[tuple[int, int]] = deque()
        self._covered = 0
        self._leaving = False
        self._session_made = False
        self._announced: tuple[int, str | None] | None = None
        self._subscription: int | None = None
        self._announcing: int | None = None
        self.mark: str | None = None
        self.records_in = self.bytes_in = self.repeats = self.unreadable = self.dropped = 0
        self.sessions_lost = 0

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
        """What is not acknowledged comes again over the next connection."""
        self._waiting.clear()
        self._unacknowledged.clear()
        self._waiting_bytes = self._covered = 0
        self._leaving = False
        self._announced = self._announcing = None

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
        self._waiting.append(
            Waiting(message.mid, message.qos, is_mark, stamp, content_type, payload)
        )
        self._waiting_bytes += len(payload) + _OVERHEAD

    @property
    def is_full(self) -> bool:
        """Whether more is here than should be: nothing is read from the socket then."""
        return self._waiting_bytes > MOST_WAITING

    # -- records

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def take(self) -> list[bytes]:
        """The new records of the next message."""
        message = self._waiting.popleft()
        self._waiting_bytes -= len(message.payload) + _OVERHEAD
        if message.is_mark:
            self._unacknowledged.append((message.packet, message.qos))
            if _MARK.fullmatch(message.payload):
                self.mark = message.payload.decode()
            return []
        self.bytes_in += len(message.payload) + len(self._topic) + len(message.stamp or "") + 20
        records = self._open_message(message)
        if not self._leaving and message.qos:
            self._unacknowledged.append((message.packet, message.qos))
        return records

    def _open_message(self, message: Waiting) -> list[bytes]:
        if message.content_type not in (FRAMED, ZSTD):
            prefix, number = split_stamp(message.stamp)
            return [message.payload] if self._is_new(prefix, number) else []
        prefix, first, count = _split_batch(message.stamp)
        try:
            payloads = unpack(message.content_type, message.payload, count)
        except BatchError as error:
            if not self.unreadable:
                print(f"{self.link} has a message that is left out: {error}", file=sys.stderr)
            self.unreadable += 1
            return []
        numbers = range(first, first + len(payloads)) if count else [-1] * len(payloads)
        pairs = zip(payloads, numbers, strict=True)
        return [payload for payload, number in pairs if self._is_new(prefix, number)]

    def _is_new(self, prefix: str, number: int) -> bool:
        """From the first message that is beyond the numbers to read nothing is acknowledged, so
        that all of it comes again at the next start."""
        until = self._contract.until
        if not until.is_ever:
            included = until.includes(prefix, number) if number > 0 else not self._leaving
            if not included:
                self._leaving = True
                return False
        self.records_in += 1
        is_new = self.taken.take(prefix, number)
        self.repeats += not is_new
        return is_new

    # -- checkpoints

    def cover(self) -> int:
        """How many messages of this connection a checkpoint that begins now covers."""
        return self._covered + len(self._unacknowledged)

    def acknowledge(self, upto: int, connection: int) -> None:
        """A checkpoint is complete that covers so many messages of a connection."""
        if connection != self.connections or self.client is None:
            return
        while self._covered < upto and self._unacknowledged:
            packet, qos = self._unacknowledged.popleft()
            self.client.ack(packet, qos)
            self._covered += 1

    def announce(self, checkpoint: int) -> None:
        """Announce what a complete checkpoint covers, if that is new."""
        content = self.taken.messages, self.mark
        if content == self._announced or not self.ready:
            return
        at_ms = int(time.time() * 1000)
        payload = self.taken.announce(at_ms, checkpoint, self.dropped, self.mark)
        topic = f"speck/taken/{self.link.client_id}"
        self._announcing = self._publish_beside(topic, payload, retained=True)
        if self._announcing is not None:
            self._announced = content

    @property
    def has_told_all(self) -> bool:
        """Whether the last announcement has arrived, and all acknowledgements are on their way."""
        return self._announcing is None and not self.wants_write()


def _split_batch(stamp: str | None) -> tuple[str, int, int | None]:
    """Prefix, first number and count of the stamp of a batch; the count is None for a foreign
    one."""
    prefix, _, numbers = (stamp or "").rpartition("/")
    first_text, _, count_text = numbers.partition("+")
    first, count = parse_number(first_text), parse_number(count_text)
    if not prefix or first < 1 or not 1 <= count <= 10_000:
        return "", -1, None
    return f"{prefix}/", first, count
