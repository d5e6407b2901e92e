"""Makes the properties of packets cheap.

paho builds three tables for each packet that is sent or read, and compares all names with each
other: that takes more time than everything else that it does with a packet. Here the tables are
built once, for the class.
"""

from __future__ import annotations

from typing import Any

from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

_tables: Any = Properties(PacketTypes.PUBLISH)  # type: ignore[no-untyped-call]
_numbers: dict[str, int] = {name.replace(" ", ""): number for name, number in _tables.names.items()}


def _set_packet_type(self: Properties, packet_type: int) -> None:
    object.__setattr__(self, "packetType", packet_type)


def _clear(self: Properties) -> None:
    for name in vars(self).keys() & _numbers.keys():
        delattr(self, name)


def _find_number(self: Properties, name: str) -> int:
    return _numbers.get(name, -1)


def freeze(properties: Properties) -> Properties:
    """Pack properties once, now; they are not changed any more."""
    packed = properties.pack()  # type: ignore[no-untyped-call]
    object.__setattr__(properties, "pack", lambda: packed)
    return properties


def read(properties: Properties) -> dict[str, Any]:
    """The values by name, without spaces."""
    return {name: value for name, value in vars(properties).items() if name in _numbers}


def share_tables() -> None:
    """Let all properties share the tables."""
    own = {
        "types": _tables.types,
        "names": _tables.names,
        "properties": _tables.properties,
        "__init__": _set_packet_type,
        "clear": _clear,
        "getIdentFromName": _find_number,
    }
    for name, member in own.items():
        setattr(Properties, name, member)
