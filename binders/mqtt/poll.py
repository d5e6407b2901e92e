"""A poll reads a broker's retained messages; its connection is kept open for the next poll."""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import replace

from paho.mqtt.client import MQTTMessage
from paho.mqtt.enums import MQTTProtocolVersion

from binders.mqtt import bookkeeping
from binders.mqtt.answers import NoAnswerError
from binders.mqtt.channel import KEEPALIVE_S
from binders.mqtt.connection import Connection
from binders.mqtt.opening import Opener, visitor
from binders.mqtt.topics import plain_topic_fault
from speck.binding import Target
from speck.errors import BrokerRefusedError, SpeckError
from speck.model.observation import BrokerView
from speck.sites.credentials import Credentials
from speck.spec.json_size import count_values

log = logging.getLogger(__name__)

MOST_BYTES = 64 * 1024 * 1024
"""The most bytes of all messages of one poll, with their topics."""
_MESSAGE_BYTES = 200
"""What a message takes beside its text: a broker may send millions of empty ones."""
MOST_VALUES = 600_000
"""The most values in all messages of one poll: those of ten thousand jobs hold 420 000."""
LONGEST_IDLE_S = KEEPALIVE_S * 0.75
"""A connection idle for longer is not used again: no PINGREQ is sent meanwhile, so that the broker
itself closes the connections of sites that are no longer polled (after 1.5 keep-alives)."""
_UPTIME_AGE_S = 13.0
"""How old the uptime in $SYS may be: Mosquitto publishes it every `sys_interval` (10 s by default)
and a second, in whole seconds."""
_SKIPPED_KEPT = 1000
_SKIPPED_SHOWN = 200
"""Messages that are logged because they cannot be read, and characters of each: a broker may send
millions of them with each poll."""
LONGEST_KEPT_S = 600.0
"""The greatest age of a connection: by then, a poll shows if the broker would refuse a new one."""


class Poll:
    """The messages of one poll, collected on a connection that has no other use meanwhile.

    Only retained messages count: they are the state at the time of SUBSCRIBE. A broker sends them
    with the RETAIN flag, and the changes after it without. Such a change may also be a late one
    of the connection's poll before, and older than what is retained by now.
    """

    def __init__(
        self,
        address: str,
        record_skipped: Callable[[str, Exception], None],
        totals: bookkeeping.Totals | None = None,
        client_ids: Collection[str] | None = None,
    ) -> None:
        """With `totals`, those of $SYS are read as well; with `client_ids` nothing but the numbers
        of these clients, the broker's identity, and how long it has run."""
        self.totals = totals
        self._address = address
        self._record_skipped = record_skipped
        self._retained = bookkeeping.Retained()
        self._received = 0
        self._values = 0
        self._marker = bookkeeping.MARKER + secrets.token_hex(8)
        self._is_complete = False
        self._own = (*_list_topics(client_ids), bookkeeping.BROKER, self._marker)
        self._topics = (*self._own, bookkeeping.UPTIME)
        if client_ids is None:
            system = totals.topics if totals else (bookkeeping.UPTIME, bookkeeping.DROPPED)
            self._topics = (*self._own, *system, bookkeeping.BRIDGES)
        self._publication = 0
        self._connected_at = self._ended_at = math.inf

    def begin(self, connection: Connection) -> None:
        """Send all requests, and wait until the broker answers."""
        self._connected_at = connection.opened_at
        subscription = connection.begin_subscribe(*self._topics)
        self._publication = connection.send(self._marker, b"")
        # $SYS may be refused: `check` reports that
        connection.await_suback(subscription, *self._own)

    def finish(self, connection: Connection) -> None:
        """Read the messages up to the marker, and unsubscribe.

        The broker answers in order: once the marker comes back, all earlier messages have."""
        connection.await_puback(self._publication, self._marker)
        try:
            connection.wait(lambda: self._is_complete, "read the retained numbers")
        except NoAnswerError as error:
            raise NoAnswerError(
                f"{error}; it accepted a message on {self._marker} but did not deliver it: may this"
                " user read speck/#?"
            ) from error
        connection.begin_unsubscribe(*self._topics)
        self._ended_at = time.monotonic()

    def view(self) -> BrokerView:
        """What was read."""
        view = self._retained.view()
        started = math.inf if view.uptime_s is None else self._ended_at - view.uptime_s
        return replace(
            view,
            up_since=min(started, self._connected_at),
            started_after=-math.inf if view.uptime_s is None else started - _UPTIME_AGE_S,
        )

    def collect(self, message: MQTTMessage) -> None:
        """Add a message. Raises BrokerRefusedError if there are too many."""
        try:
            topic = message.topic
        except UnicodeDecodeError as error:
            self._record_skipped("a topic that is no UTF-8", error)
            return
        if topic == self._marker:
            self._is_complete = True
            return
        if not message.retain:
            return
        payload = bytes(message.payload)
        self._count(topic, payload)
        if self.totals is not None and topic in self.totals.topics:
            with suppress(ValueError, IndexError):  # another broker may use another format
                self.totals.add(topic, payload)
        try:
            self._retained.add(topic, payload)
        except (ValueError, IndexError) as error:
            self._record_skipped(topic, error)

    def _count(self, topic: str, payload: bytes) -> None:
        """Count what a message becomes. Raises BrokerRefusedError."""
        self._received += len(topic) + len(payload) + _MESSAGE_BYTES
        self._values += count_values(payload, MOST_VALUES - self._values)
        exceeded = None
        if self._received > MOST_BYTES:
            exceeded = f"{MOST_BYTES} bytes"
        elif self._values > MOST_VALUES:
            exceeded = f"{MOST_VALUES} values"
        if exceeded is not None:
            raise BrokerRefusedError(
                f"cannot poll the broker at {self._address}: its retained messages below"
                f" speck/ exceed {exceeded}; clear those that no job of yours wrote"
            )


def _list_topics(client_ids: Collection[str] | None) -> list[str]:
    """The filters of clients' numbers; None: of all that is kept. A client whose id is no part of a
    topic reports no numbers."""
    if client_ids is None:
        return [topic + "#" for topic in bookkeeping.RETAINED]
    topics = (kind + each for each in client_ids for kind in (bookkeeping.TAKEN, bookkeeping.SENT))
    return [topic for topic in topics if plain_topic_fault(topic) is None]


class KeptConnection:
    """At most one idle connection of a broker's polls. Polls may overlap: one takes it, and the
    others open connections of their own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connection: Connection | None = None
        self._is_closed = False
        self._used_at = 0.0

    def take(self, version: MQTTProtocolVersion, credentials: Credentials) -> Connection | None:
        """The connection, if it is still what a new one would be. It belongs to the caller."""
        with self._lock:
            connection, self._connection = self._connection, None
            used_at = self._used_at
        if connection is None:
            return None
        now = time.monotonic()
        if (
            now - used_at < LONGEST_IDLE_S
            and now - connection.opened_at < LONGEST_KEPT_S
            and connection.is_like(version, credentials)
        ):
            return connection
        connection.close()
        return None

    def put(self, connection: Connection) -> None:
        """Keep a connection with no subscriptions, or close it."""
        connection.pause()
        with self._lock:
            is_wanted = self._connection is None and not self._is_closed and connection.is_open
            if is_wanted:
                self._connection, self._used_at = connection, time.monotonic()
        if not is_wanted:
            connection.close()

    def close(self) -> None:
        """Close the connection, and keep none from now on."""
        with self._lock:
            connection, self._connection = self._connection, None
            self._is_closed = True
        if connection is not None:
            connection.close()


class Poller:
    """Polls one broker, if possible on the connection of the poll before."""

    def __init__(self, target: Target, opener: Opener) -> None:
        self._target = target
        self._opener = opener
        self._kept = KeptConnection()
        self._skipped: dict[str, str] = {}

    def poll(
        self,
        make_totals: Callable[[], bookkeeping.Totals | None] = lambda: None,
        client_ids: Collection[str] | None = None,
    ) -> Poll:
        """Read the retained messages; with `make_totals`, those of $SYS as well; with `client_ids`
        only those of these clients."""

        def make_poll() -> Poll:
            return Poll(self._target.address, self._record_skipped, make_totals(), client_ids)

        poll, connection = self._begin(make_poll)
        with connection.dropped_on_error():
            poll.finish(connection)
        self._kept.put(connection)
        return poll

    def publish(self, messages: Mapping[str, bytes]) -> bool:
        """Publish retained messages on the connection between polls; whether that was open."""
        connection = self._kept.take(self._opener.version, self._opener.credentials())
        if connection is None:
            return False
        connection.resume(time.monotonic() + self._target.timeout_s / 2)
        try:
            with connection.dropped_on_error():
                connection.publish_all(messages, retain=True)
        except SpeckError as error:
            log.debug("%s; publishing on a new connection", error)
            return False
        self._kept.put(connection)
        return True

    def close(self) -> None:
        """Close the connection between polls, if there is one."""
        self._kept.close()

    def _begin(self, make_poll: Callable[[], Poll]) -> tuple[Poll, Connection]:
        now, timeout_s = time.monotonic(), self._target.timeout_s
        connection = self._kept.take(self._opener.version, self._opener.credentials())
        if connection is not None:
            poll = make_poll()
            # The broker may have ended it, or a network may have forgotten it without a word: half
            # of the time is left for a new one, which reports what is wrong.
            connection.resume(now + timeout_s / 2, poll.collect)
            try:
                with connection.dropped_on_error():
                    poll.begin(connection)
            except SpeckError as error:
                log.debug("%s; polling on a new connection", error)
            else:
                connection.deadline = now + timeout_s
                return poll, connection
        poll = make_poll()
        connection = self._opener.open(visitor(), poll.collect, deadline=now + timeout_s)
        with connection.dropped_on_error():
            poll.begin(connection)
        return poll, connection

    def _record_skipped(self, topic: str, error: Exception) -> None:
        """Log a message that cannot be read, once: it is retained, and comes with each poll."""
        topic, why = topic[:_SKIPPED_SHOWN], str(error)[:_SKIPPED_SHOWN]
        is_new = topic not in self._skipped
        if self._skipped.get(topic) == why or (is_new and len(self._skipped) >= _SKIPPED_KEPT):
            return
        self._skipped[topic] = why
        log.warning("broker at %s: %s is skipped: %s", self._target.address, topic, why)
        if is_new and len(self._skipped) == _SKIPPED_KEPT:
            log.warning("broker at %s: no further ones are logged", self._target.address)
