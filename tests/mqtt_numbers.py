"""What readers, sinks and producers tell a Mosquitto."""

from __future__ import annotations

from binders.mqtt.connect_options import ConnectOptions
from speck.fog.mosquitto import Mosquitto
from tests.guarded_broker import connect


def tell_numbers(server: Mosquitto, reader: str, *sinks: str) -> None:
    taken = b'{"v":1,"checkpoint":1,"taken":{"p":{"1":2}}}'
    sent = b'{"v":1,"producer":"p","epoch":1,"number":2}'
    with connect(server.address, ConnectOptions("a-job")) as connection:
        connection.publish(f"speck/taken/{reader}", taken, retain=True)
        for sink in sinks:
            connection.publish(f"speck/sent/{sink}", sent, retain=True)
