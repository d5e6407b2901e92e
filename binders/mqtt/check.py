"""What in a broker's settings would lose data or starve jobs, seen from outside.

A broker shows its limits in CONNACK, its version and drops below `$SYS`, and the depth of its
queues to who fills one. What it does not show is said as such, with the lines to make sure of.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from paho.mqtt.client import MQTTMessage

from binders.mqtt.bookkeeping import DROPPED, MARKER, PROBE
from binders.mqtt.connection import V5, Connection, NoAnswerError, Session
from binders.mqtt.credentials import Credentials
from speck.binding import Finding, Target
from speck.errors import BrokerRefusedError, SpeckError

WANTED_INFLIGHT = 1000
WANTED_PACKET = 1048576
WANTED_EXPIRY_S = 30 * 24 * 3600
PROBE_MESSAGES = 1200
"""Past Mosquitto's default of 1000 for a queue, few enough to take a fraction of a second."""

_PROBE_EXPIRY_S = 60
_UNSEEN = "cannot be seen from outside"
_VERSION = "$SYS/broker/version"

OnMessage = Callable[[MQTTMessage], None]


class Open(Protocol):
    """Opens a connection to the broker that is looked at."""

    def __call__(
        self, session: Session, on_message: OnMessage | None = None, anonymous: bool = False
    ) -> Connection: ...


def check(target: Target, credentials: Credentials, open_: Open) -> list[Finding]:
    """All findings, errors first. Raises UnreachableError when the broker does not answer."""
    client_id = _client_id()
    with open_(Session(client_id, expiry_s=WANTED_EXPIRY_S)) as connection:
        speaks_5, connack = connection.version == V5, connection.connack
    with open_(Session(client_id)):
        pass  # ends the session, which was asked for only to be told how long it would live
    findings = [] if speaks_5 else [_no_numbers()]
    findings += connack_findings(connack) if speaks_5 else []
    findings += access_findings(target, credentials, open_)
    findings += _system_findings(open_)
    # Without Receive Maximum a probe could not read back all it wrote.
    findings += _queue_findings(open_) if speaks_5 else []
    findings += _unseen_findings()
    return sorted(findings, key=lambda finding: finding.severity != "error")


def connack_findings(connack: Mapping[str, Any]) -> Iterator[Finding]:
    """What an MQTT 5 broker announces about itself; an absent property means no limit."""
    inflight = connack.get("ReceiveMaximum", 65535)
    if inflight < WANTED_INFLIGHT:
        yield Finding(
            "warning",
            "max_inflight_messages",
            str(inflight),
            "a sink may have no more messages under way in one round trip",
            f"max_inflight_messages {WANTED_INFLIGHT}",
        )
    if not connack.get("RetainAvailable", 1):
        yield Finding(
            "error",
            "retain_available",
            "false",
            "readers' taken numbers are retained messages: without them no change is safe",
            "retain_available true",
        )
    if connack.get("MaximumQoS", 2) < 1:
        yield Finding(
            "error", "max_qos", "0", "messages are lost with every broken connection", "max_qos 2"
        )
    if not connack.get("WildcardSubscriptionAvailable", 1):
        yield Finding(
            "error",
            "wildcard subscriptions",
            "not available",
            "speck reads the jobs' numbers with speck/taken/#",
            "# use a broker that allows wildcard subscriptions",
        )
    packet = connack.get("MaximumPacketSize")
    if packet is not None and packet < WANTED_PACKET:
        yield Finding(
            "warning",
            "max_packet_size",
            f"{packet} bytes",
            "a sink that writes a larger message is disconnected",
            f"max_packet_size {WANTED_PACKET}",
        )
    if connack.get("TopicAliasMaximum", 0) == 0:
        yield Finding(
            "warning",
            "max_topic_alias",
            "0",
            "every message of a sink repeats its topic in full",
            "max_topic_alias 10",
        )
    expiry = connack.get("SessionExpiryInterval", WANTED_EXPIRY_S)
    if expiry < WANTED_EXPIRY_S:
        yield Finding(
            "error",
            "persistent_client_expiration",
            f"{expiry} s",
            "a reader that is away longer loses all that waits for it",
            "persistent_client_expiration 30d",
        )


def access_findings(target: Target, credentials: Credentials, open_: Open) -> Iterator[Finding]:
    """Who may connect; nothing to say about a broker at a loopback address."""
    parts = urlsplit(target.address)
    if _is_loopback(parts.hostname or ""):
        return
    if _anonymous_may_connect(credentials, open_):
        yield Finding(
            "warning",
            "allow_anonymous",
            "true",
            "anybody who reaches the broker reads everything and can throw out any job by"
            " connecting under its client id",
            "allow_anonymous false\npassword_file /etc/mosquitto/passwd",
        )
    if parts.scheme != "ssl" and credentials.ca is None and credentials.user is not None:
        yield Finding(
            "warning",
            "listener",
            "no TLS",
            "the password crosses the network in the clear",
            "listener 8883\ncertfile /etc/mosquitto/certs/server.crt\n"
            "keyfile /etc/mosquitto/certs/server.key",
        )


def _anonymous_may_connect(credentials: Credentials, open_: Open) -> bool:
    if credentials.user is None:
        return True  # we were let in without a name a moment ago
    try:
        with open_(Session(_client_id()), anonymous=True):
            return True
    except SpeckError:
        return False


def _system_findings(open_: Open) -> Iterator[Finding]:
    """What the broker counts below `$SYS`, which is retained and so there at once."""
    told = _read_retained(open_, (_VERSION, DROPPED))
    if _VERSION not in told:
        yield Finding(
            "warning",
            "sys_interval",
            "nothing below $SYS can be read",
            "overflowing queues stay unnoticed (on a broker other than Mosquitto: watch its own"
            " counter of dropped messages)",
            "sys_interval 10\n# and in the acl_file: topic read $SYS/#",
        )
    dropped = told.get(DROPPED, b"0")
    if dropped.strip() not in (b"", b"0"):
        yield Finding(
            "error",
            "max_queued_messages",
            f"{dropped.decode(errors='replace')} messages dropped since the broker's start",
            "a full queue drops the newest message while its publisher is told that all is well"
            " (looking for the queue's limit by this check counts too, where that limit is low)",
            "max_queued_messages 1000000\nmax_queued_bytes 200000000",
        )


def _read_retained(open_: Open, topics: tuple[str, ...]) -> dict[str, bytes]:
    told: dict[str, bytes] = {}
    marker = MARKER + secrets.token_hex(8)

    def note(message: MQTTMessage) -> None:
        told[message.topic] = bytes(message.payload)

    try:
        with open_(Session(_client_id()), note) as connection:
            connection.subscribe(*topics, marker)
            connection.publish(marker, b"")
            connection.wait(lambda: marker in told, "read " + ", ".join(topics))
    except (BrokerRefusedError, NoAnswerError):
        pass  # may not be read: the same as not there
    return told


def _queue_findings(open_: Open) -> Iterator[Finding]:
    try:
        came = probe_queue(open_, PROBE_MESSAGES)
    except (BrokerRefusedError, NoAnswerError) as error:
        yield Finding(
            "error",
            "acl_file",
            str(error),
            "speck and its jobs must write and read their own topics",
            "topic readwrite speck/#",
        )
        return
    full = came < PROBE_MESSAGES
    yield Finding(
        "error" if full else "warning",
        "max_queued_messages",
        f"a session kept {came} of {PROBE_MESSAGES} messages"
        if full
        else f"at least {PROBE_MESSAGES}; more {_UNSEEN}",
        "while a job is moved or a site is away, what it is to read waits in its session; past"
        " the limit the newest message is dropped and its publisher is told that all is well",
        "max_queued_messages 1000000\nmax_queued_bytes 200000000",
    )


def probe_queue(open_: Open, messages: int) -> int:
    """How many of `messages` small messages a session of ours keeps while its reader is away.

    Everything is under a random client id and topic, and ended before the result is given;
    should we die halfway, the broker ends the session after a minute.
    """
    client_id, topic = _client_id(), PROBE + secrets.token_hex(8)
    away = Session(client_id, clean=False, expiry_s=_PROBE_EXPIRY_S, receive_maximum=1)
    with open_(away) as connection:
        connection.await_suback(connection.ask(topic, retained=False), topic)
    with open_(Session(_client_id())) as connection:
        sent = [connection.send(topic, b"0") for _ in range(messages)]
        for mid in sent:
            connection.await_puback(mid, topic)
    came = _drain(open_, client_id, topic)
    with open_(Session(client_id)):
        return came


def _drain(open_: Open, client_id: str, topic: str) -> int:
    end = secrets.token_hex(8).encode()
    came: list[bytes] = []
    back = Session(client_id, clean=False, expiry_s=_PROBE_EXPIRY_S)
    with open_(back, lambda message: came.append(bytes(message.payload))) as connection:
        # With everything under way at once the queue is empty, so this one is not dropped.
        connection.publish(topic, end)
        connection.wait(lambda: bool(came) and came[-1] == end, f"read {topic}")
    return len(came) - 1


def _no_numbers() -> Finding:
    return Finding(
        "warning",
        "protocol",
        "MQTT 3.1.1 only",
        "messages carry no numbers: repeats and losses cannot be told, and exactly_once is refused",
        "# use a broker that speaks MQTT 5, such as Mosquitto 2",
    )


def _unseen_findings() -> Iterator[Finding]:
    yield Finding(
        "warning",
        "persistence",
        f"{_UNSEEN}; make sure of it",
        "without it a restart of the broker loses every session and all that waits in them",
        "persistence true\npersistence_location /var/lib/mosquitto/\nautosave_interval 5",
    )
    yield Finding(
        "warning",
        "persistent_client_expiration",
        f"{_UNSEEN}; make sure of it",
        "a site that is away longer than this loses all that waits for it",
        "persistent_client_expiration 30d",
    )


def _is_loopback(host: str) -> bool:
    try:
        found = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(found) and all(ipaddress.ip_address(address).is_loopback for address in found)


def _client_id() -> str:
    return "speck-check-" + secrets.token_hex(8)
