"""Reads one link of an MQTT broker under a reader's session."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from paho.mqtt.client import Client, MQTTMessage
from paho.mqtt.enums import CallbackAPIVersion, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.subscribeoptions import SubscribeOptions

from binders.mqtt.link_writer import split_address
from binders.mqtt.records import read_records
from speck.errors import PermanentError, UnreachableError
from speck.model.record import Record
from speck.sites.credentials import Credentials
from speck.tls.certificates import explain_refusal

_EXPIRY_S = 30 * 24 * 3600
_AT_ONCE = 10_000
"""Unacknowledged messages; paho acknowledges each once it was handed over."""
_KEEPALIVE_S = 10
_RECONNECT_S = 1


class MqttReader:
    """Hands over the records of one topic until it is closed; the session continues to exist."""

    def __init__(
        self,
        address: str,
        login: Credentials,
        topic: str,
        client_id: str,
        on_record: Callable[[Record], None],
        on_damaged: Callable[[bytes], None],
    ):
        self._topic = topic
        self._on_record, self._on_damaged = on_record, on_damaged
        host, port, encrypted = split_address(address)
        self._client = Client(
            CallbackAPIVersion.VERSION2, client_id, protocol=MQTTProtocolVersion.MQTTv5
        )
        if login.user is not None:
            self._client.username_pw_set(login.user, login.password)
        if encrypted or login.tls.ca is not None:
            self._client.tls_set_context(login.context("mqtt"))
        self._client.reconnect_delay_set(_RECONNECT_S, _RECONNECT_S)
        self._client.on_connect = self._subscribe
        self._client.on_message = self._keep
        properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = _EXPIRY_S
        properties.ReceiveMaximum = _AT_ONCE
        try:
            self._client.connect(host, port, _KEEPALIVE_S, clean_start=False, properties=properties)
        except OSError as error:
            reason = explain_refusal(error, host, port) or error
            raise UnreachableError(f"cannot read {topic} on {address}: {reason}") from error
        self._client.loop_start()

    def __enter__(self) -> MqttReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def _subscribe(self, client: Client, *_: Any) -> None:
        options = SubscribeOptions(qos=1, retainHandling=SubscribeOptions.RETAIN_DO_NOT_SEND)
        client.subscribe(self._topic, options=options)

    def _keep(self, _: Client, __: Any, message: MQTTMessage) -> None:
        try:
            records = read_records(message)
        except PermanentError:
            self._on_damaged(bytes(message.payload))
            return
        for record in records:
            self._on_record(record)
