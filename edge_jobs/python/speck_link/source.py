"""Reads a link: takes records once, and announces at checkpoints what was taken."""

from __future__ import annotations

import re
import sys
import time

from speck_link.arguments import Contract, keeps_log
from speck_link.batches import FRAMED, ZSTD, BatchError, unpack
from speck_link.brokers import open_reader
from speck_link.taken import EVER, TakenNumbers, parse_number, split_stamp
from speck_link.transport import Incoming, Position, ReaderOpener, TakenReport

_MARK = re.compile(rb"[0-9a-f]{1,32}")


class Source:
    """The reader of a job's link, of any kind; the listener of its transport's."""

    def __init__(
        self,
        contract: Contract,
        taken: TakenNumbers,
        position: Position,
        connect: ReaderOpener = open_reader,
    ) -> None:
        """`taken` and `position` are those of the job's state. In a log an earlier reader hands
        over positions, not numbers: they are for the transport."""
        self.link = contract.source
        read_before = taken.is_of(self.link.client_id)
        self.taken = taken
        taken.use_link(self.link.client_id)
        is_log = keeps_log(self.link.broker)
        taken.take_over(() if is_log else contract.taken)
        self._until = EVER if is_log else contract.until
        self._leaving = False
        self._announced: tuple[int, str | None, Position] | None = None
        self.mark: str | None = None
        self.records_in = self.bytes_in = self.repeats = self.unreadable = 0
        start = position if read_before else {}
        self.reader = connect(contract, self, start, read_before=read_before)

    def start_over(self) -> None:
        """What is not acknowledged comes again over the next connection."""
        self._leaving = False
        self._announced = None

    # -- records

    def take(self) -> list[bytes]:
        """The new records of the next message that waits."""
        message = self.reader.poll()
        if message.is_mark:
            self.reader.keep(message)
            if _MARK.fullmatch(message.payload):
                self.mark = message.payload.decode()
            return []
        self.bytes_in += len(message.payload) + len(self.link.topic) + len(message.stamp or "") + 20
        records = self._open_message(message)
        if not self._leaving:
            self.reader.keep(message)
        return records

    def _open_message(self, message: Incoming) -> list[bytes]:
        if message.content_type not in (FRAMED, ZSTD):
            prefix, number = split_stamp(message.stamp)
            return [message.payload] if self._is_new(prefix, number) else []
        prefix, first, count = _split_batch(message.stamp)
        try:
            payloads = unpack(message.content_type, message.payload, count)
        except BatchError as error:
            if not self.unreadable:
                print(f"{self.link} has a message that is left out: {error}", file=sys.stderr)
            self.unreadable += 1
            return []
        numbers = range(first, first + len(payloads)) if count else [-1] * len(payloads)
        pairs = zip(payloads, numbers, strict=True)
        return [payload for payload, number in pairs if self._is_new(prefix, number)]

    def _is_new(self, prefix: str, number: int) -> bool:
        """From the first message that is beyond the numbers to read nothing is acknowledged, so
        that all of it comes again at the next start."""
        if not self._until.is_ever:
            included = self._until.includes(prefix, number) if number > 0 else not self._leaving
            if not included:
                self._leaving = True
                return False
        self.records_in += 1
        is_new = self.taken.take(prefix, number)
        self.repeats += not is_new
        return is_new

    # -- checkpoints

    def complete(self, checkpoint: int, position: Position) -> None:
        """A checkpoint is complete that covers all that was taken, up to a position in the log:
        acknowledge that, and announce it if it is new."""
        self.reader.acknowledge()
        content = self.taken.messages, self.mark, position
        if content == self._announced or not self.reader.ready:
            return
        at_ms = int(time.time() * 1000)
        report = TakenReport(at_ms, checkpoint, self.taken, position, self.mark)
        if self.reader.report(report):
            self._announced = content


def _split_batch(stamp: str | None) -> tuple[str, int, int | None]:
    """Prefix, first number and count of the stamp of a batch; the count is None for a foreign
    one."""
    prefix, _, numbers = (stamp or "").rpartition("/")
    first_text, _, count_text = numbers.partition("+")
    first, count = parse_number(first_text), parse_number(count_text)
    if not prefix or first < 1 or not 1 <= count <= 10_000:
        return "", -1, None
    return f"{prefix}/", first, count
