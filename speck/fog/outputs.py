"""Reads the output of an application, under the session reserved for it."""

from __future__ import annotations

import json
import threading
from types import TracebackType
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from speck.errors import PermanentError, UnreachableError
from speck.fog.publisher import parse_broker
from speck.model.batches import read_records
from speck.model.values import JsonObject
from speck.sites.credentials import Credentials
from speck.tls.certificates import explain_refusal

_EXPIRY_S = 30 * 24 * 3600
_AT_ONCE = 1000


class OutputReader:
    """Collects the JSON records of one topic until it is closed; the session continues to exist.

    `broker` is `tcp://host:port` or `ssl://host:port`. Payloads that are not JSON are collected in
    `unreadable`.
    """

    def __init__(self, broker: str, topic: str, client_id: str, login: Credentials | None = None):
        self.topic = topic
        self.unreadable: list[bytes] = []
        self._records: list[JsonObject] = []
        self._lock = threading.Lock()
        host, port, encrypted = parse_broker(broker)
        login = login or Credentials()
        self._client = Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5
        )
        if login.user is not None:
            self._client.username_pw_set(login.user, login.password)
        if encrypted or login.tls.ca is not None:
            self._client.tls_set_context(login.context("mqtt"))
        self._client.on_connect = self._subscribe
        self._client.on_message = self._keep
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = _EXPIRY_S
        properties.ReceiveMaximum = _AT_ONCE
        try:
            self._client.connect(host, port, clean_start=False, properties=properties)
        except OSError as error:
            reason = explain_refusal(error, host, port) or error
            raise UnreachableError(f"cannot read {topic} on {broker}: {reason}") from error
        self._client.loop_start()

    def records(self) -> list[JsonObject]:
        """The records received so far, in order."""
        with self._lock:
            return list(self._records)

    def __enter__(self) -> OutputReader:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _subscribe(self, client: Client, *_: Any) -> None:
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
        client.subscribe(self.topic, options=options)

    def _keep(self, _: Client, __: Any, message: MQTTMessage) -> None:
        try:
            messages = read_records(message)
        except PermanentError:
            self.unreadable.append(bytes(message.payload))
            return
        for message_record in messages:
            self._keep_one(message_record.payload)

    def _keep_one(self, payload: bytes) -> None:
        try:
            record = json.loads(payload)
        except ValueError:
            self.unreadable.append(payload)
            return
        with self._lock:
            self._records.append(record)
