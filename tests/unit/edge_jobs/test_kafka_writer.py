"""The writer of links over Kafka of the Python client, without a broker: what it makes of answers,
and how it finds in a log what it has sent."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from kafka import errors
from speck_link.arguments import Arguments, Contract, Link, read_contract
from speck_link.kafka.tail import list_prefixes, parse_stamp, search_backwards, stamp_of
from speck_link.kafka.writer import Answer, KafkaWriter, LogWriter, choose_index
from speck_link.link_status import SentNumber
from speck_link.messages import Message
from speck_link.sink import Sink
from speck_link.window import ResendWindow

from tests.waiting import wait_for


def contract_of(*words: str) -> Contract:
    common = ("--job-name", "J", "--client-id", "speck-1-J-a")
    source = ("--source-broker", "kafka://a", "--source-topic", "t")
    sink = ("--sink-broker", "kafka://b", "--sink-topic", "out")
    return read_contract(Arguments((*common, *source, *sink, *words)))


def test_the_end_of_a_log_is_read_in_growing_pieces() -> None:
    looks = []
    number = SentNumber("1-J", 1, 5)

    def look(first: int, end: int) -> SentNumber | None:
        looks.append((first, end))
        return number if first <= 45_000 else None

    assert search_backwards(0, 100_000, look) == number
    assert looks == [(99_000, 100_000), (90_000, 99_000), (0, 90_000)]
    looks.clear()
    assert search_backwards(99_500, 100_000, look) is None
    assert looks == [(99_500, 100_000)]
    assert search_backwards(7, 7, look) is None


def test_stamps() -> None:
    assert parse_stamp("1-J/2/3") == SentNumber("1-J", 2, 3)
    assert parse_stamp("a/b/2/3") == SentNumber("a/b", 2, 3)
    for wrong in ("", "1-J", "1-J/2", "/2/3", "1-J/2/0", "1-J/2/3+4", "1-J/-2/3"):
        assert parse_stamp(wrong) is None
    headers = [("speck", b"old"), ("other", b"x"), ("speck", b"1-J/2/3")]
    assert stamp_of(SimpleNamespace(headers=headers)) == "1-J/2/3"
    assert stamp_of(SimpleNamespace(headers=[("speck", None)])) is None
    assert stamp_of(SimpleNamespace(headers=[])) is None
    assert list_prefixes(Link("", "", "speck-1-J-abc-out")) == ("1-J/", "1-J-abc/")


def test_a_job_stays_with_one_partition() -> None:
    """As the connector chooses it: murmur2 of `1-J` and so on, as Kafka's Java client has it."""
    assert [choose_index(f"speck-{job}-h-out", 100) for job in ("21", "foobar")] == [
        (-973932308 & 0x7FFFFFFF) % 100,
        (-790332482 & 0x7FFFFFFF) % 100,
    ]


class PlayedProducer(LogWriter):
    """A connection; the test answers."""

    def open(self) -> None:
        self.max_payload = 900
        self.sent: list[tuple[int, str]] = []

    def serve(self) -> None:
        self.wait(0.01)
        if self.broken is not None:
            raise self.broken

    def release(self) -> None: ...
    def send(self, key: int, payload: bytes, stamp: str) -> None:
        self.sent.append((key, stamp.rpartition("/")[2]))

    @property
    def numbers(self) -> list[str]:
        return [number for _, number in self.sent]

    def answer(self, at: int, offset: int = -1, error: Exception | None = None) -> None:
        self.answers.append(Answer(self.sent[at][0], offset, error))


class PlayedWriter(KafkaWriter):
    confirmed: SentNumber | None = None

    def _connect(self) -> LogWriter:
        made = super()._connect()
        played = PlayedProducer(
            self.link,
            self.signal,
            acknowledged=True,
            wants_confirmation=made._wants_confirmation,
        )
        played.confirmed = self.confirmed if made._wants_confirmation else None
        return played


class PlayedSink:
    def __init__(self, *words: str) -> None:
        contract = contract_of(*words)
        window = ResendWindow(15.0, 1 << 20, 1 << 20)
        self.sink = Sink(contract, contract.sink, window, cast(Any, PlayedWriter))
        self.writer = cast(PlayedWriter, self.sink.writer)
        self.place = 0
        self.now = 0.0
        wait_for(lambda: self.turn().writer.ready, "a connection")

    @property
    def connection(self) -> PlayedProducer:
        return cast(PlayedProducer, self.writer.current)

    def turn(self) -> PlayedSink:
        self.now += 0.5
        self.writer.tend(self.now)
        return self

    def add(self, count: int) -> None:
        for _ in range(count):
            self.place += 1
            self.sink.add(Message(self.place, 7, self.place, 1, None, b"x"))

    def lose(self, confirmed: SentNumber | None = None) -> PlayedProducer:
        """The next connection, over which the log has this."""
        before = self.connection
        self.writer.confirmed = confirmed
        before.break_off(errors.KafkaConnectionError("cut"))
        return self.await_next(before)

    def await_next(self, before: PlayedProducer) -> PlayedProducer:
        wait_for(lambda: before.is_over, "the end of the connection")
        wait_for(lambda: self.turn().connection is not before, "the next one")
        wait_for(lambda: self.turn().writer.ready, "the next one")
        return self.connection


def test_what_is_acknowledged_is_done() -> None:
    played = PlayedSink()
    played.add(3)
    assert played.connection.numbers == ["1", "2", "3"]
    for at in range(3):
        assert not played.sink.is_drained
        played.connection.answer(at, offset=at)
    played.writer.read()
    assert played.sink.is_drained
    assert played.sink.announce(), "what was sent lies in the log"


def test_over_another_connection_goes_what_the_log_lacks() -> None:
    played = PlayedSink()
    played.add(5)
    played.connection.answer(0, offset=0)
    played.connection.answer(1, offset=1)
    played.writer.read()
    again = played.lose(SentNumber("1-J", 7, 3))
    assert again.numbers == ["4", "5"], "the third was written, though nobody had said so"
    again = played.lose(SentNumber("1-J", 7, 1))
    assert again.numbers == ["2", "3", "4", "5"], "a log that was cut"
    again = played.lose(None)
    assert again.numbers == ["1", "2", "3", "4", "5"]


def test_a_log_that_becomes_shorter_ends_the_connection() -> None:
    played = PlayedSink()
    played.add(2)
    played.connection.answer(0, offset=10)
    played.connection.answer(1, offset=4)
    played.writer.read()
    assert "the log was cut, or made anew" in str(played.connection.broken)
    assert played.lose(SentNumber("1-J", 7, 1)).numbers == ["2"], "acknowledged, and lost"


def test_what_is_refused_is_tried_again_over_another_connection() -> None:
    """The library's producer fails all that it has with the first error."""
    played = PlayedSink()
    played.add(3)
    played.connection.answer(0, offset=0)
    for at in (1, 2):
        played.connection.answer(at, error=errors.TopicAuthorizationFailedError("out"))
    played.writer.read()
    assert played.lose(SentNumber("1-J", 7, 1)).numbers == ["2", "3"]


def test_a_refusal_is_reported_until_a_record_is_taken() -> None:
    played = PlayedSink()
    played.add(1)
    for _ in range(2):
        played.connection.answer(0, error=errors.TopicAuthorizationFailedError("out"))
        played.turn().await_next(played.connection)
        problem = played.writer.problem or ""
        assert problem.startswith("cannot write to out at kafka://b:9092: the broker refuses")
        assert "NOT_AUTHORIZED" in problem
    played.connection.answer(0, offset=0)
    assert played.turn().writer.problem is None
    assert played.sink.is_drained


def test_a_record_that_is_too_large_is_left_out() -> None:
    played = PlayedSink()
    assert played.sink.max_payload == 900 - len("1-J") - 60
    played.add(3)
    for at in range(3):
        played.connection.answer(at, error=errors.MessageSizeTooLargeError("2 MB"))
    played.writer.read()
    assert played.lose(None).numbers == ["2", "3"], "the others were not"
    assert played.sink.left_out == 1


def test_at_most_once_nothing_is_sent_again() -> None:
    played = PlayedSink("--delivery", "at_most_once")
    played.add(2)
    played.connection.answer(0, offset=0)
    played.writer.read()
    assert not played.sink.is_drained, "the producer has it still"
    assert played.lose().numbers == []
    assert played.sink.lost == 1
