"""What a broker's answers mean: which are faults, of which kind, and how to mend them."""

from __future__ import annotations

import ssl
from urllib.parse import urlsplit

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.reasoncodes import ReasonCode

from speck.errors import BrokerRefusedError, SpeckError, TransientError, UnreachableError
from speck.model.values import cut
from speck.sites.credentials import Credentials
from speck.tls.certificates import explain_alert, explain_refusal

_NO_SUBSCRIBERS = 0x10
_UNSUPPORTED_VERSION = 0x84
_TOO_LARGE = 0x95
# Mosquitto answers so to a message over its message_size_limit, though MQTT 5 has no such PUBACK.
# paho takes an answer that is not in its table for malformed.
ReasonCode.names = {
    **ReasonCode.names,
    _TOO_LARGE: {
        "Packet too large": [PacketTypes.CONNACK, PacketTypes.DISCONNECT, PacketTypes.PUBACK]
    },
}
_BAD_TOPIC = frozenset({0x81, 0x82, 0x8F, 0x90})
"""Malformed packet (so Mosquitto calls a topic of too many levels), protocol error, filter or name
invalid."""
_REFUSALS = _BAD_TOPIC | {0x83, 0x87, 0x93, 0x94, _TOO_LARGE, 0x99, 0x9A, 0x9B, 0x9E, 0xA1, 0xA2}
"""Reasons of a DISCONNECT that the same request meets again; the others are the broker's state, or
another client's doing."""
_BUSY = frozenset({0x88, 0x89, 0x97, 0x9F})  # unavailable, busy, quota, connection rate


class UnsupportedVersionError(BrokerRefusedError):
    """The broker does not speak the requested MQTT version."""


class TopicRefusedError(BrokerRefusedError):
    """The broker does not take a topic of this form: it has too many levels or bytes, say. So
    nothing of that topic is there."""


PLAIN_HINT = (
    "if that goes on, the port expects TLS (give an address with ssl://), it is no MQTT broker, or"
    " it takes no more connections"
)
# Mosquitto closes the connection without an alert
TLS_HINT = (
    "if the broker asks for client certificates, name one in the lines `cert` and `key` of its"
    " credentials"
)


class LostError(UnreachableError):
    """The connection ended before the awaited answer came."""


class NoAnswerError(UnreachableError):
    """The connection is open, but the awaited answer did not come in time."""


def explain_no_connection(error: OSError, address: str, credentials: Credentials) -> SpeckError:
    """Why no connection to the broker could be opened."""
    reason = error.strerror or str(error) or type(error).__name__
    parts = urlsplit(address)
    if refusal := explain_refusal(error, parts.hostname or "", parts.port or 8883):
        return BrokerRefusedError(f"cannot trust the broker at {address}: {refusal}")
    reason = explain_alert(error, own=credentials.tls.cert) or reason
    if isinstance(error, ssl.SSLError) and not isinstance(error, ssl.SSLEOFError):
        return BrokerRefusedError(f"cannot speak TLS with the broker at {address}: {reason}")
    return UnreachableError(f"cannot reach the broker at {address}: {reason}")


def explain_connack(reason: ReasonCode, address: str, credentials: Credentials) -> SpeckError:
    """Why the broker has not accepted a connection."""
    text = f"cannot connect to the broker at {address}: it answers {str(reason)!r}"
    if reason.value == _UNSUPPORTED_VERSION:
        return UnsupportedVersionError(text)
    if reason.value in _BUSY:
        return TransientError(text)
    who = f"as user {credentials.user!r}" if credentials.user else "without credentials"
    return BrokerRefusedError(f"{text} {who}; check the site's broker.credentials")


def check_suback(code: ReasonCode, topic: str, address: str) -> None:
    """Raises BrokerRefusedError if the broker has refused a subscription."""
    if code.is_failure:
        kind = TopicRefusedError if code.value in _BAD_TOPIC else BrokerRefusedError
        raise kind(
            f"cannot subscribe to {cut(topic)} at {address}: the broker says"
            f" {str(code)!r}; let its user read that topic"
        )


def check_puback(code: ReasonCode, topic: str, address: str) -> bool:
    """Whether the topic has subscribers, as far as the broker reports this. Raises
    BrokerRefusedError if it has refused the message."""
    if code.is_failure:
        mend = "let its user write that topic"
        if code.value == _TOO_LARGE:
            mend = "raise its message_size_limit, or send smaller messages"
        kind = TopicRefusedError if code.value in _BAD_TOPIC else BrokerRefusedError
        raise kind(
            f"cannot publish to {cut(topic)} at {address}: the broker says {str(code)!r}; {mend}"
        )
    return code.value != _NO_SUBSCRIBERS


def explain_disconnect(reason: ReasonCode) -> tuple[str, type[SpeckError]]:
    """Why the broker has ended a connection, and the kind of that error."""
    text = f"the broker ended the connection: {reason}"
    if reason.value in _BAD_TOPIC:
        return f"{text}; it may not take topics of so many levels or bytes", TopicRefusedError
    return text, BrokerRefusedError if reason.value in _REFUSALS else LostError
