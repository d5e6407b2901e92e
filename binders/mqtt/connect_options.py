"""What a connection requests of the broker."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from binders.mqtt.properties import freeze


@dataclass(frozen=True, slots=True)
class ConnectOptions:
    """What a connection requests: a session, which outlives it by `expiry_s`, and bounds. A
    connection that `lingers` waits at its close until the broker has closed its side, so that the
    next one with the same client id cannot collide with it.

    `most_bytes`: the size of the largest packet that it takes (Maximum Packet Size; a broker drops
    what is larger). None for a session that may hold a user's messages: none of them is to be
    dropped by the broker, and those that are large are not handed over.
    """

    client_id: str
    clean: bool = True
    expiry_s: int = 0
    receive_maximum: int = 65535
    manual_ack: bool = False
    lingers: bool = True
    most_bytes: int | None = None


def pack(options: ConnectOptions) -> Properties:
    """The properties of a CONNECT."""
    return _pack(options.expiry_s, options.receive_maximum, options.most_bytes)


@cache
def _pack(expiry_s: int, receive_maximum: int, most_bytes: int | None) -> Properties:
    """Cached with their bytes: to pack them costs more than to connect."""
    properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
    properties.SessionExpiryInterval = expiry_s
    properties.ReceiveMaximum = receive_maximum
    if most_bytes is not None:
        properties.MaximumPacketSize = most_bytes
    return freeze(properties)
