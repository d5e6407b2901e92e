"""Jobs of the Python link client between logs in memory: the rules of delivery, whatever carries
the records."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import cast

import pytest
from speck_link.arguments import Arguments, read_contract
from speck_link.batches import pack
from speck_link.job import Job, Program
from speck_link.messages import UNSENT, Message
from speck_link.resend import resend
from speck_link.sink import Sink, TooLargeError
from speck_link.source import Source
from speck_link.state import State
from speck_link.taken import TakenNumbers
from speck_link.transport import Place, read_position
from speck_link.window import ResendWindow

from tests.python_jobs import SOURCES
from tests.unit.edge_jobs.memory_links import SERIES, TERM, Ends, Log, MemoryWriter

CONTRACT = (
    *("--job-name", "J", "--client-id", "speck-1-J-a", "--checkpoint-interval", "1ms"),
    *("--source-broker", "kafka://a", "--source-topic", "in"),
    *("--sink-broker", "kafka://b", "--sink-topic", "out"),
)
RECORDS = 100


class CrashError(Exception):
    """The process has died."""


class PassOn(Program):
    """Passes on what it reads; at some records something happens."""

    def __init__(self, events: dict[bytes, Callable[[Job], None]]) -> None:
        self.events = events

    def open(self, job: Job) -> None:
        self.job = job

    def process(self, record: bytes) -> Iterable[bytes]:
        if event := self.events.get(record):
            event(self.job)
        return [record]


def run(ends: Ends, folder: Path, events: dict[bytes, Callable[[Job], None]], *words: str) -> None:
    events = {ends.source.payloads[-1]: Job.stop, **events}
    job = Job(PassOn(events), (*CONTRACT, *words), folder, ends.open_reader, ends.open_writer)
    job.run()


def crash(_: Job) -> None:
    raise CrashError


def fed(*, stamped: bool = True) -> Ends:
    stamps = (f"src/1/{n}" if stamped else None for n in range(1, RECORDS + 1))
    return Ends(source=Log([(stamp, b"r%d" % n) for n, stamp in enumerate(stamps, 1)]))


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once", "exactly_once"])
def test_records_pass_in_order_with_stamps(tmp_path: Path, delivery: str) -> None:
    ends = fed()
    run(ends, tmp_path, {}, "--delivery", delivery)
    assert ends.sink.payloads == ends.source.payloads
    assert [number for _, number in ends.sink.stamps] == list(range(1, RECORDS + 1))
    assert ends.source.place == RECORDS
    (last, *_) = reversed(ends.source.reports)
    assert (last.taken.messages, last.position) == (RECORDS, {SERIES: Place(RECORDS, TERM)})


@pytest.mark.parametrize("stamped", [True, False])
def test_a_program_that_dies_writes_each_record_once(tmp_path: Path, stamped: bool) -> None:
    """Records without numbers, too: the state knows where in the log it ends."""
    ends = fed(stamped=stamped)
    exact = ("--delivery", "exactly_once")
    for at in (b"r65", b"r80"):
        with pytest.raises(CrashError):
            run(ends, tmp_path, {at: crash}, *exact)
    run(ends, tmp_path, {}, *exact)
    assert ends.sink.payloads == ends.source.payloads
    epochs = {epoch for epoch, _ in ends.sink.stamps}
    assert len(epochs) == 1, "the numbers go on"


def test_under_at_least_once_the_numbers_begin_anew(tmp_path: Path) -> None:
    ends = fed()
    with pytest.raises(CrashError):
        run(ends, tmp_path, {b"r65": crash})
    stored = json.loads(State(tmp_path).fact("sink") or '{"epoch": 0}')["epoch"]
    run(ends, tmp_path, {})
    assert set(ends.sink.payloads) == set(ends.source.payloads)
    first, second = dict.fromkeys(epoch for epoch, _ in ends.sink.stamps)
    assert stored in (0, first), "none, if it died before a first checkpoint"
    assert second > stored


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_what_the_log_has_is_not_written_again_over_another_connection(
    tmp_path: Path, delivery: str
) -> None:
    ends = fed()

    def cut(_: Job) -> None:
        assert ends.writer is not None
        ends.writer.lose()

    run(ends, tmp_path, {b"r33": cut, b"r66": cut}, "--delivery", delivery)
    assert ends.sink.payloads == ends.source.payloads


PORT = ("--port", "out/speck-1-J-a-out;two/speck-1-J-b-out")


class ByParity(PassOn):
    """Even numbers go to the first link of two, odd ones to the second."""

    def choose(self, record: bytes, links: int) -> int:
        return int(record[1:]) % links


@pytest.mark.parametrize("delivery", ["at_most_once", "at_least_once", "exactly_once"])
def test_records_go_to_the_links_of_a_port_in_turn(tmp_path: Path, delivery: str) -> None:
    ends = fed()
    run(ends, tmp_path, {}, *PORT, "--delivery", delivery)
    logs = ends.sink, ends.more["two"]
    assert {payload for log in logs for payload in log.payloads} == set(ends.source.payloads)
    for log, producer in zip(logs, ("1-J-a", "1-J-b"), strict=True):
        assert [number for _, number in log.stamps] == list(range(1, RECORDS // 2 + 1))
        assert {(stamp or "").split("/")[0] for stamp, _ in log.records} == {producer}


def test_a_program_chooses_a_link_and_dies_and_writes_each_record_once(tmp_path: Path) -> None:
    ends = fed()
    words = (*CONTRACT, *PORT, "--delivery", "exactly_once", "--batch-records", "7")
    for events in ({b"r65": crash}, {b"r80": crash}, {b"r100": Job.stop}):
        job = Job(ByParity(events), words, tmp_path, ends.open_reader, ends.open_writer)
        with suppress(CrashError):
            job.run()
    assert ends.sink.payloads == [b"r%d" % n for n in range(2, RECORDS + 1, 2)]
    assert ends.more["two"].payloads == [b"r%d" % n for n in range(1, RECORDS + 1, 2)]
    for log in (ends.sink, ends.more["two"]):
        assert len({epoch for epoch, _ in log.stamps}) == 1, "the numbers of each link go on"


def test_a_port_waits_for_all_of_its_links(tmp_path: Path) -> None:
    """A checkpoint under at_least_once, and the end of the job."""
    ends = fed()

    def cut(job: Job) -> None:
        del ends.more["two"].records[5:]
        cast(MemoryWriter, job._port.writers[1]).lose()

    run(ends, tmp_path, {b"r50": cut}, *PORT)
    assert len(ends.sink.records) == RECORDS // 2
    assert [number for _, number in ends.more["two"].stamps] == list(range(1, RECORDS // 2 + 1))
    assert ends.source.place == RECORDS


def test_what_is_left_for_a_link_goes_there_when_the_port_has_it_no_more(tmp_path: Path) -> None:
    """Under the numbers that it had."""
    ends = fed()
    exact = ("--delivery", "exactly_once")

    def end_before_it_goes_out(job: Job) -> None:
        job._port.release = lambda: crash(job)  # type: ignore[method-assign]

    with pytest.raises(CrashError):
        run(ends, tmp_path, {b"r65": end_before_it_goes_out}, *PORT, *exact)
    kept = [row for row in State(tmp_path).messages() if row[7] == UNSENT]
    left = [(row[2], row[3]) for row in kept if json.loads(row[1])[1] == "two"]
    assert left, "something is stored, and was not sent"
    ends.source.records.append((None, b"more"))  # the first run may have read all there was
    run(ends, tmp_path, {}, *exact)
    assert ends.more["two"].stamps[-len(left) :] == left
    first = [(stamp or "").split("/")[0] for stamp, _ in ends.sink.records]
    assert list(dict.fromkeys(first)) == ["1-J-a", "1-J"], "of the link that is left, too"
    assert {(stamp or "").split("/")[0] for stamp, _ in ends.more["two"].records} == {"1-J-b"}
    records = [*ends.sink.payloads, *ends.more["two"].payloads]
    assert sorted(records) == sorted(ends.source.payloads)


def test_the_sink_of_one_link_alone_writes_what_its_log_has_lost(tmp_path: Path) -> None:
    ends = fed()
    exact = ("--delivery", "exactly_once")
    run(ends, tmp_path, {}, *PORT, *exact)
    first, second = list(ends.sink.records), list(ends.more["two"].records)
    del ends.sink.records[10:]
    del ends.more["two"].records[10:]
    alone = ("--sink-topic", "two", "--sink-client-id", "speck-1-J-b-out")
    resend((*CONTRACT, *alone, "--port", "two/speck-1-J-b-out", *exact), tmp_path, ends.open_writer)
    assert ends.more["two"].records == second
    assert len(ends.sink.records) == 10
    resend((*CONTRACT, *PORT, *exact), tmp_path, ends.open_writer)
    assert ends.sink.records == first
    assert ends.more["two"].records == second


def test_a_job_that_gets_a_port_begins_the_numbers_of_its_links(tmp_path: Path) -> None:
    ends = fed()
    exact = ("--delivery", "exactly_once")
    run(ends, tmp_path, {b"r40": Job.stop}, *exact)
    before = len(ends.sink.records)
    run(ends, tmp_path, {b"r70": Job.stop}, *PORT, *exact)
    run(ends, tmp_path, {}, *exact)
    stamps = [(stamp or "").split("/") for stamp, _ in ends.sink.records]
    assert [number for _, _, number in stamps[:before]] == [str(n + 1) for n in range(before)]
    first, with_port, last = dict.fromkeys((producer, epoch) for producer, epoch, _ in stamps)
    assert [first[0], with_port[0], last[0]] == ["1-J", "1-J-a", "1-J"]
    records = [*ends.sink.payloads, *ends.more["two"].payloads]
    assert sorted(records) == sorted(ends.source.payloads)


def test_a_log_that_was_cut_gets_again_what_it_has_lost(tmp_path: Path) -> None:
    ends = fed()

    def cut(_: Job) -> None:
        assert ends.writer is not None
        del ends.sink.records[10:]
        ends.writer.lose()

    run(ends, tmp_path, {b"r50": cut})
    assert ends.sink.payloads == ends.source.payloads


@pytest.mark.parametrize("delivery", ["at_least_once", "exactly_once"])
def test_the_sink_alone_writes_what_a_log_has_lost(tmp_path: Path, delivery: str) -> None:
    ends = fed()
    words = ("--delivery", delivery)
    run(ends, tmp_path, {}, *words)
    complete = list(ends.sink.records)
    for _ in range(2):
        resend((*CONTRACT, *words), tmp_path, ends.open_writer)
        assert ends.sink.records == complete, "the log has it all"
    del ends.sink.records[10:]
    resend((*CONTRACT, *words), tmp_path, ends.open_writer)
    assert ends.sink.records == complete


def test_a_sink_alone_without_anything_to_write_ends(tmp_path: Path) -> None:
    ends = fed()
    resend(CONTRACT, tmp_path, ends.open_writer)
    assert ends.sink.records == []


def test_positions_of_another_link_mean_nothing() -> None:
    contract = read_contract(Arguments(CONTRACT))
    taken = TakenNumbers()
    taken.use_link(contract.source.client_id)
    known, other = fed(), fed()
    position = {SERIES: Place(7)}
    Source(contract, TakenNumbers.from_json(taken.to_json()), position, known.open_reader)
    taken.use_link("speck-1-J-b")
    Source(contract, taken, position, other.open_reader)
    assert known.reader is not None
    assert other.reader is not None
    assert (known.reader.read_before, known.reader.next) == (True, 7)
    assert (other.reader.read_before, other.reader.next) == (False, 0)


def test_a_state_keeps_the_terms_of_its_places() -> None:
    """Also one that a version has moved meanwhile that knew none."""
    terms = '{"log/0": [50, 4], "log/1": [60, null]}'
    assert read_position('{"log/0": 50, "log/1": 60}', terms) == {
        "log/0": Place(50, 4),
        "log/1": Place(60),
    }
    assert read_position('{"log/0": 51, "log/2": 1}', terms) == {
        "log/0": Place(51),
        "log/2": Place(1),
    }
    assert read_position('{"log/0": 50}', None) == {"log/0": Place(50)}
    assert read_position(None, None) == {}


def test_positions_that_are_handed_over_are_no_numbers() -> None:
    """They name parts of the log: its reader goes by them."""
    words = ("--taken", "src/1/5", "--until", "log%2F0/0/20")
    contract = read_contract(Arguments((*CONTRACT, *words)))
    ends = fed()
    source = Source(contract, TakenNumbers(), {}, ends.open_reader)
    source.reader.tend(0.0)
    assert source.take() == [b"r1"]


def test_a_batch_of_a_former_link_goes_one_by_one_into_a_log() -> None:
    ends = Ends()
    contract = read_contract(Arguments(CONTRACT))
    window = ResendWindow(15.0, 1 << 20, 1 << 20)
    sink = Sink(contract, contract.sink, window, ends.open_writer)
    records = [b"a", b"b", b"c"]
    kind, payload = pack(records, in_batches=True, zstd=False)
    sink.add(Message(1, 7, 1, 3, kind, payload))
    for _ in range(3):
        sink.tend(0.0)
    assert ends.sink.payloads == records
    assert ends.sink.stamps == [(7, 1), (7, 2), (7, 3)]
    assert sink.announce(), "the log says it itself"


def test_a_record_that_is_too_large_for_the_log(tmp_path: Path) -> None:
    ends = Ends(max_payload=5)
    contract = read_contract(Arguments((*CONTRACT, "--delivery", "exactly_once")))
    sink = Sink(contract, contract.sink, ResendWindow(15.0, 0, 0), ends.open_writer)
    sink.tend(0.0)
    with pytest.raises(TooLargeError) as fault:
        sink.add(Message(1, 7, 1, 1, None, b"sixsix"))
    assert str(fault.value) == (
        "cannot publish a record of 6 bytes to out at kafka://b:9092: it is larger than the broker"
        " takes; raise its limit, or have such records left out with --max-record-bytes 5"
    )


def test_a_job_imports_the_client_of_its_brokers_alone() -> None:
    """Kafka's takes 12 MB, where 40 are wanted for all."""
    look = "print([name for name in ('paho', 'kafka') if name in sys.modules])"
    code = f"import sys, speck_link.job; {look}; import speck_link.mqtt.reader; {look}"
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n['paho']\n"
