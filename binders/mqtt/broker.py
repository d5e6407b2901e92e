"""The contract `MessageBroker` over MQTT."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

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
from binders.mqtt.credentials import Credentials, read_credentials
from speck.binding import BrokerCapability, Finding, Target
from speck.errors import BrokerRefusedError
from speck.model.measurement import BrokerMeasures
from speck.model.observation import BrokerView
from speck.model.site import normalise_address

log = logging.getLogger(__name__)

SESSION_EXPIRY_S = 30 * 24 * 3600
_LONGEST_TOPIC = 65535 - len(bookkeeping.READERS)


class MqttBroker:
    """A broker at `tcp://host:port` or `ssl://host:port` (other forms are normalised).

    Each call opens a connection of its own in the calling thread, so calls may overlap.
    Capability NUMBERS is taken back once the broker has turned out to know MQTT 3.1.1 only;
    `reach` asks again.
    """

    capabilities: frozenset[BrokerCapability]

    def __init__(self, target: Target) -> None:
        try:
            self._target = replace(target, address=normalise_address(target.address))
        except ValueError as error:
            raise BrokerRefusedError(f"cannot use this broker: {error}") from error
        self._version = V5
        self._totals: dict[str, int] = {}
        self._totals_at = time.monotonic()
        self.capabilities = _capabilities(V5)

    def reach(self) -> str:
        """Connect once; `mqtt 5` or `mqtt 3.1.1`."""
        self._version = V5
        with self._open(_visitor()) as connection:
            return "mqtt 5" if connection.version == V5 else "mqtt 3.1.1"

    def reserve(self, client_id: str, topic: str, *, fresh: bool = False) -> bool:
        """Make the session and its subscription, announce that the link has readers; whether
        the session was there. With `fresh` what waits in one that is there is dropped.

        Nothing that waits in the session is taken: acknowledgements are manual and none is
        sent, and Receive Maximum 1 keeps all but one message from travelling in vain.
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
            connection.await_suback(connection.ask(topic, retained=False), topic)
            connection.publish(bookkeeping.READERS + topic, b"some", retain=True)
            if connection.version == V5 or not fresh:
                return connection.session_present
        # in MQTT 3.1.1 a clean session ends with its connection
        self.reserve(client_id, topic)
        return False

    def release(self, client_id: str, topic: str, *, last_reader: bool) -> None:
        """End the session and clear its reader's numbers; with `last_reader` announce that nobody
        reads the link.

        The session ends as the connection begins. A reader that comes back at once under its
        client id ends the connection: what was to be said is said beside it then.
        """
        _check_topic(topic)
        said = {bookkeeping.READERS + topic: b"none"} if last_reader else {}
        said |= _cleared(client_id)
        with self._open(Session(client_id)) as connection:
            try:
                connection.publish_all(said, retain=True)
                return
            except LostError as error:
                log.info("%s; says it on another connection", error)
        with self._open(_visitor()) as connection:
            connection.publish_all(said, retain=True)

    def announce(self, topic: str, *, readers: bool) -> None:
        """Tell sinks whether the link has readers."""
        _check_topic(topic)
        with self._open(_visitor()) as connection:
            said = b"some" if readers else b"none"
            connection.publish(bookkeeping.READERS + topic, said, retain=True)

    def ask_again(self, topic: str) -> None:
        """Say so to the sinks that are connected; others go by what the broker has saved."""
        _check_topic(topic)
        with self._open(_visitor()) as connection:
            connection.publish(bookkeeping.READERS + topic, bookkeeping.AGAIN)

    def mark(self, client_id: str, mark: str) -> bool:
        """Publish it where the reader listens beside its link. MQTT 3.1.1 does not tell whether
        anybody does: always True there."""
        with self._open(_visitor()) as connection:
            return connection.publish(bookkeeping.MARKS + client_id, mark.encode())

    def view(self) -> BrokerView:
        """All readers' taken and all sinks' sent numbers, which links are announced to have
        readers, and what $SYS tells where it may be read; an unreadable one is skipped."""
        return self._poll()

    def forget(self, *client_ids: str) -> None:
        """Clear the retained numbers of readers or sinks; harmless when there are none."""
        if not client_ids:
            return
        with self._open(_visitor()) as connection:
            connection.publish_all(_cleared(*client_ids), retain=True)

    def measure(self) -> tuple[BrokerMeasures, BrokerView]:
        """The totals of $SYS, as new as the broker's `sys_interval` (10 s by default) and all None
        where they may not be read; with what `view` tells, on one connection."""
        now = time.monotonic()
        totals = bookkeeping.Totals(self._totals, now - self._totals_at)
        view = self._poll(totals)
        self._totals, self._totals_at = totals.known(), now
        return totals.measures(), view

    def check(self) -> list[Finding]:
        """What can be seen from outside of settings that would lose data or starve jobs, and
        what cannot be seen and must be made sure of. Each finding holds the line that mends
        it in mosquitto.conf."""
        return check.check(self._target, self._credentials(), self._open)

    def close(self) -> None:
        """Nothing is kept between calls."""

    def _poll(self, totals: bookkeeping.Totals | None = None) -> BrokerView:
        """What is retained; `totals` take note of $SYS, too."""
        read = bookkeeping.Retained()
        marker = bookkeeping.MARKER + secrets.token_hex(8)
        back: list[str] = []

        def note(message: MQTTMessage) -> None:
            topic, payload = message.topic, bytes(message.payload)
            if topic == marker:
                back.append(marker)
                return
            if totals is not None and topic in totals.topics:
                with suppress(ValueError, IndexError):  # another broker's own wording
                    totals.note(topic, payload)
            try:
                read.note(topic, payload)
            except ValueError as error:
                log.warning("broker at %s: %s is skipped: %s", self._target.address, topic, error)

        own = totals.topics if totals else (bookkeeping.UPTIME, bookkeeping.DROPPED)
        topics = [*(topic + "#" for topic in bookkeeping.NUMBERS), marker]
        with self._open(_visitor(), note) as connection:
            # The broker answers in order: once the marker comes back, so has all before it.
            connection.ask(*own)  # `check` says if it may not
            asked = connection.ask(*topics)
            told = connection.send(marker, b"")
            connection.await_suback(asked, *topics)
            connection.await_puback(told, marker)
            try:
                connection.wait(lambda: bool(back), "read the retained numbers")
            except NoAnswerError as error:
                raise NoAnswerError(
                    f"{error}; it took a message on {marker} and did not hand it back: may this"
                    " user read speck/#?"
                ) from error
        return read.view()

    def _credentials(self) -> Credentials:
        file = self._target.credentials
        return read_credentials(file, self._target.address) if file else Credentials()

    def _open(
        self,
        session: Session,
        on_message: Callable[[MQTTMessage], None] | None = None,
        anonymous: bool = False,
    ) -> Connection:
        deadline = time.monotonic() + self._target.timeout_s
        credentials = self._credentials()
        if anonymous:
            credentials = Credentials(ca=credentials.ca)
        address = self._target.address
        if self._version == V5:
            try:
                connection = Connection(address, credentials, session, deadline, V5, on_message)
                self.capabilities = _capabilities(V5)
                return connection
            except UnsupportedVersionError as error:
                log.info("broker at %s: falling back to MQTT 3.1.1: %s", address, error)
        connection = Connection(address, credentials, session, deadline, V311, on_message)
        self._version = V311
        self.capabilities = _capabilities(V311)
        return connection


def _cleared(*client_ids: str) -> dict[str, bytes]:
    """What is said, by topic, to clear the numbers of readers or sinks."""
    numbers = (bookkeeping.TAKEN, bookkeeping.SENT)
    return {topic + client_id: b"" for client_id in client_ids for topic in numbers}


def _visitor() -> Session:
    """A session that ends with its connection, under a client id of its own."""
    return Session("speck-visit-" + secrets.token_hex(8), lingers=False)


def _capabilities(version: int) -> frozenset[BrokerCapability]:
    if version == V5:
        return frozenset({BrokerCapability.SESSIONS, BrokerCapability.NUMBERS})
    return frozenset({BrokerCapability.SESSIONS})


def _check_topic(topic: str) -> None:
    if not topic or any(c in topic for c in "+#\0") or len(topic.encode()) > _LONGEST_TOPIC:
        raise BrokerRefusedError(f"cannot use {topic!r} as a link's topic: no plain MQTT topic")
