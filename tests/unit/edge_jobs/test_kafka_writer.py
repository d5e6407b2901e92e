"""The writer of links over Kafka of the Python client, without a broker: what it makes of answers,
and how it finds in a log what it has sent."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

from kafka import errors
from speck_link.arguments import Arguments, Contract, read_contract
from speck_link.kafka.client import CALL_MS, FETCH_SETTINGS
from speck_link.kafka.tail import LogTail, parse_stamp, stamp_of
from speck_link.kafka.writer import Answer, KafkaWriter, LogWriter, choose_index
from speck_link.leftovers import give
from speck_link.messages import NOT_STORED, SENT, UNSENT, Message
from speck_link.sent import SeenNumbers, SentNumber
from speck_link.sink import Sink
from speck_link.window import ResendWindow

from tests.waiting import wait_for


def contract_of(*words: str) -> Contract:
    common = ("--job-name", "J", "--client-id", "speck-1-J-a")
    source = ("--source-broker", "kafka://a", "--source-topic", "t")
    sink = ("--sink-broker", "kafka://b", "--sink-topic", "out")
    return read_contract(Arguments((*common, *source, *sink, *words)))


class Consumer:
    """A log by offset, of which each poll brings 500 records; what has no stamp is somebody
    else's. From `silent_before` on nothing comes any more."""

    def __init__(self, stamps: list[str | None], silent_before: int = 0) -> None:
        self.stamps, self.silent_before = stamps, silent_before
        self.now, self.at, self.first = 0.0, 0, 0
        self.seeks: list[int] = []

    def assign(self, parts: list[int]) -> None:
        assert parts == [0]

    def beginning_offsets(self, parts: list[int], timeout_ms: int) -> dict[int, int]:
        return {0: 0}

    def end_offsets(self, parts: list[int], timeout_ms: int) -> dict[int, int]:
        return {0: len(self.stamps)}

    def seek(self, part: int, offset: int) -> None:
        self.at = offset
        self.seeks.append(offset)

    def position(self, part: int, timeout_ms: int) -> int:
        return self.at

    def poll(self, timeout_ms: int) -> dict[int, list[Any]]:
        if self.at < self.first:
            raise errors.OffsetOutOfRangeError({0: self.at})
        if self.at < self.silent_before:
            self.now += 1.0
            return {}
        begin, self.at = self.at, min(self.at + 500, len(self.stamps))
        stamps = enumerate(self.stamps[begin : self.at], begin)
        headers = ((at, [("speck", s.encode())] if s is not None else []) for at, s in stamps)
        return {0: [SimpleNamespace(offset=at, headers=each) for at, each in headers]}

    def read(self, oldest: int) -> SeenNumbers:
        return LogTail(self, 0, SentNumber("1-J", 7, oldest), lambda: self.now).read()


def own(first: int, last: int) -> list[str | None]:
    return [f"1-J/7/{number}" for number in range(first, last + 1)]


def others(count: int) -> list[str | None]:
    return [f"2-K/7/{at}" if at % 2 else None for at in range(count)]


def covers(seen: SeenNumbers, first: int, last: int) -> bool:
    return seen.covers("1-J", 7, first, last)


def test_the_end_of_a_log_shows_the_numbers_of_one_writer() -> None:
    seen = Consumer([*others(10), *own(1, 40), *others(10)]).read(1)
    assert covers(seen, 1, 40)
    assert not covers(seen, 40, 41)
    assert not seen.covers("2-K", 7, 1, 1)


def test_later_numbers_prove_nothing_of_those_in_a_hole() -> None:
    """The broker has refused 21 to 50, and taken what came after."""
    seen = Consumer([*own(1, 20), *own(51, 100)]).read(1)
    assert covers(seen, 1, 20)
    assert covers(seen, 51, 100)
    assert not any(covers(seen, *each) for each in ((21, 21), (50, 50), (20, 51), (1, 100)))


def test_the_end_of_a_log_is_read_back_to_the_oldest_number_in_question() -> None:
    consumer = Consumer(own(1, 3000))
    assert covers(consumer.read(500), 500, 3000)
    assert consumer.seeks == [2000, 0]
    consumer = Consumer(own(1, 3000))
    seen = consumer.read(2500)
    assert consumer.seeks == [2000]
    assert covers(seen, 2001, 3000)
    assert not covers(seen, 2000, 2000)
    consumer = Consumer(others(12_000))
    assert not consumer.read(1)
    assert consumer.seeks == [11_000, 2000, 0], "there is no more"
    assert not Consumer([]).read(1)


def test_an_earlier_epoch_was_sent_earlier() -> None:
    consumer = Consumer([*others(5000), "1-J/6/999", *own(7, 10)])
    assert covers(consumer.read(5), 7, 10)
    assert len(consumer.seeks) == 1


def test_what_does_not_come_in_time_is_not_known() -> None:
    """Over a slow network the connection would end, and the next one begin anew, for ever."""
    consumer = Consumer([*others(11_900), *own(101, 200)], silent_before=11_000)
    seen = consumer.read(100)
    assert covers(seen, 101, 200)
    assert not covers(seen, 100, 100)
    assert 15 < consumer.now < 17, "for all pieces together"


def test_what_is_deleted_meanwhile_is_not_known() -> None:
    consumer = Consumer(own(1, 3000))
    consumer.first = 2500
    assert not consumer.read(1)


def test_a_fetch_ends_before_its_timeout_over_a_slow_network() -> None:
    """Else who has something to catch up with would never get it."""
    assert set(FETCH_SETTINGS) == {"fetch_max_bytes", "max_partition_fetch_bytes"}
    assert max(FETCH_SETTINGS.values()) * 8 / 500_000 < CALL_MS / 1000


def test_stamps() -> None:
    assert parse_stamp("1-J/2/3") == SentNumber("1-J", 2, 3)
    assert parse_stamp("a/b/2/3") == SentNumber("a/b", 2, 3)
    for wrong in ("", "1-J", "1-J/2", "/2/3", "1-J/2/0", "1-J/2/3+4", "1-J/-2/3"):
        assert parse_stamp(wrong) is None
    headers = [("speck", b"old"), ("other", b"x"), ("speck", b"1-J/2/3")]
    assert stamp_of(SimpleNamespace(headers=headers)) == "1-J/2/3"
    assert stamp_of(SimpleNamespace(headers=[("speck", None)])) is None
    assert stamp_of(SimpleNamespace(headers=[])) is None


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
    has: tuple[int, ...] = ()
    """Numbers that are in the log."""

    def _connect(self) -> LogWriter:
        doubtful = super()._connect()._doubtful
        played = PlayedProducer(self.link, self.signal, acknowledged=True, doubtful=doubtful)
        if doubtful is not None and self.has:
            played.confirmed = seen = SeenNumbers("1-J")
            for number in self.has:
                seen.add(SentNumber("1-J", 7, number))
        return played


def message_of(number: int, stored: int = NOT_STORED) -> Message:
    message = Message(number, 7, number, 1, None, b"x")
    message.stored = stored
    return message


class PlayedSink:
    def __init__(self, *words: str, before: Sequence[Message] = (), has: tuple[int, ...] = ()):
        contract = contract_of(*words)
        window = ResendWindow(15.0, 1 << 20, 1 << 20)
        self.sink = Sink(contract, contract.sink, window, cast(Any, PlayedWriter))
        self.writer = cast(PlayedWriter, self.sink.writer)
        self.writer.has = has
        self.place = len(before)
        self.now = 0.0
        give((each.to_row("", each.stored) for each in before), self.sink)
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
            self.sink.add(message_of(self.place))

    def lose(self, *has: int) -> PlayedProducer:
        """The next connection, over which the log has these numbers."""
        before = self.connection
        self.writer.has = has
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
    again = played.lose(1, 2, 3)
    assert again.numbers == ["4", "5"], "the third was written, though nobody had said so"
    again = played.lose(1)
    assert again.numbers == ["2", "3", "4", "5"], "a log that was cut"
    again = played.lose()
    assert again.numbers == ["1", "2", "3", "4", "5"]


def test_a_log_that_becomes_shorter_ends_the_connection() -> None:
    played = PlayedSink()
    played.add(2)
    played.connection.answer(0, offset=10)
    played.connection.answer(1, offset=4)
    played.writer.read()
    assert "the log was cut, or made anew" in str(played.connection.broken)
    assert played.lose(1).numbers == ["2"], "acknowledged, and lost"


def test_what_is_refused_is_tried_again_over_another_connection() -> None:
    """The library's producer fails all that it has with the first error."""
    played = PlayedSink()
    played.add(3)
    played.connection.answer(0, offset=0)
    for at in (1, 2):
        played.connection.answer(at, error=errors.TopicAuthorizationFailedError("out"))
    played.writer.read()
    assert played.lose(1).numbers == ["2", "3"]


def test_what_is_refused_goes_again_though_the_log_has_what_came_after() -> None:
    """Permissions were taken away, and given back within the time in flight."""
    played = PlayedSink()
    played.add(5)
    played.connection.answer(0, offset=0)
    played.writer.read()
    assert played.lose(1, 4, 5).numbers == ["2", "3"]


def test_what_is_refused_as_it_is_sent_again_goes_again() -> None:
    played = PlayedSink()
    played.add(4)
    for at in range(4):
        played.connection.answer(at, offset=at)
    played.writer.read()
    assert played.lose(1).numbers == ["2", "3", "4"], "a log that was cut"
    again = played.lose(1, 4)
    assert again.numbers == ["2", "3"], "these were refused then"
    for at in range(2):
        again.answer(at, offset=9 + at)
    played.writer.read()
    assert played.lose(1, 4, 2, 3).numbers == []


def test_a_sink_without_a_state_does_not_read_the_log() -> None:
    """Over a slow network a busy link would keep it from connecting for ever."""
    played = PlayedSink("--delivery", "exactly_once")
    assert played.connection._doubtful is None
    played.add(2)
    assert played.lose()._doubtful is None, "what was not acknowledged is sent again"
    for at in range(2):
        played.connection.answer(at, offset=at)
    played.writer.read()
    assert played.lose(1, 2)._doubtful == SentNumber("1-J", 7, 2)


def test_what_an_earlier_start_may_have_sent_is_looked_up() -> None:
    before = [
        message_of(1, SENT),
        message_of(2, SENT),
        message_of(3, UNSENT),
        message_of(4, UNSENT),
    ]
    played = PlayedSink("--delivery", "exactly_once", before=before, has=(1, 2, 3))
    assert played.connection._doubtful == SentNumber("1-J", 7, 3)
    assert played.connection.numbers == ["4"]
    assert played.lose(1, 2, 3)._doubtful == SentNumber("1-J", 7, 3), "not all is there yet"
    played.connection.answer(0, offset=3)
    played.writer.read()
    assert played.sink.announce()
    assert played.lose(1, 2, 3, 4)._doubtful == SentNumber("1-J", 7, 4)


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
    assert played.sink.max_payload == 900 - len("speck-1-J-a-out") - 60
    played.add(3)
    for at in range(3):
        played.connection.answer(at, error=errors.MessageSizeTooLargeError("2 MB"))
    played.writer.read()
    assert played.lose().numbers == ["2", "3"], "the others were not"
    assert played.sink.left_out == 1


def test_at_most_once_nothing_is_sent_again() -> None:
    played = PlayedSink("--delivery", "at_most_once")
    played.add(2)
    played.connection.answer(0, offset=0)
    played.writer.read()
    assert not played.sink.is_drained, "the producer has it still"
    assert played.lose().numbers == []
    assert played.sink.lost == 1
