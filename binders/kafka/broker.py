"""The contract `MessageBroker` over Kafka."""

from __future__ import annotations

import base64
import binascii
import hashlib
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kafka.errors import KafkaError

from binders.kafka import check, groups
from binders.kafka.answers import LiveReaderError, explain
from binders.kafka.client import Call, Client
from binders.kafka.log_reader import LogReader, record_of
from binders.kafka.logs import make_link, read_logs
from binders.kafka.places import (
    Log,
    Place,
    Places,
    begin,
    find_there,
    position_of,
    taken_of,
    write_report,
)
from binders.kafka.tails import Tails
from binders.kafka.topics import ADDRESSES, CAPABILITIES, topic_fault
from binders.kafka.totals import Totals
from speck.binding import Reservation, Target
from speck.errors import BrokerRefusedError, PermanentError
from speck.model.finding import Finding
from speck.model.measurement import BrokerMeasures
from speck.model.observation import BrokerView, Position
from speck.model.record import Record
from speck.model.values import show

log = logging.getLogger(__name__)

_TAP_S = 0.2
_IN_ORDER = {"enable_idempotence": False, "max_in_flight_requests_per_connection": 1}
"""A producer that numbers its records for the broker is told its id first: half a second."""
_FIRST_PART = 0
"""Records that are published by hand keep their order, also in a topic of many partitions."""


class KafkaBroker:
    """A cluster at `kafka://host:port` or `kafka+ssl://host:port`; several of its hosts may stand
    between commas.

    One client is kept for requests, which may overlap; `publish` and `tap` open their own.
    """

    capabilities = CAPABILITIES

    def __init__(self, target: Target) -> None:
        try:
            target = replace(target, address=ADDRESSES.normalise(target.address))
        except ValueError as error:
            raise BrokerRefusedError(f"cannot use this broker: {error}") from error
        self._target = target
        self._client = Client(target)
        self._tails = Tails()
        self._totals = Totals()
        self._kept_s: float | None = None
        self._links: set[str] = set()

    def reach(self) -> str:
        """Ask for the cluster's nodes; returns `kafka`."""
        self._find_cluster_id(self._client.begin())
        return "kafka"

    def identify(self, proposed: str | None = None) -> str | None:
        """The cluster's own id, which is on the disks with its topics and groups."""
        return self._find_cluster_id(self._client.begin())

    @staticmethod
    def _find_cluster_id(call: Call) -> str | None:
        cluster = call.ask("describe the cluster", lambda admin: admin.describe_cluster())
        return _hex_of(cluster["cluster_id"])

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
        """Make the topic unless it is there, and commit an offset for the group `reader`. An offset
        that is there is committed again, which begins the time anew after which Kafka forgets it.

        Kafka refuses this while the group has members, but knows nothing of simple consumers.
        """
        _check_topic(topic)
        call = self._client.begin()
        log_ = make_link(call, topic)
        places_of, _ = groups.read_groups(call, [reader])
        places = places_of[reader].get(topic, {})
        there = find_there(places, log_)
        existed = there is not None
        if there is None or fresh:
            there = self._make_place(call, reader, topic, log_, None if fresh else at)
        else:
            self._renew(call, reader, topic, there)
        groups.announce(call, reader, topic, log_)
        self._links.add(topic)
        self._target.on_request()
        return Reservation(existed, position_of(there, log_), self._read_kept_s(call))

    @staticmethod
    def _make_place(call: Call, reader: str, topic: str, log_: Log, at: Position | None) -> Places:
        offsets = begin(log_, at)
        epochs = {part: extent.epoch for part, extent in log_.parts.items() if at is None}
        groups.commit(call, reader, topic, offsets, write_report(id=log_.id), epochs)
        return {part: Place(offset) for part, offset in offsets.items()}

    @staticmethod
    def _renew(call: Call, reader: str, topic: str, there: Places) -> None:
        """The place of a reader that is connected as a member needs no renewal."""
        metadata = {part: place.report for part, place in there.items()}
        offsets = {part: place.offset for part, place in there.items()}
        epochs = {part: place.epoch for part, place in there.items()}
        report = {key: value for key, value in next(iter(metadata.values())).items() if key != "v"}
        try:
            groups.commit(call, reader, topic, offsets, write_report(**report), epochs)
        except LiveReaderError as error:
            log.debug("%s; its place is kept", error)

    def _read_kept_s(self, call: Call) -> float | None:
        if self._kept_s is None:
            self._kept_s = check.read_kept_s(call)
        return self._kept_s

    def release(self, reader: str, topic: str, *, last_reader: bool) -> None:
        """Delete the group; if it has places on other topics, too, mark this one as released."""
        call = self._client.begin()
        if topic_fault(topic) is None:
            groups.release(call, reader, topic)
            if not reader.startswith(groups.OWN):
                groups.release(call, groups.MARKER + reader, topic)
        self._target.on_request()

    def publish(self, topic: str, payloads: Sequence[bytes]) -> int:
        """Publish with the acknowledgements of all replicas. A log keeps what nobody reads yet; but
        a reader that comes later begins at its end."""
        _check_topic(topic)
        call = self._client.begin()
        make_link(call, topic)
        settings = {**_IN_ORDER, "max_block_ms": _ms(call.rest_s)}
        doing = f"publish to {topic}"
        producer = self._client.producer(settings, call.deadline)
        try:
            sent = [producer.send(topic, payload, partition=_FIRST_PART) for payload in payloads]
            self._target.on_request()
            for future in sent:
                future.get(timeout=max(0.1, call.rest_s))
        except KafkaError as error:
            raise explain(error, self._target.address, doing) from error
        finally:
            producer.close(timeout=0)
        call = self._client.begin()
        readers, _ = groups.read_groups(call, groups.list_readers(call))
        return 0 if any(topic in places for places in readers.values()) else len(payloads)

    def tap(
        self, topic: str, on_record: Callable[[Record], None], go_on: Callable[[], bool]
    ) -> None:
        """Read from the end on, in no group. A topic that is not there yet is read from its
        beginning as soon as it is."""
        _check_topic(topic)
        call = self._client.begin()
        logs = read_logs(call, [topic])
        is_new = not logs
        while not logs:
            if not go_on():
                return
            time.sleep(_TAP_S)
            call = self._client.begin()
            logs = read_logs(call, [topic])
        parts = logs[topic].parts.items()
        offsets = {part: extent.start if is_new else extent.end for part, extent in parts}
        with LogReader(self._client, topic, offsets, call.deadline) as reader:
            while go_on():
                for message in reader.read(_TAP_S):
                    on_record(_record_of(message))

    def view(self, clients: Collection[str] | None = None) -> BrokerView:
        """The places of all readers, or of a few, and after them the ends of all links, also of
        those that this binder has seen before: a reader that has lost its place must not seem to
        have read everything, not even if its topic was made anew."""
        call = self._client.begin()
        return self._view_of(call, *self._look(call, clients))

    def measure(self) -> tuple[BrokerMeasures, BrokerView]:
        """What the places of all readers and the ends of all links show."""
        call = self._client.begin()
        there, logs = self._look(call, None)
        return self._totals.measure(there, logs), self._view_of(call, there, logs)

    def _look(
        self, call: Call, clients: Collection[str] | None
    ) -> tuple[Mapping[tuple[str, str], Places], Mapping[str, Log]]:
        readers = groups.list_readers(call) if clients is None else set(clients)
        places_of, links = groups.read_groups(call, readers)
        self._links |= links
        logs = read_logs(call, self._links)
        there = {
            (reader, topic): places
            for reader, topics in places_of.items()
            for topic, committed in topics.items()
            if topic in logs and (places := find_there(committed, logs[topic])) is not None
        }
        return self._tails.skip(call, there, logs), logs

    def _view_of(
        self, call: Call, there: Mapping[tuple[str, str], Places], logs: Mapping[str, Log]
    ) -> BrokerView:
        by_reader: dict[str, dict[str, Places]] = {}
        for (reader, topic), places in there.items():
            by_reader.setdefault(reader, {})[topic] = places
        return BrokerView(
            taken={reader: taken_of(places, logs) for reader, places in by_reader.items()},
            sent={},
            sessions=frozenset(there),
            identity=self._find_cluster_id(call),
            ends={topic: each.end for topic, each in logs.items()},
        )

    def check(self) -> list[Finding]:
        """Find settings of the cluster, and of the topics that are links, that would lose data."""
        view = self.view()
        links = {topic for _, topic in view.sessions}
        return check.check(self._client.begin(), self._client.credentials(), links)

    def close(self) -> None:
        """Close the client for requests."""
        self._client.close()


def _ms(seconds: float) -> int:
    return max(1, int(1000 * seconds))


def _record_of(message: Any) -> Record:
    try:
        return record_of(message)
    except PermanentError:
        return Record(None, bytes(message.value or b""))


def _hex_of(cluster_id: str | None) -> str | None:
    """A cluster's id in 32 hex digits: what Kafka writes is 16 bytes in base64."""
    if not cluster_id:
        return None
    try:
        content = base64.urlsafe_b64decode(cluster_id + "==")
    except binascii.Error:
        content = b""
    return (
        content.hex()
        if len(content) == 16
        else hashlib.sha256(cluster_id.encode()).hexdigest()[:32]
    )


def _check_topic(topic: str) -> None:
    if fault := topic_fault(topic):
        raise BrokerRefusedError(f"cannot use {show(topic)} as a link's topic: it {fault}")
