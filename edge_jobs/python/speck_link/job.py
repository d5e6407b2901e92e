"""A job: takes records from its source, passes what a program makes of them to its sink, and takes
checkpoints of both and of the program's state. One thread does all of it.

Under at_least_once a checkpoint waits until the sink's broker has everything that came before it.
Under exactly_once what is to be published is part of the checkpoint, and goes out when that is
complete, again with the same bytes if need be.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from speck_link import brokers, leftovers
from speck_link.arguments import NAMES, ArgumentFaultError, Arguments, read_contract
from speck_link.batches import load_zstd
from speck_link.port import Port
from speck_link.reporting import Reporter
from speck_link.sink import Sink
from speck_link.source import Source
from speck_link.state import Row, State, Table
from speck_link.taken import TakenNumbers
from speck_link.transport import End, Position, ReaderOpener, WriterOpener, read_position
from speck_link.window import ResendWindow

_READY_S = 10.0
_TICK_S = 0.2
_REPORT_S = 1.0
_LAST_S = 1.0
_AT_ONCE = 200


class Program:
    """What a job does between its links; a base with nothing in it."""

    names: frozenset[str] = frozenset()
    """Arguments of its own."""

    def open(self, job: Job) -> None:
        """Called before the first record, with the state as it was."""

    def process(self, record: bytes) -> Iterable[bytes]:
        """The records that follow from one."""
        raise NotImplementedError

    def tick(self) -> Iterable[bytes]:
        """Called a few times a second: the records that follow from time."""
        return ()

    def choose(self, record: bytes, links: int) -> int | None:
        """To which link a record goes, from 0 on, if the job's sink has several; None: to the next
        one in turn."""
        return None


class _Function(Program):
    def __init__(self, function: Callable[[bytes], Iterable[bytes]]) -> None:
        self._function = function

    def process(self, record: bytes) -> Iterable[bytes]:
        return self._function(record)


class Job:
    """One run of a program; `run` returns when it was asked to stop."""

    def __init__(
        self,
        program: Program,
        words: Sequence[str],
        folder: Path,
        open_reader: ReaderOpener = brokers.open_reader,
        open_writer: WriterOpener = brokers.open_writer,
    ) -> None:
        """Raises ArgumentFaultError, sqlite3.Error and OSError."""
        self._open_reader, self._open_writer = open_reader, open_writer
        self.arguments = Arguments(words)
        self.contract = contract = read_contract(self.arguments)
        self.counters: Counter[str] = Counter()
        """The program's own."""
        if contract.zstd:
            load_zstd()
        self._program = program
        self._state = State(folder)
        self._reporter = Reporter()
        self._source = self._restore_source()
        self._port = Port(contract, self._state, open_writer, program.choose)
        self._stopping = False
        self._began = self._checkpointed = time.monotonic()
        self._reported = float("-inf")
        self._flushing: float | None = None
        self._request = self._completed_request = 0
        self._stored: tuple[object, ...] | None = None
        self._busy_s = self._idle_s = self._held_s = 0.0
        self._checkpoint_ms = 0

    def table(self, space: str) -> Table:
        """A part of the program's state."""
        return self._state.table(space)

    def stop(self, *_: object) -> None:
        self._stopping = True

    # -- what was before

    def _restore_source(self) -> Source:
        taken = self._state.fact("taken")
        position = read_position(self._state.fact("position"), self._state.fact("terms"))
        numbers = TakenNumbers.from_json(taken) if taken else TakenNumbers()
        return Source(self.contract, numbers, position, self._open_reader)

    def _settle_elsewhere(self) -> None:
        """Publish first what is left for links that are not the job's any more, where it belongs;
        what was acknowledged there is not kept."""
        for link, producer, rows in leftovers.by_link(self._port.elsewhere):
            window = ResendWindow(self.contract.resend_s, self.contract.resend_bytes, 0)
            sink = Sink(self.contract, link, window, self._open_writer, producer)
            leftovers.give(rows, sink)
            while not (sink.announce() or self._stopping):
                leftovers.wait((sink.writer,), _TICK_S)
                sink.tend(time.monotonic())
                self._report(time.monotonic(), sink.writer.problem)
            sink.writer.disconnect()
            self._port.sinks[0].lost += sink.lost
        if not self._stopping:
            gone = [row[0] for row in self._port.elsewhere]
            self._state.commit({}, (), gone)
            self._port.elsewhere = []

    # -- the loop

    def run(self) -> None:
        """Raises what the program raises."""
        self._program.open(self)
        self._state.commit({}, (), ())  # a disk that takes no state ends it before it takes records
        if self._port.elsewhere:
            self._settle_elsewhere()
        last_tick = float("-inf")
        while not (self._stopping and self._flushing is None):
            began = time.perf_counter()
            now = time.monotonic()
            self._source.reader.tend(now)
            self._port.tend(now)
            if self._flushing is None:
                self._take_some()
                if now - last_tick >= _TICK_S:
                    last_tick = now
                    self._write_all(self._program.tick())
            self._port.build_what_waited(now)
            self._go_on_with_checkpoint(now)
            self._report(now)
            waited = leftovers.wait(self._ends, self._find_pause())
            self._count_time(time.perf_counter() - began, waited)
        self._finish()

    def _count_time(self, spent: float, waited: float) -> None:
        """Add up a turn of so many seconds, of which it waited some: for input, or, if its input
        cannot be taken before the sink's broker has more of its output, for that."""
        self._busy_s += spent - waited
        has_waiting = self._source.reader.has_waiting
        if self._port.is_full or (self._flushing is not None and has_waiting):
            self._held_s += waited
        else:
            self._idle_s += waited

    def _take_some(self) -> None:
        for _ in range(_AT_ONCE):
            if not self._source.reader.has_waiting or self._port.is_full:
                return
            for record in self._source.take():
                self._write_all(self._program.process(record))

    def _find_pause(self) -> float:
        has_waiting = self._source.reader.has_waiting
        if has_waiting and not self._port.is_full and self._flushing is None:
            return 0.0
        return min(_TICK_S, self.contract.linger_s) if self._port.has_unbuilt else _TICK_S / 4

    @property
    def _ends(self) -> tuple[End, ...]:
        return (self._source.reader, *self._port.writers)

    def _write_all(self, records: Iterable[bytes]) -> None:
        for record in records:
            self._port.write(record)

    # -- checkpoints

    def _go_on_with_checkpoint(self, now: float) -> None:
        if self.contract.is_exact:
            self._port.announce()
        if self._flushing is None:
            self._request = self._reporter.read_request()
            is_due = now - self._checkpointed >= self.contract.checkpoint_s
            if not (is_due or self._stopping or self._request > self._completed_request):
                return
            self._flushing = now
            self._port.build_all()
        if self.contract.is_exact or self._port.announce():
            self._complete(now)

    def _complete(self, now: float) -> None:
        """All that was taken has led to what was sent: store it, and say so."""
        position = self._source.reader.position()
        number = self._store(*self._port.take_rows(), position)
        self._source.complete(number, position)
        self._port.release()
        began = self._flushing or now
        self._checkpoint_ms = int((time.monotonic() - began) * 1000)
        self._flushing, self._checkpointed = None, now
        if self._request > self._completed_request:
            self._completed_request = self._request
            self._reported = float("-inf")

    def _store(self, rows: list[Row], gone: list[int], position: Position) -> int:
        content = self._source.taken.messages, self._source.mark, self._port.numbers, position
        if content == self._stored and not (rows or gone or self._state.has_changed):
            return self._state.touch()
        self._stored = content
        facts = {
            "taken": self._source.taken.to_json(),
            "position": json.dumps({series: place.offset for series, place in position.items()}),
            "terms": json.dumps(position),
            **self._port.render(),
        }
        return self._state.commit(facts, rows, gone)

    # -- the end

    def _finish(self) -> None:
        """Take a last checkpoint; under exactly_once the last records go out after it, and another
        one says that they have."""
        reader = self._source.reader
        self._port.build_all()
        if self.contract.is_exact:
            self._complete(time.monotonic())
        while not self._port.announce():
            leftovers.wait(self._ends, _TICK_S / 4)
            now = time.monotonic()
            reader.tend(now)
            self._port.tend(now)
        self._complete(time.monotonic())
        until = time.monotonic() + _LAST_S
        while time.monotonic() < until and not reader.has_reported:
            leftovers.wait((reader,), _TICK_S / 4)
            reader.tend(time.monotonic())
        for each in self._ends:
            each.disconnect()
        self._state.close()

    # -- reports

    def _report(self, now: float, problem: str | None = None) -> None:
        if now - self._reported < _REPORT_S:
            return
        self._reported = now
        source, sinks = self._source, self._port.sinks
        reader, writers = source.reader, self._port.writers
        problems = (*(each.problem for each in writers), *(each.refusal for each in sinks))
        waited = now - self._began > _READY_S
        self._reporter.write(
            ready=reader.ready and (waited or all(each.ready for each in writers)),
            request=self._completed_request,
            interval_ms=int(self.contract.checkpoint_s * 1000),
            connected=reader.ready,
            problem=problem or reader.problem or next(filter(None, problems), None),
            records_in=source.records_in,
            records_out=sum(each.records_sent for each in sinks),
            bytes_in=source.bytes_in,
            bytes_out=sum(each.bytes_sent for each in writers),
            busy_ms=self._busy_s * 1000,
            idle_ms=self._idle_s * 1000,
            back_pressured_ms=self._held_s * 1000,
            left_out=sum(each.left_out for each in sinks),
            lost=sum(each.lost for each in sinks),
            dropped=reader.dropped,
            checkpoint_ms=self._checkpoint_ms,
            counters={
                **self.counters,
                "repeatsDropped": source.repeats,
                "batchesUnreadable": source.unreadable,
                "messagesMissing": source.taken.missing,
                "messagesLost": source.taken.lost,
                "sessionsLost": reader.sessions_lost,
                "recordsResent": sum(each.resent for each in sinks),
                "resendWindowCut": sum(each.window.cut for each in sinks),
            },
        )


def run(
    program: Program | Callable[[bytes], Iterable[bytes]], words: Sequence[str] | None = None
) -> None:
    """Run a program (a function from a record to records will do) until SIGTERM. The process then
    ends with status 0; with 2, and one line on stderr, if its arguments are wrong."""
    made = program if isinstance(program, Program) else _Function(program)
    folder = Path(os.environ.get("SPECK_STATE_DIR", "."))
    try:
        job = Job(made, sys.argv[1:] if words is None else words, folder)
        unknown = sorted(job.arguments.values.keys() - NAMES - made.names)
        if unknown:
            print(f"Arguments without effect: {', '.join(unknown)}", file=sys.stderr)
        signal.signal(signal.SIGTERM, job.stop)
        signal.signal(signal.SIGINT, job.stop)
        job.run()
    except ArgumentFaultError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
