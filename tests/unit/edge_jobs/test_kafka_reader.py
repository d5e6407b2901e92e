"""The reader of links over Kafka of the Python client, without a broker: where it begins, what it
says of itself, and how it is kept connected."""

from __future__ import annotations

import json
import select
import threading
from collections import deque
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kafka import TopicPartition, errors
from kafka.errors import LogTruncationError
from kafka.structs import OffsetAndMetadata
from speck_link.arguments import Arguments, Contract, Link, read_contract
from speck_link.kafka.client import explain, seek, settings_of
from speck_link.kafka.connection import KafkaEnd, LogConnection, Signal
from speck_link.kafka.metadata import write_metadata
from speck_link.kafka.reader import KafkaReader, LogReader
from speck_link.kafka.start import ReadingRange, find_starts, go_back
from speck_link.kafka.topic import Extent, LinkTopic, commit, read_places
from speck_link.taken import EVER, TakenNumbers, Until, parse_hand_over
from speck_link.transport import Incoming, Place, Position, TakenReport

from tests.waiting import wait_for

LINK = Link("kafka://a:9092", "t", "speck-1-J-a")
TOPIC = LinkTopic("t", "log", (0,), 1000)
EXTENT = {0: Extent(10, 90)}
PART = TopicPartition("t", 0)
LISTENER = SimpleNamespace(start_over=lambda: None)
at = Place


def contract_of(*words: str) -> Contract:
    common = ("--job-name", "J", "--client-id", LINK.client_id)
    source = ("--source-broker", LINK.broker, "--source-topic", "t")
    sink = ("--sink-broker", "kafka://b", "--sink-topic", "out")
    return read_contract(Arguments((*common, *source, *sink, *words)))


# -- where a reader begins


@pytest.mark.parametrize(
    ("position", "read_before", "place", "taken", "start"),
    [
        ({}, False, None, "", at(90)),  # it has never read the log: what comes from now on
        ({}, True, None, "", at(10)),  # its place is lost
        ({}, True, at(40, 4), "", at(40, 4)),
        ({"log/0": at(50, 5)}, True, at(40, 4), "", at(50, 5)),  # what the state has was taken
        ({"log/0": at(30)}, True, at(40, 4), "", at(30)),
        ({"other/0": at(30)}, True, at(40, 4), "", at(40, 4)),  # a log that was of the same name
        ({}, False, at(40, 4), "log%2F0/0/60", at(60)),  # an earlier reader has taken that
        ({}, False, at(40, 4), "log%2F0/0/20", at(40, 4)),
        ({}, False, None, "log%2F0/0/20", at(20)),
        ({}, False, None, "other%2F0/0/20", at(10)),
        ({}, False, at(5, 4), "", at(10)),  # what it had not taken was deleted
        ({"log/0": at(91)}, True, None, "", at(10)),  # the log was cut: nobody knows where
        ({"log/0": at(90)}, True, None, "", at(90)),
        ({"log/0": at(91, 4)}, True, None, "", at(91, 4)),  # the broker is asked
        ({}, False, at(95, 4), "", at(95, 4)),
    ],
)
def test_a_reader_begins_where_it_has_come_to(
    position: Position, read_before: bool, place: Place | None, taken: str, start: Place
) -> None:
    reading = ReadingRange(position, read_before, parse_hand_over("taken", taken), EVER)
    places = {} if place is None else {0: place}
    assert find_starts(LINK, TOPIC, reading, places, EXTENT) == {0: start}


def test_a_reader_goes_on_where_its_last_connection_has_ended() -> None:
    """Also before what was handed over to it, if that was cut away."""
    taken = parse_hand_over("taken", "log%2F0/0/48")
    state = {"log/0": at(60, 4)}
    reading = ReadingRange(state, True, taken, EVER, {"log/0": at(45, 3)})
    assert find_starts(LINK, TOPIC, reading, {0: at(70, 4)}, EXTENT) == {0: at(45, 3)}


@pytest.mark.parametrize(
    ("reached", "problem", "back"),
    [
        (at(60, 4), LogTruncationError({PART: OffsetAndMetadata(45, "", 3)}), at(45, 3)),
        (at(60, 4), LogTruncationError({PART: OffsetAndMetadata(45, "", -1)}), at(45)),
        (at(60, 4), LogTruncationError({PART: None}), at(0)),  # the broker knows no such term
        (at(30, 4), LogTruncationError({PART: OffsetAndMetadata(45, "", 3)}), at(30, 4)),
        (at(60, 4), errors.OffsetOutOfRangeError({PART: 60}), at(60)),  # the extent decides
        (at(60, 4), errors.OffsetOutOfRangeError(), at(60, 4)),
        (at(60, 4), errors.KafkaConnectionError(), at(60, 4)),
        (at(60, 4), None, at(60, 4)),
    ],
)
def test_a_reader_goes_back_to_where_its_log_was_cut(
    reached: Place, problem: Exception | None, back: Place
) -> None:
    assert go_back({"log/0": reached, "log/1": at(7, 1)}, TOPIC, problem) == {
        "log/0": back,
        "log/1": at(7, 1),
    }


def test_a_log_that_does_not_reach_so_far_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    find_starts(LINK, TOPIC, ReadingRange({}, False, (), EVER), {0: at(95)}, EXTENT)
    assert capsys.readouterr().err == (
        "t at kafka://a:9092 has records 10 to 90 in partition 0, the reader speck-1-J-a was at 95:"
        " it goes on with the first that there is\n"
    )


def test_a_reader_reads_up_to_a_position() -> None:
    until = Until(parse_hand_over("until", "log%2F0/0/20"))
    reading = ReadingRange({}, False, (), until)
    assert [reading.find_end(series) for series in ("log/0", "log/1")] == [20, 0]
    assert ReadingRange({}, False, (), EVER).find_end("log/0") > 1 << 60


def test_places_in_an_earlier_topic_of_that_name_do_not_count() -> None:
    parts = [TOPIC.partition(part) for part in range(4)]
    metadata = ['{"v":1,"id":"log"}', '{"v":1,"id":"old"}', "of somebody else", ""]
    known = {
        part: OffsetAndMetadata(7, text, epoch)
        for part, text, epoch in zip(parts, metadata, (4, 4, -1, 0), strict=True)
    }
    admin = SimpleNamespace(list_group_offsets=lambda wanted: {"g": known})
    topic = LinkTopic("t", "log", (0, 1, 2, 3), 1000)
    assert read_places(admin, "g", topic) == {0: at(7, 4), 2: at(7), 3: at(7, 0)}


def test_a_place_is_committed_with_its_term() -> None:
    committed: list[Any] = []

    def alter(group: str, offsets: dict[Any, Any]) -> dict[Any, Any]:
        committed.append((group, offsets))
        return {PART: errors.NoError}

    admin = SimpleNamespace(alter_group_offsets=alter)
    for place in (at(7, 4), at(7)):
        commit(admin, "g", TOPIC, {0: place}, "beside")
    assert committed == [("g", {PART: OffsetAndMetadata(7, "beside", term)}) for term in (4, None)]


# -- what it says of itself


def report_of(taken: TakenNumbers) -> TakenReport:
    return TakenReport(5, 9, taken, {"log/0": at(40)}, None)


def test_a_reader_says_what_is_missing() -> None:
    taken = TakenNumbers()
    assert json.loads(write_metadata(report_of(taken), "log")) == {
        "v": 1,
        "id": "log",
        "at": 5,
        "checkpoint": 9,
        "messages": 0,
    }
    for number in (1, 2, 5):
        taken.take("p/3/", number)
    assert json.loads(write_metadata(report_of(taken), "log"))["missing"] == {"p": {"3": 2}}


def test_a_broker_takes_what_it_says() -> None:
    """4096 bytes; the producers that were heard last come first."""
    taken = TakenNumbers()
    for producer in range(500):
        for number in (1, 3):
            taken.take(f"prödücer-{producer}/1/", number)
    text = write_metadata(report_of(taken), "log")
    assert 3800 < len(text.encode()) <= 4000
    assert next(iter(json.loads(text)["missing"])) == "prödücer-499"


# -- clients


def test_credentials_are_found_by_the_brokers_address(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPECK_CREDENTIALS_DIR", str(tmp_path))
    plain = settings_of(LINK)
    assert (plain["security_protocol"], plain["bootstrap_servers"]) == ("PLAINTEXT", ["a:9092"])
    (tmp_path / "mqtt").write_text("address=tcp://a:9092\nuser=wrong\n")
    (tmp_path / "one").write_text("address=kafka://A/ tcp://x:1\nuser=u\npassword=p\n")
    known = settings_of(LINK)
    assert known["security_protocol"] == "SASL_PLAINTEXT"
    assert known["sasl_mechanism"] == "SCRAM-SHA-512"
    assert (known["sasl_plain_username"], known["sasl_plain_password"]) == ("u", "p")
    (tmp_path / "one").write_text("address=kafka+ssl://a,b:9\nuser=u\nmechanism=PLAIN\n")
    encrypted = settings_of(Link("kafka+ssl://a:9093,b:9", "t", "c"))
    assert (encrypted["security_protocol"], encrypted["sasl_mechanism"]) == ("SASL_SSL", "PLAIN")
    assert encrypted["ssl_context"].check_hostname
    (tmp_path / "one").write_text("address=kafka://a\nca=missing.pem\n")
    with pytest.raises(FileNotFoundError):
        settings_of(LINK)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            errors.SaslAuthenticationFailedError("bad password"),
            "the broker refuses the login: AUTHENTICATION_FAILED (bad password); check user,"
            " password and mechanism in the credentials of this broker",
        ),
        (
            errors.TopicAuthorizationFailedError("t"),
            "the broker refuses access: NOT_AUTHORIZED (t); let its user do that (kafka-acls)",
        ),
        (
            errors.KafkaConnectionError("refused"),
            "refused; if the broker runs, look whether the address, and its advertised.listeners,"
            " lead there from here",
        ),
        (errors.CoordinatorLoadInProgressError(), "CoordinatorLoadInProgress"),
        (errors.KafkaError("the log was made anew"), "the log was made anew"),
        (
            LogTruncationError({PART: None}),
            "the log was cut, as after a loss of power; reading goes on where it was cut",
        ),
        (
            errors.OffsetOutOfRangeError({PART: 7}),
            "the log has not what comes next; reading goes on with the first that there is",
        ),
        (FileNotFoundError(2, "No such file", "ca.pem"), "[Errno 2] No such file: 'ca.pem'"),
    ],
)
def test_errors_say_what_to_do(error: Exception, text: str) -> None:
    assert explain(error) == text


class Played(LogConnection):
    """A connection whose part the test plays."""

    def __init__(self, link: Link, signal: Signal, fault: Exception | None) -> None:
        super().__init__(link, signal)
        self.fault = fault
        self.cut = threading.Event()
        self.is_released = False

    def open(self) -> None:
        if self.fault is not None:
            raise self.fault

    def serve(self) -> None:
        self.wait(0.01)
        if self.cut.is_set():
            raise errors.KafkaConnectionError("no broker can be reached")

    def release(self) -> None:
        self.is_released = True
        raise RuntimeError("of no interest")


class PlayedEnd(KafkaEnd[Played]):
    doing = "read"

    def __init__(self, *faults: Exception) -> None:
        super().__init__(LINK)
        self.faults = deque(faults)
        self.log: list[str] = []

    def _connect(self) -> Played:
        return Played(LINK, self.signal, self.faults.popleft() if self.faults else None)

    def _begin(self, connection: Played) -> None:
        self.log.append("begin")

    def _lose(self) -> None:
        self.log.append("lose")

    def turn(self) -> PlayedEnd:
        self.tend(float("inf"))
        return self


def test_an_end_is_kept_connected(capsys: pytest.CaptureFixture[str]) -> None:
    end = PlayedEnd(errors.SaslAuthenticationFailedError("no"))
    assert end.problem == "not connected yet"
    wait_for(lambda: "AUTHENTICATION" in (end.turn().problem or ""), "a refusal")
    assert end.problem == (
        "cannot read t at kafka://a:9092: " + explain(errors.SaslAuthenticationFailedError("no"))
    )
    assert end.problem in capsys.readouterr().err
    wait_for(lambda: end.turn().ready, "another attempt")
    assert (end.problem, end.log) == (None, ["begin"])
    first = end.current
    assert first is not None
    first.cut.set()
    wait_for(lambda: not end.turn().ready, "the end of the connection")
    assert end.log == ["begin", "lose"]
    wait_for(lambda: end.turn().ready, "another connection")
    assert first.is_released
    assert end.current is not first
    last = end.current
    assert last is not None
    end.disconnect()
    assert last.is_over
    assert last.error is None
    end.turn()
    assert end.turn().current is None, "it stays closed"


def test_who_waits_is_woken() -> None:
    signal = Signal()

    def is_woken() -> bool:
        return bool(select.select([signal], (), (), 0)[0])

    assert not is_woken()
    signal.set()
    signal.set()
    assert is_woken()
    signal.clear()
    assert not is_woken()
    signal.set()
    assert is_woken()


# -- a reader


class PlayedLog(LogReader):
    """A connection that begins at an offset; the test fills its inbox."""

    def open(self) -> None:
        self.topic = TOPIC
        self.starts = find_starts(LINK, TOPIC, self._reading, {}, EXTENT)

    def serve(self) -> None:
        self.wait(0.01)

    def release(self) -> None: ...
    def bring(self, *offsets: int) -> None:
        for offset in offsets:
            self.inbox.append(Incoming(b"x", None, None, False, (0, offset, 4)))

    def fail(self, error: Exception) -> None:
        self.error, self.is_ended = error, True
        self.leave()


class PlayedReader(KafkaReader):
    def _connect(self) -> LogReader:
        before = super()._connect()
        return PlayedLog(self.link, before._reading, 100, self.signal)


def open_reader(position: Position) -> tuple[PlayedReader, list[str]]:
    log: list[str] = []
    listener = SimpleNamespace(start_over=lambda: log.append("start over"))
    reader = PlayedReader(contract_of(), listener, position, read_before=True)
    await_ready(reader)
    return reader, log


def await_ready(end: KafkaReader) -> None:
    def turn() -> bool:
        end.tend(float("inf"))
        return end.ready

    wait_for(turn, "a connection")


def test_a_reader_knows_its_place() -> None:
    reader, log = open_reader({"log/0": at(50, 3)})
    connection = cast(PlayedLog, reader.current)
    assert reader.sessions_lost == 1, "the broker had none"
    assert reader.position() == {"log/0": at(50, 3)}
    connection.bring(50, 51, 53)
    reader.keep(reader.poll())
    reader.keep(reader.poll())
    connection.idle = {0: 60}  # two markers behind 53
    assert reader.position() == {"log/0": at(52, 4)}, "something waits"
    reader.keep(reader.poll())
    assert reader.position() == {"log/0": at(60)}, "a marker may be of a later term"
    assert reader.report(TakenReport(1, 2, TakenNumbers(), reader.position(), None))
    assert not reader.has_reported
    assert [places for places, _ in connection._to_commit] == [{0: at(60)}]
    connection.bring(61)
    connection.error = errors.KafkaConnectionError()
    connection.is_ended = True
    reader.tend(0.0)
    assert (reader.ready, reader.has_waiting, log) == (False, False, ["start over"])
    assert reader.position() == {"log/0": at(60)}
    connection.leave()
    await_ready(reader)
    again = cast(PlayedLog, reader.current)
    assert again is not connection
    assert again.starts == {0: at(60)}, "what had come, and was not taken, comes again"


def test_a_reader_whose_log_was_cut_goes_on_there() -> None:
    reader, _ = open_reader({"log/0": at(50, 4)})
    connection = cast(PlayedLog, reader.current)
    connection.bring(50, 51, 52)
    reader.keep(reader.poll())
    connection.fail(LogTruncationError({PART: OffsetAndMetadata(45, "", 3)}))
    await_ready(reader)
    assert cast(PlayedLog, reader.current).starts == {0: at(45, 3)}
    assert reader.position() == {"log/0": at(45, 3)}, "that of the next checkpoint, too"


def test_a_cut_is_noticed_before_the_job_has_noticed_the_connection() -> None:
    reader = PlayedReader(contract_of(), LISTENER, {"log/0": at(50, 4)}, read_before=True)
    reader.tend(0.0)
    connection = cast(PlayedLog, reader.current)
    wait_for(lambda: connection.is_ready, "a connection")
    connection.fail(LogTruncationError({PART: OffsetAndMetadata(45, "", 3)}))
    await_ready(reader)
    assert cast(PlayedLog, reader.current).starts == {0: at(45, 3)}


def test_the_library_is_given_the_term_of_a_place() -> None:
    """By it the leader says where the log was cut."""
    seen: list[Any] = []
    subscription = SimpleNamespace(seek=lambda *what: seen.append(what))
    for place in (at(7, 4), at(7)):
        seek(SimpleNamespace(_subscription=subscription), PART, place)
    assert seen == [(PART, OffsetAndMetadata(7, "", term)) for term in (4, -1)]


def test_a_reader_is_held_back_by_its_window() -> None:
    reader, _ = open_reader({"log/0": at(50)})
    connection = cast(PlayedLog, reader.current)
    assert not connection.is_full
    connection.bring(*range(100))
    assert connection.is_full
    for _ in range(60):
        reader.poll()
    assert not connection.is_full
