"""Opens connections to one broker, in the newest version of MQTT that it speaks."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable

from paho.mqtt.client import MQTTMessage

from binders.mqtt.answers import LostError, UnsupportedVersionError
from binders.mqtt.channel import V5, V311
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection
from speck.binding import Target
from speck.errors import SpeckError
from speck.sites.credentials import Credentials, read_credentials
from speck.tls.contexts import ClientTls

log = logging.getLogger(__name__)

LARGEST_PACKET = 2 * 1024 * 1024
"""The most bytes of a message that a poll takes: the numbers of one job have a few kB."""


class Opener:
    """Tries MQTT 5 until the broker has turned out to speak MQTT 3.1.1 only. `version` is what it
    tries next, `last_spoken` that of the newest connection."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self.version = self.last_spoken = V5
        self._is_confirmed = False
        """Whether the broker has accepted a connection of this version: later ones are eager."""

    def forget_version(self) -> None:
        """Try MQTT 5 again."""
        self.version, self._is_confirmed = V5, False

    def credentials(self) -> Credentials:
        """Those that the target's file holds now."""
        file = self._target.credentials
        return read_credentials(file, self._target.address) if file else Credentials()

    def open(
        self,
        options: ConnectOptions,
        on_message: Callable[[MQTTMessage], None] | None = None,
        anonymous: bool = False,
        eager: bool = True,
        deadline: float | None = None,
    ) -> Connection:
        """Connect until `deadline` (`time.monotonic()` seconds; by default that of a call).
        `anonymous`: with neither a user nor a certificate. Raises what opening a `Connection`
        raises."""
        if deadline is None:
            deadline = time.monotonic() + self._target.timeout_s
        credentials = self.credentials()
        if anonymous:
            credentials = Credentials(tls=ClientTls(credentials.tls.ca))
        address, on_request = self._target.address, self._target.on_request
        if self.version == V5:
            try:
                connection = Connection(
                    address,
                    credentials,
                    options,
                    deadline,
                    V5,
                    on_message,
                    on_request,
                    eager=eager and self._is_confirmed,
                )
                self._is_confirmed = True
                self.last_spoken = V5
                return connection
            except UnsupportedVersionError as error:
                log.info("broker at %s: falling back to MQTT 3.1.1: %s", address, error)
            except LostError as error:
                if self._is_confirmed or not self._speaks_only_v311(credentials, deadline):
                    raise
                log.info("broker at %s hangs up on MQTT 5, falling back to 3.1.1", address)
                log.debug("%s", error)
        connection = Connection(
            address, credentials, options, deadline, V311, on_message, on_request
        )
        self.version = self.last_spoken = V311
        return connection

    def _speaks_only_v311(self, credentials: Credentials, deadline: float) -> bool:
        """Whether the broker accepts MQTT 3.1.1, and hangs up on MQTT 5 before and after that: it
        is older than MQTT 5, and not restarting."""
        address, on_request = self._target.address, self._target.on_request
        try:
            with Connection(address, credentials, visitor(), deadline, V311, on_request=on_request):
                pass
        except SpeckError:
            return False
        try:
            with Connection(address, credentials, visitor(), deadline, V5, on_request=on_request):
                return False
        except LostError:
            return True
        except SpeckError:
            return False


def visitor() -> ConnectOptions:
    """A temporary session that ends with its connection, with a random client id."""
    client_id = "speck-visit-" + secrets.token_hex(8)
    return ConnectOptions(client_id, lingers=False, most_bytes=LARGEST_PACKET)
