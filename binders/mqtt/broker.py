"""The contract `MessageBroker` over MQTT."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial

from paho.mqtt.client import MQTTMessage

from binders.mqtt import bookkeeping, check
from binders.mqtt.connection import (
    V5,
    V311,
    Connection,
    LostError,
    NoAnswerError,
    Session,
    UnsupportedVersionError,
)
from speck.binding import BrokerCapability, Finding, Target
from speck.errors import BrokerRefusedError
from speck.model.measurement import BrokerMeasures
from speck.model.observation import BrokerView
from speck.model.site import normalise_address
from speck.sites.credentials import Credentials, read_credentials

log = logging.getLogger(__name__)

SESSION_EXPIRY_S = 30 * 24 * 3600
_LONGEST_TOPIC = 65535 - len(bookkeeping.READERS)

LARGEST_PACKET = 2 * 1024 * 1024
"""The most bytes of a message that a poll takes: the numbers of one job have a few kB."""
MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of all messages of one poll."""
_SKIPPED_KEPT = 1000


class MqttBroker:
    """A broker at `tcp://host:port` or `ssl://host:port` (other forms are normalised).

    Each call opens a connection of its own in the calling thread, so that calls may overlap.
    The capability NUMBERS is dropped once the broker has turned out to speak MQTT 3.1.1 only;
    `reach` tries MQTT 5 again.
    """

    capabilities: frozenset[BrokerCapability]

    def __init__(self, target: Target) -> None:
        try:
            self._target = replace(target, address=normalise_address(target.address))
        except ValueError as error:
            raise BrokerRefusedError(f"cannot use this broker: {error}") from error
        self._version = V5
        self._is_confirmed = False
        """Whether the broker has accepted a connection of this version: later ones are eager."""
        self._totals: dict[str, int] = {}
        self._totals_at = time.monotonic()
        self._skipped: dict[str, str] = {}
        self.capabilities = _capabilities(V5)

    def reach(self) -> str:
        """Connect once; returns `mqtt 5` or `mqtt 3.1.1`."""
        self._version, self._is_confirmed = V5, False
        with self._open(_visitor()) as connection:
            return "mqtt 5" if connection.version == V5 else "mqtt 3.1.1"

    def reserve(self, client_id: str, topic: str, *, fresh: bool = False) -> bool:
        """Create the session and its subscription, and announce that the link has readers; returns
        whether the session existed. With `fresh` the messages of an existing one are dropped.

        No message is taken from the session: acknowledgements are manual and none is sent, and
        Receive Maximum 1 limits the messages that are sent in vain to one.
        """
        _check_topic(topic)
        session = Session(
            client_id,
            clean=fresh,
            expiry_s=SESSION_EXPIRY_S,
            receive_maximum=1,
            manual_ack=True,
            lingers=False,  # the reader itself may take it over
        )
        with self._open(session) as connection:
            connection.await_suback(connection.begin_subscribe(topic, retained=False), topic)
            connection.publish(bookkeeping.READERS + topic, b"some", retain=True)
            if connection.version == V5 or not fresh:
                return connection.session_present
        # in MQTT 3.1.1 a clean session ends with its connection: create a lasting one
        self.reserve(client_id, topic)
        return False

    def release(self, client_id: str, topic: str, *, last_reader: bool) -> None:
        """End the session and clear its reader's numbers; with `last_reader` announce that the link
        has no readers.

        The session ends as the connection begins. If its reader reconnects at once under the same
        client id, the broker ends this connection; then the messages are sent on another one.
        """
        _check_topic(topic)
        messages = {bookkeeping.READERS + topic: b"none"} if last_reader else {}
        messages |= _clearing_messages(client_id)
        # With MQTT 5 nothing is left of the session once these messages are acknowledged.
        with self._open(Session(client_id, lingers=self._version == V311)) as connection:
            try:
                connection.publish_all(messages, retain=True)
                return
            except LostError as error:
                log.info("%s; publishing on another connection", error)
        with self._open(_visitor()) as connection:
            connection.publish_all(messages, retain=True)

    def announce(self, topic: str, *, readers: bool) -> None:
        """Announce to sinks whether the link has readers."""
        _check_topic(topic)
        with self._open(_visitor()) as connection:
            payload = b"some" if readers else b"none"
            connection.publish(bookkeeping.READERS + topic, payload, retain=True)

    def ask_again(self, topic: str) -> None:
        """Send the request to the connected sinks; the others do so by themselves after a restart
        of the broker."""
        _check_topic(topic)
        with self._open(_visitor()) as connection:
            connection.publish(bookkeeping.READERS + topic, bookkeeping.AGAIN)

    def mark(self, client_id: str, mark: str) -> bool:
        """Publish the mark on a topic of the reader's own, to which its session subscribes. With
        MQTT 3.1.1, whose PUBACK does not report subscribers, this always returns True."""
        with self._open(_visitor()) as connection:
            return connection.publish(bookkeeping.MARKS + client_id, mark.encode())

    def view(self) -> BrokerView:
        """Return all readers' taken and all sinks' sent numbers, which links are announced to have
        readers, and values of $SYS where it may be read; unreadable messages are skipped."""
        return self._poll()

    def forget(self, *client_ids: str) -> None:
        """Clear the retained numbers of readers or sinks, if there are any."""
        if not client_ids:
            return
        with self._open(_visitor()) as connection:
            connection.publish_all(_clearing_messages(*client_ids), retain=True)

    def measure(self) -> tuple[BrokerMeasures, BrokerView]:
        """Return the totals of $SYS, at most `sys_interval` old (10 s by default) and all None
        where they may not be read, and the result of `view`, on one connection."""
        now = time.monotonic()
        totals = bookkeeping.Totals(self._totals, now - self._totals_at)
        view = self._poll(totals)
        self._totals, self._totals_at = totals.values(), now
        return totals.measures(), view

    def check(self) -> list[Finding]:
        """Find settings that would lose data or starve jobs, as far as a client can see them, and
        list those that a client cannot see. Each finding has its line for mosquitto.conf."""
        return check.check(self._target, self._credentials(), partial(self._open, eager=False))

    def close(self) -> None:
        """Does nothing: no connection outlives a call."""

    def _poll(self, totals: bookkeeping.Totals | None = None) -> BrokerView:
        """Read the retained messages; with `totals`, those of $SYS as well."""
        retained = bookkeeping.Retained()
        marker = bookkeeping.MARKER + secrets.token_hex(8)
        returned_markers: list[str] = []

        received = 0

        def collect(message: MQTTMessage) -> None:
            nonlocal received
            payload = bytes(message.payload)
            received += len(payload)
            if received > MOST_BYTES:
                raise BrokerRefusedError(
                    f"cannot poll the broker at {self._target.address}: its retained messages below"
                    f" speck/ exceed {MOST_BYTES} bytes; clear those that no job of yours wrote"
                )
            try:
                topic = message.topic
            except UnicodeDecodeError as error:
                self._note_skipped("a topic that is no UTF-8", error)
                return
            if topic == marker:
                returned_markers.append(marker)
                return
            if totals is not None and topic in totals.topics:
                with suppress(ValueError, IndexError):  # another broker may use another format
                    totals.add(topic, payload)
            try:
                retained.add(topic, payload)
            except ValueError as error:
                self._note_skipped(topic, error)

        system = totals.topics if totals else (bookkeeping.UPTIME, bookkeeping.DROPPED)
        topics = [*(topic + "#" for topic in bookkeeping.NUMBERS), marker]
        with self._open(_visitor(), collect) as connection:
            # The broker answers in order: once the marker comes back, all earlier messages have.
            connection.begin_subscribe(*system)  # `check` reports it if this is not allowed
            subscription = connection.begin_subscribe(*topics)
            publication = connection.send(marker, b"")
            connection.await_suback(subscription, *topics)
            connection.await_puback(publication, marker)
            try:
                connection.wait(lambda: bool(returned_markers), "read the retained numbers")
            except NoAnswerError as error:
                raise NoAnswerError(
                    f"{error}; it accepted a message on {marker} but did not deliver it: may this"
                    " user read speck/#?"
                ) from error
        return retained.view()

    def _note_skipped(self, topic: str, error: Exception) -> None:
        """Log a message that cannot be read, once: it is retained, and comes with each poll."""
        if self._skipped.get(topic) == str(error):
            return
        if len(self._skipped) >= _SKIPPED_KEPT:
            self._skipped.clear()
        self._skipped[topic] = str(error)
        log.warning("broker at %s: %s is skipped: %s", self._target.address, topic, error)

    def _credentials(self) -> Credentials:
        file = self._target.credentials
        return read_credentials(file, self._target.address) if file else Credentials()

    def _open(
        self,
        session: Session,
        on_message: Callable[[MQTTMessage], None] | None = None,
        anonymous: bool = False,
        eager: bool = True,
    ) -> Connection:
        deadline = time.monotonic() + self._target.timeout_s
        credentials = self._credentials()
        if anonymous:
            credentials = Credentials(ca=credentials.ca)  # neither a user nor a certificate
        address, on_request = self._target.address, self._target.on_request
        if self._version == V5:
            try:
                connection = Connection(
                    address,
                    credentials,
                    session,
                    deadline,
                    V5,
                    on_message,
                    on_request,
                    eager=eager and self._is_confirmed,
                )
                self._is_confirmed = True
                self.capabilities = _capabilities(V5)
                return connection
            except UnsupportedVersionError as error:
                log.info("broker at %s: falling back to MQTT 3.1.1: %s", address, error)
        connection = Connection(
            address, credentials, session, deadline, V311, on_message, on_request
        )
        self._version = V311
        self.capabilities = _capabilities(V311)
        return connection


def _clearing_messages(*client_ids: str) -> dict[str, bytes]:
    """The messages, by topic, that clear the numbers of readers or sinks."""
    numbers = (bookkeeping.TAKEN, bookkeeping.SENT)
    return {topic + client_id: b"" for client_id in client_ids for topic in numbers}


def _visitor() -> Session:
    """A temporary session that ends with its connection, with a random client id."""
    client_id = "speck-visit-" + secrets.token_hex(8)
    return Session(client_id, lingers=False, most_bytes=LARGEST_PACKET)


def _capabilities(version: int) -> frozenset[BrokerCapability]:
    if version == V5:
        return frozenset({BrokerCapability.SESSIONS, BrokerCapability.NUMBERS})
    return frozenset({BrokerCapability.SESSIONS})


def _check_topic(topic: str) -> None:
    if not topic or any(c in topic for c in "+#\0") or len(topic.encode()) > _LONGEST_TOPIC:
        raise BrokerRefusedError(f"cannot use {topic!r} as a link's topic: no plain MQTT topic")
