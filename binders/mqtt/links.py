"""MQTT's links for programs that are no jobs."""

from __future__ import annotations

from collections.abc import Callable

from binders.mqtt.link_reader import MqttReader
from binders.mqtt.link_writer import MqttWriter
from speck.binding import LinkReader, LinkWriter, Login, Outgoing, WriterOptions
from speck.model.record import Record
from speck.sites.credentials import Credentials


class MqttLinks:
    """The links of the broker at `tcp://host:port` or `ssl://host:port`."""

    def __init__(self, address: str, login: Login | None = None):
        self._address = address
        self._login = Credentials()
        if login is not None:
            self._login = Credentials(login.user, login.password, login.tls)

    def writer(
        self, options: WriterOptions, on_acked: Callable[[Outgoing, bool], None]
    ) -> LinkWriter:
        """A connection for writing; not connected yet."""
        return MqttWriter(self._address, self._login, options, on_acked)

    def reader(
        self,
        topic: str,
        name: str,
        on_record: Callable[[Record], None],
        on_damaged: Callable[[bytes], None],
    ) -> LinkReader:
        """A connection under the client id `name`, which is read at once."""
        return MqttReader(self._address, self._login, topic, name, on_record, on_damaged)
