"""The connection to a Kafka cluster: its settings, and requests that end in time.

Kafka's client is in Python, so that other polls of a process go on while one waits. (The one over
librdkafka 2.16 ends the whole process when a group's coordinator is not ready: its request for the
places of a group looks for a consumer, which a client for requests has none of.)
"""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.net.compat import KafkaNetClient

from binders.kafka.answers import LOGIN, explain, is_passing
from binders.kafka.last_words import keep_last_words
from speck.binding import Target
from speck.errors import BrokerRefusedError, SpeckError, UnreachableError
from speck.sites.credentials import Credentials, read_credentials
from speck.tls.certificates import explain_alert, explain_refusal

# what matters comes as errors, whose messages name the broker
logging.getLogger("kafka").setLevel(logging.CRITICAL)
keep_last_words()

MECHANISM = "SCRAM-SHA-512"
"""How users are authenticated, unless their credentials name another way."""

_LONGEST_SLEEP_S = 0.1
_SHORTEST_S = 0.1

_LARGEST_REQUEST = 16 << 20
"""Bytes that a producer sends at once, and so of a record: it is the broker that refuses more."""

Answer = TypeVar("Answer")


def pause(sleep_s: float) -> float:
    """Sleep, and return how long to sleep the next time."""
    time.sleep(sleep_s)
    return min(_LONGEST_SLEEP_S, 1.5 * sleep_s)


def hosts_of(address: str) -> list[tuple[str, int]]:
    """The hosts of a normalised address, with their ports."""
    ends = (end.rpartition(":") for end in address.partition("://")[2].split(","))
    return [(host.strip("[]"), int(port)) for host, _, port in ends]


def is_encrypted(address: str, login: Credentials) -> bool:
    """Whether connections use TLS."""
    return address.startswith("kafka+ssl:") or login.tls.ca is not None


def settings_of(address: str, login: Credentials) -> dict[str, Any]:
    """The settings that all clients of a broker have in common. Raises PermanentError if a file of
    certificates cannot be used."""
    protocol = "SSL" if is_encrypted(address, login) else "PLAINTEXT"
    settings: dict[str, Any] = {
        "bootstrap_servers": address.partition("://")[2].split(","),
        "security_protocol": f"SASL_{protocol}" if login.user is not None else protocol,
        "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 500,
    }
    if protocol == "SSL":
        settings["ssl_context"] = login.context("kafka")
    if login.user is not None:
        settings |= {
            "sasl_mechanism": login.mechanism or MECHANISM,
            "sasl_plain_username": login.user,
            "sasl_plain_password": login.password or "",
        }
    return settings


def look_for_listener(address: str, login: Credentials, timeout_s: float) -> None:
    """Raises UnreachableError if none of the hosts of an address takes a connection, and
    BrokerRefusedError if TLS fails."""
    reasons: list[str] = []
    for host, port in hosts_of(address):
        try:
            with socket.create_connection((host, port), timeout_s) as plain:
                if is_encrypted(address, login):
                    context = login.context("kafka")
                    with context.wrap_socket(plain, server_hostname=host):
                        pass
            return
        except OSError as error:
            if refusal := explain_refusal(error, host, port):
                raise BrokerRefusedError(
                    f"cannot trust the broker at {address}: {refusal}"
                ) from error
            alert = explain_alert(error, own=login.tls.cert)
            reasons.append(alert or error.strerror or str(error) or type(error).__name__)
    words = "; ".join(dict.fromkeys(reasons))
    raise UnreachableError(f"cannot reach the broker at {address}: {words}")


class Client:
    """Opens clients of one cluster with the credentials as they are now. The one for requests is
    kept until the credentials change, a request fails, or it is closed."""

    def __init__(self, target: Target, login: Credentials | None = None) -> None:
        """With a `login` that is used, instead of the target's file."""
        self.address, self._target, self._login = target.address, target, login
        self._lock = threading.Lock()
        self._kept: tuple[dict[str, Any], KafkaAdminClient] | None = None

    def credentials(self) -> Credentials:
        """Those of the site. Raises BrokerRefusedError."""
        if self._login is not None:
            return self._login
        file = self._target.credentials
        return read_credentials(file, self.address) if file else Credentials()

    def begin(self) -> Call:
        """Begin a call, which has the time limit of the target."""
        return Call(self, time.monotonic() + self._target.timeout_s)

    def admin(self, deadline: float) -> KafkaAdminClient:
        """The client for requests. Raises SpeckError if none can be opened."""
        login = self.credentials()
        settings = settings_of(self.address, login)
        with self._lock:
            if self._kept is not None and self._kept[0] == settings:
                return self._kept[1]
        admin = self._open(KafkaAdminClient, login, settings, deadline)
        with self._lock:
            before, self._kept = self._kept, (settings, admin)
        if before is not None:
            before[1].close()
        return admin

    def drop(self, admin: KafkaAdminClient) -> None:
        """Close a client for requests, which remembers who coordinates a group for ever."""
        with self._lock:
            if self._kept is not None and self._kept[1] is admin:
                self._kept = None
        admin.close()

    def producer(self, settings: Mapping[str, Any], deadline: float) -> KafkaProducer:
        """A new producer, whose records the broker has on all its replicas."""
        common = {"acks": "all", "max_request_size": _LARGEST_REQUEST}
        return self._open_own(KafkaProducer, {**common, **settings}, deadline)

    def consumer(self, deadline: float) -> KafkaConsumer:
        """A new consumer in no group, which begins nowhere by itself."""
        settings = {
            "group_id": None,
            "enable_auto_commit": False,
            "auto_offset_reset": "none",
            "isolation_level": "read_committed",
            "max_partition_fetch_bytes": 4 << 20,
        }
        return self._open_own(KafkaConsumer, settings, deadline)

    def _open_own(self, kind: Any, settings: Mapping[str, Any], deadline: float) -> Any:
        login = self.credentials()
        common = {**settings_of(self.address, login), "allow_auto_create_topics": False}
        return self._open(kind, login, {**common, **settings}, deadline)

    def _open(
        self, kind: Any, login: Credentials, settings: Mapping[str, Any], deadline: float
    ) -> Any:
        look_for_listener(self.address, login, max(_SHORTEST_S, deadline - time.monotonic()))
        attempt = Attempt()
        patience_s = max(_SHORTEST_S, deadline - time.monotonic())
        try:
            opened = kind(
                **settings,
                kafka_client=attempt.make,
                request_timeout_ms=max(1000, int(1000 * self._target.timeout_s)),
                bootstrap_timeout_ms=int(1000 * patience_s),
            )
        except Exception as error:
            reason = attempt.give_up() or error
            raise explain(reason, self.address, "connect") from error
        attempt.succeed()
        return opened

    def close(self) -> None:
        """Close the client for requests, if it is open."""
        with self._lock:
            kept, self._kept = self._kept, None
        if kept is not None:
            kept[1].close()


class Attempt:
    """One attempt to open a client. Where it fails, the client says but that it took too long: the
    connections of its inner one know why, and that one has to be ended. It would try a login that
    was refused again and again."""

    def __init__(self) -> None:
        self._inner: Any = None
        self._failures: list[BaseException] = []

    def make(self, **settings: Any) -> KafkaNetClient:
        """Make the inner client, and listen to its connections."""
        self._inner = KafkaNetClient(**settings)
        manager = self._inner._manager
        connect = manager.get_connection

        def hear(error: BaseException) -> None:
            self._failures.append(error)
            if isinstance(error, LOGIN):
                manager.closed = True  # ends its attempts

        def connect_and_listen(*args: Any, **kwargs: Any) -> Any:
            connection = connect(*args, **kwargs)
            connection.init_future.add_errback(hear)
            return connection

        manager.get_connection = connect_and_listen
        return self._inner

    def succeed(self) -> None:
        """Leave the inner client alone."""
        del self._inner._manager.get_connection

    def give_up(self) -> BaseException | None:
        """End what was begun; returns why a login failed, if one did."""
        if self._inner is not None:
            self._inner._manager.closed = False
            self._inner.close()
            self._inner._manager._net.stop()
        return next((each for each in self._failures if isinstance(each, LOGIN)), None)


class Call:
    """One call of the binder: requests that end by its deadline."""

    def __init__(self, client: Client, deadline: float):
        self.address, self.client, self.deadline = client.address, client, deadline

    @property
    def rest_s(self) -> float:
        """Seconds that are left."""
        return max(0.0, self.deadline - time.monotonic())

    def ask(self, doing: str, question: Callable[[KafkaAdminClient], Answer]) -> Answer:
        """The answer to a request, which is repeated while the cluster is about to know it. Raises
        SpeckError; `doing` names what is asked for in its message."""
        sleep_s = 0.01
        while True:
            admin = self.client.admin(self.deadline)
            try:
                return question(admin)
            except SpeckError:
                raise
            except Exception as error:
                if not is_passing(error):
                    raise explain(error, self.address, doing) from error
                self.client.drop(admin)
                login = self.client.credentials()
                look_for_listener(self.address, login, max(_SHORTEST_S, min(1.0, self.rest_s)))
                if not self.rest_s:
                    raise explain(error, self.address, doing) from error
            sleep_s = pause(sleep_s)
