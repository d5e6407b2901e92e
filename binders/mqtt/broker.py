"""The contract `MessageBroker` over MQTT."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from paho.mqtt.client import MQTTMessage

from binders.mqtt import bookkeeping, check
from binders.mqtt.answers import LostError, TopicRefusedError
from binders.mqtt.channel import V5, V311
from binders.mqtt.connect_options import ConnectOptions
from binders.mqtt.connection import Connection, read_topic
from binders.mqtt.links import MqttLinks
from binders.mqtt.opening import Opener, visitor
from binders.mqtt.poll import Poller
from binders.mqtt.records import read_records
from binders.mqtt.topics import ADDRESSES, plain_topic_fault, topic_fault, topic_matches
from speck.binding import AddressRules, BrokerCapability, LinkClient, Reservation, Target
from speck.errors import BrokerRefusedError, PermanentError, TransientError
from speck.model.finding import Finding
from speck.model.measurement import BrokerMeasures
from speck.model.observation import BrokerView, Position
from speck.model.record import Record
from speck.model.values import show

log = logging.getLogger(__name__)

SESSION_EXPIRY_S = 30 * 24 * 3600

LARGEST_TAPPED = 18 * 1024 * 1024
"""The most bytes of a message that a tap takes: the largest batch, and its properties."""
CHECK_S = 30.0
"""Seconds that all connections of a check together may take."""
_FEW_CLIENTS = 64
"""Clients whose topics are read one by one: a broker may take no more in one SUBSCRIBE."""
_FRESH_TRIES = 3
_TAP_S = 0.2
_LONGEST_IDENTITY = 33


class MqttBroker:
    """A broker at `tcp://host:port` or `ssl://host:port` (other forms are normalised).

    Each call uses a connection of its own in the calling thread, so that calls may overlap. `view`
    and `measure` leave theirs open for the next of them and for `forget`; the other calls close it.
    The capability NUMBERS is dropped once the broker has turned out to speak MQTT 3.1.1 only;
    `reach` tries MQTT 5 again.
    """

    addresses: AddressRules | None = ADDRESSES
    topic_fault = staticmethod(topic_fault)
    topic_matches = staticmethod(topic_matches)
    links: type[LinkClient] | None = MqttLinks

    def __init__(self, target: Target) -> None:
        try:
            self._target = replace(target, address=ADDRESSES.normalise(target.address))
        except ValueError as error:
            raise BrokerRefusedError(f"cannot use this broker: {error}") from error
        self._opener = Opener(self._target)
        self._poller = Poller(self._target, self._opener)
        self._totals: dict[str, int] = {}
        self._totals_at = time.monotonic()

    @property
    def capabilities(self) -> frozenset[BrokerCapability]:
        without = {BrokerCapability.NUMBERS} if self._opener.last_spoken != V5 else set()
        return frozenset(BrokerCapability) - without

    def reach(self) -> str:
        """Connect once; returns `mqtt 5` or `mqtt 3.1.1`."""
        self._opener.forget_version()
        with self._opener.open(visitor()) as connection:
            return "mqtt 5" if connection.version == V5 else "mqtt 3.1.1"

    def identify(self, proposed: str | None = None) -> str | None:
        """Read the identity behind a marker, which comes after what is retained; write it if there
        is none, and read again: another service may have written one at the same time."""
        identity = self._read_identity()
        if identity is None and proposed is not None:
            with self._opener.open(visitor()) as connection:
                connection.publish(bookkeeping.BROKER, proposed.encode(), retain=True)
            identity = self._read_identity()
        return identity

    def _read_identity(self) -> str | None:
        values: dict[str, bytes] = {}
        marker = bookkeeping.MARKER + secrets.token_hex(8)

        def collect(message: MQTTMessage) -> None:
            if (topic := read_topic(message)) in (bookkeeping.BROKER, marker):
                values[topic] = bytes(message.payload[:_LONGEST_IDENTITY])

        with self._opener.open(visitor(), collect) as connection:
            connection.subscribe(bookkeeping.BROKER, marker)
            connection.publish(marker, b"")
            connection.wait(lambda: marker in values, "read the broker's identity")
        return bookkeeping.read_identity(values.get(bookkeeping.BROKER, b""))

    def reserve(
        self,
        reader: str,
        topic: str,
        *,
        fresh: bool = False,
        first: bool = False,
        lost: bool = False,
        at: Position | None = None,
    ) -> Reservation:
        """Create the session and its subscription, and announce it and that the link has readers;
        returns whether the session existed. With `fresh` the messages of an existing one are
        dropped.

        One that is missing and not the `first` of its reader is lost: sinks send again what is not
        long ago. Some of that may be in the new session, too, and comes twice, under one stamp:
        an acknowledgement says that somebody has subscribed, not who.

        No message is taken from the session: acknowledgements are manual and none is sent, and
        Receive Maximum 1 limits the messages that are sent in vain to one.

        A broker that keeps sessions for a shorter time than requested says so. (For those of MQTT
        3.1.1 it cannot.)

        Also a fresh session is made with Clean Start 0: Mosquitto does not write a session to its
        file that began with Clean Start 1, whatever its expiry, and loses it when it is killed.
        The announcement follows the session, so that a file with the one has the other, too.
        """
        _check_topic(topic)
        options = ConnectOptions(
            reader,
            clean=False,
            expiry_s=SESSION_EXPIRY_S,
            receive_maximum=1,
            manual_ack=True,
            lingers=False,  # the reader itself may take it over
        )
        for _ in range(_FRESH_TRIES):
            with self._opener.open(options) as connection:
                connection.await_suback(connection.begin_subscribe(topic, retained=False), topic)
                existed = connection.session_present
                if not (fresh and existed):
                    if lost or not (existed or fresh or first):
                        # first: at the announcement sinks that miss this session send everything
                        connection.publish(bookkeeping.READERS + topic, bookkeeping.AGAIN)
                    made = bookkeeping.session_topic(topic, reader)
                    messages = {bookkeeping.READERS + topic: b"some", made: bookkeeping.MADE}
                    # on this connection only: the next one may be of another life of the broker
                    connection.publish_all(messages, retain=True)
                    expiry = connection.connack.get("SessionExpiryInterval", SESSION_EXPIRY_S)
                    return Reservation(existed, kept_s=float(expiry))
            self._end_session(reader)
        raise TransientError(
            f"cannot begin an empty session of {reader} at {self._target.address}: its reader"
            " makes it again and again; end that client"
        )

    def _end_session(self, client_id: str) -> None:
        """End a session. The broker does so before it accepts the connection, whose own session
        ends with it or as the next one takes it over."""
        wiping = ConnectOptions(client_id, lingers=self._opener.version == V311)
        with self._opener.open(wiping, eager=False):
            pass

    def release(self, reader: str, topic: str, *, last_reader: bool) -> None:
        """End the session and clear its reader's numbers; with `last_reader` announce that the link
        has no readers.

        The session ends as the connection begins. If its reader reconnects at once under the same
        client id, the broker ends this connection; then the messages are sent on another one.

        A topic that the broker does not take has no announcements, and prevents no release.
        """
        announcements = {bookkeeping.READERS + topic: b"none"} if last_reader else {}
        announcements |= {bookkeeping.session_topic(topic, reader): b""}
        if plain_topic_fault(topic) is not None:
            announcements.clear()
        numbers = {bookkeeping.TAKEN + reader: b""}
        # With MQTT 5 nothing is left of the session once these messages are acknowledged.
        with self._opener.open(
            ConnectOptions(reader, lingers=self._opener.version == V311)
        ) as connection:
            try:
                connection.publish_all(announcements | numbers, retain=True)
                return
            except (LostError, TopicRefusedError) as error:
                log.info("%s; publishing on another connection", error)
        self._publish_singly(numbers)
        try:
            self._publish_singly(announcements)
        except TopicRefusedError as error:
            log.info("%s; so nothing is announced there", error)

    def _publish_singly(self, messages: Mapping[str, bytes]) -> None:
        """Publish retained messages one by one: a broker that refuses one may close the connection
        with the reason, but what is sent behind that message makes TCP reset it, without."""
        with self._opener.open(visitor(), eager=False) as connection:
            for topic, payload in messages.items():
                connection.publish(topic, payload, retain=True)

    def announce(self, topic: str, *, readers: bool) -> None:
        """Announce to sinks whether the link has readers. A topic that the broker does not take
        has none."""
        if readers:
            _check_topic(topic)
        elif plain_topic_fault(topic) is not None:
            return
        with self._opener.open(visitor()) as connection:
            payload = b"some" if readers else b"none"
            try:
                connection.publish(bookkeeping.READERS + topic, payload, retain=True)
                return
            except TopicRefusedError as error:
                if readers:
                    raise
                log.info("%s; the link has no readers", error)

    def confirm_sessions(self, topic: str, readers: Iterable[str]) -> bool:
        """Read which sessions are announced and tell the sinks on one connection, that is, of one
        life of the broker."""
        _check_topic(topic)
        announced_topics: set[str] = set()
        marker = bookkeeping.MARKER + secrets.token_hex(8)

        expected = {bookkeeping.session_topic(topic, reader) for reader in readers}

        def collect(message: MQTTMessage) -> None:
            if (announced := read_topic(message)) in {*expected, marker}:
                announced_topics.add(announced)

        with self._opener.open(visitor(), collect) as connection:
            own = (bookkeeping.session_topic(topic, "+"), marker)
            connection.subscribe(*own)
            connection.publish(marker, b"")
            connection.wait(lambda: marker in announced_topics, "read the sessions of a link")
            if not expected <= announced_topics:
                return False
            connection.publish(bookkeeping.READERS + topic, bookkeeping.COMPLETE)
            return True

    def mark(self, reader: str, mark: str) -> bool:
        """Publish the mark on a topic of the reader's own, to which its session subscribes. With
        MQTT 3.1.1, whose PUBACK does not report subscribers, this always returns True."""
        with self._opener.open(visitor()) as connection:
            return connection.publish(bookkeeping.MARKS + reader, mark.encode())

    def publish(self, topic: str, payloads: Sequence[bytes]) -> int:
        """Publish at QoS 1. With MQTT 3.1.1, whose PUBACK does not report subscribers, each record
        counts as one that found a reader."""
        _check_topic(topic)
        with self._opener.open(visitor()) as connection:
            read = connection.publish_each([(topic, payload) for payload in payloads])
            return read.count(False)

    def tap(
        self, topic: str, on_record: Callable[[Record], None], go_on: Callable[[], bool]
    ) -> None:
        """Subscribe in a session that ends with the connection, without retained messages, and
        without those larger than `LARGEST_TAPPED`. A damaged batch is handed over as one record."""
        _check_topic(topic)

        def hand_over(message: MQTTMessage) -> None:
            for record in _records_of(message):
                on_record(record)

        client_id = "speck-tap-" + secrets.token_hex(8)
        options = ConnectOptions(client_id, lingers=False, most_bytes=LARGEST_TAPPED)
        with self._opener.open(options, hand_over) as connection:
            connection.await_suback(connection.begin_subscribe(topic, retained=False), topic)
            while go_on():
                connection.listen(_TAP_S)

    def view(self, clients: Collection[str] | None = None) -> BrokerView:
        """Return all readers' taken and all sinks' sent numbers, which links are announced to have
        readers, and values of $SYS where it may be read; unreadable messages are skipped. Of a few
        `clients` only their topics are read."""
        if clients is not None and len(clients) > _FEW_CLIENTS:
            clients = None
        return self._poller.poll(client_ids=clients).view()

    def forget(self, *sinks: str) -> None:
        """Clear the retained numbers of sinks, if there are any: on the connection between polls,
        if that is open, which saves a new one."""
        if not sinks:
            return
        messages = {bookkeeping.SENT + client_id: b"" for client_id in sinks}
        if self._poller.publish(messages):
            return
        with self._opener.open(visitor()) as connection:
            connection.publish_all(messages, retain=True)

    def measure(self) -> tuple[BrokerMeasures, BrokerView]:
        """Return the totals of $SYS, at most `sys_interval` old (10 s by default) and all None
        where they may not be read, and the result of `view`, on one connection."""
        now = time.monotonic()
        before, elapsed_s = self._totals, now - self._totals_at
        poll = self._poller.poll(lambda: bookkeeping.Totals(before, elapsed_s))
        assert poll.totals is not None
        self._totals, self._totals_at = poll.totals.values(), now
        return poll.totals.measures(), poll.view()

    def check(self) -> list[Finding]:
        """Find settings that would lose data or starve jobs, as far as a client can see them, and
        list those that a client cannot see. Each finding has its line for mosquitto.conf. All its
        connections together end within `CHECK_S`."""
        end = time.monotonic() + CHECK_S

        def open_(
            options: ConnectOptions,
            on_message: Callable[[MQTTMessage], None] | None = None,
            anonymous: bool = False,
        ) -> Connection:
            deadline = min(end, time.monotonic() + self._target.timeout_s)
            return self._opener.open(options, on_message, anonymous, eager=False, deadline=deadline)

        return check.check(self._target, self._opener.credentials(), open_)

    def close(self) -> None:
        """Close the connection between polls, if there is one."""
        self._poller.close()


def _records_of(message: MQTTMessage) -> list[Record]:
    try:
        return read_records(message)
    except PermanentError:
        return [Record(None, bytes(message.payload))]


def _check_topic(topic: str) -> None:
    if fault := plain_topic_fault(topic):
        raise BrokerRefusedError(f"cannot use {show(topic)} as a link's topic: it {fault}")
