"""Finds settings of a broker that would lose data or starve jobs, as far as a client can see them.

A broker reports its limits in CONNACK, and its version and dropped messages below `$SYS`; the limit
of its queues shows when one is filled. Settings that a client cannot see are listed with the lines
to make sure of.
"""

from __future__ import annotations

import ipaddress
import secrets
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol
from urllib.parse import urlsplit

from paho.mqtt.client import MQTTMessage

from binders.mqtt.answers import LostError, NoAnswerError
from binders.mqtt.bookkeeping import BRIDGES, DROPPED, MARKER, PROBE, read_bridge
from binders.mqtt.channel import V5
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection, read_topic
from speck.binding import Target
from speck.errors import BrokerRefusedError, SpeckError
from speck.model.finding import Finding
from speck.model.values import cut
from speck.sites.credentials import Credentials

RECOMMENDED_INFLIGHT = 1000
RECOMMENDED_PACKET = 1048576
LEAST_PACKET = 4096
"""Readers report what they have taken, with its holes, in one message."""
RECOMMENDED_EXPIRY_S = 30 * 24 * 3600
PROBE_MESSAGES = 1200
"""More than Mosquitto's default queue of 1000, and few enough for a fraction of a second."""

_PROBE_EXPIRY_S = 60
_HEADERS = 200
"""More than a PUBLISH packet of a probe has beside its payload."""
_BOTH = 2
_UNSEEN = "cannot be seen from outside"
_VERSION = "$SYS/broker/version"
_FEW_BRIDGES = 5
_LARGEST_SYS = 65_536
_MOST_RETAINED, _LONGEST_TOPIC, _LONGEST_RETAINED = 1000, 1000, 100
"""The most messages of $SYS that are read, characters of their topics, and bytes of each."""

OnMessage = Callable[[MQTTMessage], None]


class Open(Protocol):
    """Opens a connection to the broker that is checked."""

    def __call__(
        self, options: ConnectOptions, on_message: OnMessage | None = None, anonymous: bool = False
    ) -> Connection: ...


def check(target: Target, credentials: Credentials, open_: Open) -> list[Finding]:
    """Return all findings, errors first. Raises UnreachableError if the broker does not answer."""
    client_id = _client_id()
    with open_(ConnectOptions(client_id, expiry_s=RECOMMENDED_EXPIRY_S)) as connection:
        is_mqtt5, connack = connection.version == V5, connection.connack
    with open_(ConnectOptions(client_id)):
        pass  # ends the session, which was created only to learn its expiry from CONNACK
    if _has_one_identity(open_):
        return [_one_identity()]  # whatever needs two clients would be wrong
    findings = [] if is_mqtt5 else [_no_numbers()]
    findings += connack_findings(connack) if is_mqtt5 else []
    findings += access_findings(target, credentials, open_)
    findings += _system_findings(open_)
    # Without Receive Maximum a probe could not read back all its messages.
    findings += _queue_findings(open_) if is_mqtt5 else []
    findings += _size_findings(open_, connack.get("MaximumPacketSize", 2 * RECOMMENDED_PACKET))
    findings += _unseen_findings()
    return sorted(findings, key=lambda finding: finding.severity != "error")


def connack_findings(connack: Mapping[str, Any]) -> Iterator[Finding]:
    """Findings from an MQTT 5 broker's CONNACK; a missing property means no limit."""
    inflight = connack.get("ReceiveMaximum", 65535)
    if inflight < RECOMMENDED_INFLIGHT:
        yield Finding(
            "warning",
            "max_inflight_messages",
            str(inflight),
            "a sink can send no more messages than this in one round trip",
            f"max_inflight_messages {RECOMMENDED_INFLIGHT}",
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
    if packet is not None and packet < RECOMMENDED_PACKET:
        is_tiny = packet < LEAST_PACKET
        yield Finding(
            "error" if is_tiny else "warning",
            "max_packet_size",
            f"{packet} bytes",
            "speck's own messages and subscriptions are larger"
            if is_tiny
            else "a sink that writes a larger message is disconnected",
            f"max_packet_size {RECOMMENDED_PACKET}",
        )
    if connack.get("TopicAliasMaximum", 0) == 0:
        yield Finding(
            "warning",
            "max_topic_alias",
            "0",
            "every message of a sink repeats its topic in full",
            "max_topic_alias 10",
        )
    expiry = connack.get("SessionExpiryInterval", RECOMMENDED_EXPIRY_S)
    if expiry < RECOMMENDED_EXPIRY_S:
        yield Finding(
            "error",
            "persistent_client_expiration",
            f"{expiry} s",
            "a reader that is away longer loses all messages queued for it",
            "persistent_client_expiration 30d",
        )


def _has_one_identity(open_: Open) -> bool:
    """Whether the broker takes two clients with different ids for one: it throws out the first as
    the second comes. Twice, since a connection may end by chance."""
    return _throws_out(open_) and _throws_out(open_)


def _throws_out(open_: Open) -> bool:
    with open_(ConnectOptions(_client_id())) as first:
        try:
            with open_(ConnectOptions(_client_id())):
                first.publish(PROBE + secrets.token_hex(8), b"")
        except LostError:
            return True
        except BrokerRefusedError:
            pass  # it is there, and may not publish: that has a finding of its own
    return False


def _one_identity() -> Finding:
    return Finding(
        "error",
        "use_username_as_clientid",
        "two clients with different client ids throw each other out",
        "all jobs with one user share one session: each message reaches one of them, if any, and"
        " they end each other's connections (the rest is checked once this is corrected)",
        "use_username_as_clientid false",
    )


def access_findings(target: Target, credentials: Credentials, open_: Open) -> Iterator[Finding]:
    """Findings about access; none for a broker at a loopback address."""
    parts = urlsplit(target.address)
    if _is_loopback(parts.hostname or ""):
        return
    if _anonymous_may_connect(credentials, open_):
        yield Finding(
            "warning",
            "allow_anonymous",
            "true",
            "anyone who can connect to the broker can read everything, and can disconnect any job"
            " by using its client id",
            "allow_anonymous false\npassword_file /etc/mosquitto/passwd",
        )


def _anonymous_may_connect(credentials: Credentials, open_: Open) -> bool:
    if credentials.user is None and credentials.tls.cert is None:
        return True  # the earlier connections were anonymous, too
    try:
        with open_(ConnectOptions(_client_id()), anonymous=True):
            return True
    except SpeckError:
        return False


def _system_findings(open_: Open) -> Iterator[Finding]:
    """Findings from the broker's counters below `$SYS`, which are retained messages."""
    values = _read_retained(open_, (_VERSION, DROPPED, BRIDGES))
    if bridges := sorted(name for topic in values if (name := read_bridge(topic)) is not None):
        yield _bridged(bridges)
    if _VERSION not in values:
        yield Finding(
            "warning",
            "sys_interval",
            "nothing below $SYS can be read",
            "overflowing queues go unnoticed (if the broker is not Mosquitto, watch its own counter"
            " of dropped messages)",
            "sys_interval 10\n# and in the acl_file: topic read $SYS/#",
        )
    dropped = values.get(DROPPED, b"0")
    if dropped.strip() not in (b"", b"0"):
        yield Finding(
            "error",
            "max_queued_messages",
            f"{dropped.decode(errors='replace')} messages dropped since the broker's start",
            "a full queue drops the newest message although its publisher receives a PUBACK"
            " (messages of this check count, too, if the queue's limit is low)",
            "max_queued_messages 1000000\nmax_queued_bytes 200000000",
        )


def _bridged(bridges: Iterable[str]) -> Finding:
    names = list(map(cut, bridges))
    return Finding(
        "warning",
        "connection",
        "bridged: " + ", ".join(names[:_FEW_BRIDGES]) + (", ..." if names[_FEW_BRIDGES:] else ""),
        "a topic that a bridge carries both ways is one topic at both brokers: a job that reads it"
        " at one and writes it at the other feeds itself without end; and what speck keeps below"
        " speck/ belongs to one broker",
        "# carry single topics in one direction, none of a job's own and none below speck/:\n"
        "topic site-a/alarms out 1",
    )


def _read_retained(open_: Open, topics: tuple[str, ...]) -> dict[str, bytes]:
    payloads: dict[str, bytes] = {}
    marker = MARKER + secrets.token_hex(8)

    def collect(message: MQTTMessage) -> None:
        topic = read_topic(message)
        if topic is None or len(topic) > _LONGEST_TOPIC:
            return
        if topic == marker or len(payloads) < _MOST_RETAINED:
            payloads[topic] = bytes(message.payload[:_LONGEST_RETAINED])

    try:
        with open_(ConnectOptions(_client_id(), most_bytes=_LARGEST_SYS), collect) as connection:
            connection.subscribe(*topics, marker)
            connection.publish(marker, b"")
            connection.wait(lambda: marker in payloads, "read " + ", ".join(topics))
    except (BrokerRefusedError, NoAnswerError):
        pass  # topics that may not be read count as missing
    return payloads


def _queue_findings(open_: Open) -> Iterator[Finding]:
    try:
        count = probe_queue(open_, PROBE_MESSAGES)
    except (BrokerRefusedError, NoAnswerError) as error:
        yield Finding(
            "error",
            "acl_file",
            str(error),
            "speck and its jobs must write and read their own topics",
            "topic readwrite speck/#",
        )
        return
    is_full = count < PROBE_MESSAGES
    yield Finding(
        "error" if is_full else "warning",
        "max_queued_messages",
        f"a session kept {count} of {PROBE_MESSAGES} messages"
        if is_full
        else f"at least {PROBE_MESSAGES}; more {_UNSEEN}",
        "while a job is moved or a site is away, its input is queued in its session; beyond the"
        " limit the newest message is dropped although its publisher receives a PUBACK",
        "max_queued_messages 1000000\nmax_queued_bytes 200000000",
    )


def probe_queue(open_: Open, messages: int) -> int:
    """Count how many of `messages` small messages a session keeps while its reader is away.

    The probe uses a random client id and topic, and ends its session before it returns. If this
    process is killed in between, the broker ends the session after a minute.
    """
    client_id, topic = _client_id(), PROBE + secrets.token_hex(8)
    away = ConnectOptions(client_id, clean=False, expiry_s=_PROBE_EXPIRY_S, receive_maximum=1)
    with open_(away) as connection:
        connection.await_suback(connection.begin_subscribe(topic, retained=False), topic)
    with open_(ConnectOptions(_client_id())) as connection:
        mids = [connection.send(topic, b"0") for _ in range(messages)]
        for mid in mids:
            connection.await_puback(mid, topic)
    count = _drain(open_, client_id, topic)
    with open_(ConnectOptions(client_id)):
        return count


def _size_findings(open_: Open, most: int) -> Iterator[Finding]:
    """Findings about a limit that CONNACK does not tell: Mosquitto's `message_size_limit`."""
    size = max(0, min(RECOMMENDED_PACKET, most - _HEADERS))
    try:
        refusal = probe_size(open_, size)
    except NoAnswerError:  # a slow network: nothing is known
        return
    if refusal is not None:
        yield Finding(
            "error",
            "message_size_limit",
            f"a message of {size} bytes does not get through: {refusal}",
            "a sink leaves out larger records, or fails under exactly_once; with MQTT 3.1.1 they"
            " are lost without a word",
            f"message_size_limit {RECOMMENDED_PACKET}",
        )


def probe_size(open_: Open, size: int) -> str | None:
    """Publish a message of `size` bytes after a small one; returns why it does not get through.

    None if it does, or if the small one does not either: then it is not the size. With MQTT 3.1.1 a
    broker acknowledges what it does not take, so the message is read back.
    """
    topic, end = PROBE + secrets.token_hex(8), b"end"
    payloads: list[bytes] = []
    session = ConnectOptions(_client_id())
    try:
        with open_(session, lambda each: payloads.append(bytes(each.payload))) as connection:
            connection.publish(topic, b"0")
            reads_back = connection.version != V5
            if reads_back:
                connection.subscribe(topic)
            try:
                connection.publish(topic, bytes(size))
                connection.publish(topic, end)
            except (BrokerRefusedError, LostError) as error:
                return str(error)
            if reads_back:
                connection.wait(lambda: end in payloads, f"read {topic}")
                if len(payloads) < _BOTH:
                    return "it is acknowledged and dropped"
    except BrokerRefusedError:
        pass
    return None


def _drain(open_: Open, client_id: str, topic: str) -> int:
    end = secrets.token_hex(8).encode()
    payloads: list[bytes] = []
    session = ConnectOptions(client_id, clean=False, expiry_s=_PROBE_EXPIRY_S)
    with open_(session, lambda message: payloads.append(bytes(message.payload))) as connection:
        # All queued messages are in flight at once, so that the queue is empty for this one.
        connection.publish(topic, end)
        connection.wait(lambda: bool(payloads) and payloads[-1] == end, f"read {topic}")
    return len(payloads) - 1


def _no_numbers() -> Finding:
    return Finding(
        "warning",
        "protocol",
        "MQTT 3.1.1 only",
        "messages carry no numbers: repeats and losses go unnoticed, and exactly_once is refused",
        "# use a broker that speaks MQTT 5, such as Mosquitto 2",
    )


def _unseen_findings() -> Iterator[Finding]:
    yield Finding(
        "warning",
        "persistence",
        f"{_UNSEEN}; make sure of it",
        "without it a restart of the broker loses all sessions and their messages",
        "persistence true\npersistence_location /var/lib/mosquitto/\nautosave_interval 5",
    )
    yield Finding(
        "warning",
        "persistent_client_expiration",
        f"{_UNSEEN}; make sure of it",
        "a site that is away longer than this loses all messages queued for it",
        "persistent_client_expiration 30d",
    )


def _is_loopback(host: str) -> bool:
    try:
        addresses = {info[4][0] for info in socket.getaddrinfo(host, None)}
    except OSError:
        return False
    return bool(addresses) and all(ipaddress.ip_address(each).is_loopback for each in addresses)


def _client_id() -> str:
    return "speck-check-" + secrets.token_hex(8)
