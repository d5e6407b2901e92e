"""Clients of Kafka's library: their settings, credentials, and what their errors mean."""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Any

from kafka import errors
from kafka.net.compat import KafkaNetClient
from kafka.structs import OffsetAndMetadata

from speck_link.arguments import Link
from speck_link.credentials import find_credentials
from speck_link.kafka.address import ENCRYPTED, is_same
from speck_link.kafka.last_words import keep_last_words
from speck_link.transport import Place

# what matters comes as errors, which are reported with the link that they belong to
logging.getLogger("kafka").setLevel(logging.CRITICAL)
keep_last_words()

CALL_MS = 5000
"""How long a broker that says nothing is waited for."""

_FETCH_BYTES = 256 << 10
FETCH_SETTINGS = {"fetch_max_bytes": _FETCH_BYTES, "max_partition_fetch_bytes": _FETCH_BYTES}
"""Of a consumer. An answer must have come within the timeout of its request, else it is asked for
again from its beginning, for ever over a network that is too slow. Kafka's default is 1 MiB."""

_MECHANISM = "SCRAM-SHA-512"
_YEAR_MS = 365 * 24 * 3600 * 1000
_LOGIN = (
    errors.SaslAuthenticationFailedError,
    errors.UnsupportedSaslMechanismError,
    errors.IllegalSaslStateError,
)
_SILENT = (
    errors.KafkaConnectionError,
    errors.KafkaTimeoutError,
    errors.NodeNotReadyError,
    errors.UnknownBrokerIdError,
)


class OpenClient:
    """A client of one kind (KafkaAdminClient, KafkaConsumer, KafkaProducer), and the connections
    that it has."""

    _inner: Any = None

    def __init__(self, kind: Any, link: Link, **settings: Any) -> None:
        """Connects, for `CALL_MS` at most. Raises what the library raises; where a login fails,
        that: the library itself says but that it took too long, and goes on to try."""
        self._failures: list[BaseException] = []
        known = {**settings_of(link), "bootstrap_timeout_ms": CALL_MS, **settings}
        try:
            self.client = kind(**known, kafka_client=self._make)
        except Exception as error:
            self._give_up()
            reason = self._explain(error)
            raise reason from (None if reason is error else error)
        del self._inner._manager.get_connection

    def _make(self, **settings: Any) -> KafkaNetClient:
        """Makes the inner client, and listens to its connections."""
        self._inner = KafkaNetClient(**settings)
        manager = self._inner._manager
        connect = manager.get_connection

        def hear(error: BaseException) -> None:
            self._failures.append(error)
            if isinstance(error, _LOGIN):
                manager.closed = True  # ends its attempts

        def connect_and_listen(*args: Any, **kwargs: Any) -> Any:
            connection = connect(*args, **kwargs)
            connection.init_future.add_errback(hear)
            return connection

        manager.get_connection = connect_and_listen
        return self._inner

    def _give_up(self) -> None:
        if self._inner is not None:
            with suppress(Exception):
                self._inner._manager.closed = False
                self._inner.close()
                self._inner._manager._net.stop()

    def _explain(self, error: Exception) -> BaseException:
        """The library itself says but that it took too long."""
        reason: BaseException = error
        if self._failures and isinstance(error, errors.KafkaTimeoutError):
            reason = self._failures[-1]
        for each in self._failures:
            reason = each if isinstance(each, _LOGIN) else reason
        return reason

    @property
    def is_connected(self) -> bool:
        """Whether there is a connection to any broker."""
        return any(each.connected for each in list(self._inner._manager._conns.values()))

    def count_partitions(self, topic: str) -> int:
        """How many a topic has, as far as is known here; 0: that is not known."""
        return len(self._inner.cluster.partitions_for_topic(topic) or ())

    def close(self, **how: Any) -> None:
        """Close it; what fails then is of no interest any more."""
        with suppress(Exception):
            self.client.close(**how)


def seek(consumer: Any, tp: Any, place: Place) -> None:
    """Go to a place. If its term is known, the library asks the leader whether the log was cut
    below it (the library's own `seek` takes offsets alone)."""
    term = -1 if place.term is None else place.term
    consumer._subscription.seek(tp, OffsetAndMetadata(place.offset, "", term))


def settings_of(link: Link) -> dict[str, Any]:
    """What all clients of a link have in common, with the credentials as they are now. Raises
    OSError if a file of certificates cannot be used."""
    credentials = find_credentials(lambda address: is_same(address, link.broker))
    scheme, _, hosts = link.broker.partition("://")
    encrypted = scheme == ENCRYPTED or credentials.has_ca
    protocol = "SSL" if encrypted else "PLAINTEXT"
    settings: dict[str, Any] = {
        "bootstrap_servers": hosts.split(","),
        "client_id": link.client_id,
        "security_protocol": f"SASL_{protocol}" if credentials.user is not None else protocol,
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 500,
        "connections_max_idle_ms": _YEAR_MS,
        "request_timeout_ms": CALL_MS,
    }
    if encrypted:
        settings["ssl_context"] = credentials.make_context()
    if credentials.user is not None:
        settings |= {
            "sasl_mechanism": credentials.fields.get("mechanism", _MECHANISM),
            "sasl_plain_username": credentials.user,
            "sasl_plain_password": credentials.password or "",
        }
    return settings


def explain(error: BaseException) -> str:
    """Why a link cannot be used, and what to do. What lasts until somebody changes credentials or
    permissions is said as readers of MQTT say it."""
    name = type(error).__name__
    words = str(error).partition("] ")[2] if str(error).startswith("[Error ") else str(error)
    words = words.removeprefix(name).lstrip(": ") or name.removesuffix("Error")
    if isinstance(error, _LOGIN):
        return (
            f"the broker refuses the login: AUTHENTICATION_FAILED ({words}); check user, password"
            " and mechanism in the credentials of this broker"
        )
    if isinstance(error, errors.AuthorizationError):
        return (
            f"the broker refuses access: NOT_AUTHORIZED ({words}); let its user do that"
            " (kafka-acls)"
        )
    if isinstance(error, errors.UnsupportedCodecError):
        return (
            f"{words}; install in this program's Python what unpacks it (lz4, python-snappy or"
            " zstandard), or have records sent uncompressed, or with gzip"
        )
    if isinstance(error, errors.LogTruncationError):
        return "the log was cut, as after a loss of power; reading goes on where it was cut"
    if isinstance(error, errors.OffsetOutOfRangeError):
        return "the log has not what comes next; reading goes on with the first that there is"
    if isinstance(error, _SILENT):
        return (
            f"{words}; if the broker runs, look whether the address, and its advertised.listeners,"
            " lead there from here"
        )
    return words
