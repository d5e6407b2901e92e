"""Writes a link: numbers records, publishes them in order, and sends again what may be lost."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import Any

from speck_link.arguments import Contract, Link
from speck_link.batches import unpack
from speck_link.brokers import open_writer
from speck_link.link_status import LinkStatus
from speck_link.messages import Message
from speck_link.sent import SentNumber
from speck_link.transport import Outcome, WriterOpener
from speck_link.window import ResendWindow

_FIRST_PAUSE_S, _MOST_PAUSE_S = 0.05, 2.0
_MOST_PENDING = 16 << 20
_NO_LIMIT = 1 << 62


class TooLargeError(RuntimeError):
    """Under exactly_once a record that no broker takes ends the job."""


class Sink:
    """The publisher of one link; the listener of its writer."""

    def __init__(
        self,
        contract: Contract,
        link: Link,
        window: ResendWindow,
        connect: WriterOpener = open_writer,
        producer: str | None = None,
    ) -> None:
        """`producer` is that of the numbers, unless it is the job's."""
        self.link = link
        self._contract = contract
        self._producer = producer or contract.producer
        self.window = window
        has_readers = contract.has_readers if link in contract.port else None
        self.status = LinkStatus(link, self._producer, has_readers)
        self._waiting: deque[Message] = deque()
        self._sent: dict[int, Message] = {}
        self._refused: list[Message] = []
        self._bytes = 0
        self._resend_due = False
        self._holding = False
        self._pause_s = _FIRST_PAUSE_S
        self._try_at = 0.0
        self._suspect: Message | None = None
        self._unread_since: float | None = None
        self._most_payload = _NO_LIMIT
        self._newest: Message | None = None
        self._doubtful: Message | None = None
        self._announced: tuple[Message | None, int] = (None, 0)
        self._held: int | None = None
        self.refusal: str | None = None
        self.records_sent = self.left_out = self.lost = self.resent = 0
        self.writer = connect(contract, link, self)

    # -- what the job does

    @property
    def is_full(self) -> bool:
        return self._pending >= self._contract.sink_window or self._bytes >= _MOST_PENDING

    @property
    def _pending(self) -> int:
        return len(self._waiting) + len(self._sent) + len(self._refused)

    @property
    def _is_resend_due(self) -> bool:
        return self._resend_due or self.status.wants_again

    def add(self, message: Message) -> None:
        self._waiting.append(message)
        self._bytes += message.size
        self._newest = message
        self._send_waiting()

    def restore(self, messages: list[Message]) -> None:
        """Take over what was acknowledged before the start."""
        now = time.monotonic()
        for message in messages:
            self.window.add(message, now)
            self._newest = message

    def doubt(self, first: Message) -> None:
        """An earlier start may have sent the messages from this one on, which are about to be
        added."""
        self._doubtful = first

    @property
    def first_pending(self) -> int:
        """The place in the state of the first message that the broker does not have."""
        pending = (*self._waiting, *self._sent.values(), *self._refused)
        return min((message.origin for message in pending if not message.kept), default=1 << 62)

    @property
    def max_payload(self) -> int:
        """Bytes that the broker takes, as far as is known."""
        return min(self._most_payload, self.writer.max_payload)

    @property
    def is_drained(self) -> bool:
        """Whether the broker has everything."""
        return not self._pending and not self._is_resend_due

    def announce(self) -> bool:
        """Announce, retained, up to which number the broker has everything, if it has; whether it
        has taken that, if only over an earlier connection."""
        if not self.is_drained:
            return False
        self._doubtful = None
        content = self._newest, self.left_out + self.lost
        if self._newest is None or self.writer.keeps_log:
            return True
        if content == self._announced:
            return not self.writer.is_reporting
        if self.writer.ready:
            payload = self.status.render(
                self._newest.epoch, self._newest.last, left_out=self.left_out, lost=self.lost
            )
            if self.writer.report(payload):
                self._announced, self._held = content, None
        return False

    def tend(self, now: float) -> None:
        self.writer.tend(now)
        self.window.prune(now, connected=self.writer.ready)
        self._advance(now)

    def leave_out(self, size: int) -> None:
        """Count a record that is too large before it has a number."""
        self._report_left_out(size, "it is larger than the broker takes, or --max-record-bytes")

    # -- what the writer says

    @property
    def oldest_doubtful(self) -> SentNumber | None:
        """What another start may have sent; else the newest that was acknowledged: what came after
        that over an earlier connection lies behind it."""
        if not self._contract.is_acknowledged:
            return None
        producer, first = self._producer, self._doubtful
        if first is not None:
            return SentNumber(producer, first.epoch, first.number)
        newest = self.window.newest
        return None if newest is None else SentNumber(producer, newest.epoch, newest.last)

    def admit(self) -> None:
        self.status.start_over()
        self._most_payload = _NO_LIMIT

    def begin(self) -> None:
        self._resend_due = self._contract.is_acknowledged and len(self.window) > 0
        self._advance(time.monotonic())

    def hear(self, topic: str, payload: bytes) -> None:
        self.status.receive(topic, payload)
        if not (self._sent or len(self.window)):
            self.status.wants_again = False
        if topic == self.status.topics[0]:
            self._pause_s, self._try_at = _FIRST_PAUSE_S, 0.0

    def start_over(self, *, is_guilty: bool) -> None:
        """A new connection knows nothing of what the old one was given."""
        if not self._contract.is_acknowledged:
            self.lost += sum(message.count for message in self._sent.values())
            self._sent.clear()
            return
        if is_guilty:
            self._find_suspect()
        back = sorted((*self._sent.values(), *self._refused), key=lambda m: (m.place, m.number))
        self.resent += sum(message.count for message in self._sent.values())
        self._waiting.extendleft(reversed(back))
        self._sent.clear()
        self._refused.clear()
        self._holding, self._held = False, None
        self._announced = (None, 0)

    def _find_suspect(self) -> None:
        """A message at which the connection ends twice, the second time alone, is given up: it
        would hold all behind it for ever."""
        if not self._sent:
            return
        first = next(iter(self._sent.values()))
        if self._suspect is first and len(self._sent) == 1:
            del self._sent[next(iter(self._sent))]
            self._give_up(first, "the connection ends whenever it is sent")
            self._suspect = None
        else:
            self._suspect = first

    # -- sending

    def _advance(self, now: float) -> None:
        if not self.writer.ready:
            return
        if self._is_resend_due and not self._sent and self.status.reaches_all:
            self._resend()
        if self._holding and not self._sent:
            self._announce_held()
            if now >= self._try_at:
                self._try_first(now)
            return
        self._send_waiting()
        if self._waiting and not self.status.reaches_all:
            self._announce_held()

    def _resend(self) -> None:
        """Send the window again, before anything new; what is in it is not sent twice. A reader
        that has lost its session gets all of it: the broker may have had it for others only."""
        self._requeue_refused()
        self._waiting = deque(m for m in self._waiting if not m.kept)
        missing = self.window.send_again(None if self.status.wants_again else self.status)
        self._resend_due = self.status.wants_again = False
        self.resent += sum(message.count for message in missing)
        self._waiting.extendleft(reversed(missing))

    def _requeue_refused(self) -> None:
        back = sorted(self._refused, key=lambda m: (m.place, m.number))
        self._refused.clear()
        self._waiting.extendleft(reversed(back))

    def _try_first(self, now: float) -> None:
        self._try_at = now + self._pause_s
        self._pause_s = min(_MOST_PAUSE_S, 2 * self._pause_s)
        self._requeue_refused()
        if self._waiting and self.status.reaches_all:
            self._send(self._waiting.popleft())
        elif not self._waiting:
            self._holding = False

    def _send_waiting(self) -> None:
        while (
            self.writer.ready
            and self._waiting
            and not self._holding
            and not self._is_resend_due
            and self.status.reaches_all
            and len(self._sent) < (1 if self._suspect is not None else self.writer.most_in_flight)
        ):
            self._send(self._waiting.popleft())

    def _send(self, message: Message) -> None:
        if not message.resent and self.status.covers(message):
            self._accept(message)
            return
        if message.format is not None and not self.writer.takes_batches:
            self._split(message)
            return
        if len(message.payload) > self.max_payload:
            self._handle_too_large(message, "it is larger than the broker takes")
            return
        stamp = message.stamp(self._producer)
        key = self.writer.send(message.payload, stamp, message.format)
        if key is None:
            self._accept(message)
        else:
            self._sent[key] = message

    def settle(self, key: int, outcome: Outcome, problem: str | None = None) -> None:
        message = self._sent.pop(key, None)
        if message is None:
            return
        if message is self._suspect:
            self._suspect = None
        if outcome is Outcome.UNREAD and not self._may_go_unread(message):
            self._refuse(message)
        elif outcome is Outcome.TOO_LARGE:
            self._handle_too_large(message, problem or "it is too large")
        elif outcome is Outcome.REFUSED:
            self._refuse(message, problem)
        else:
            self._accept(message)
        if self._sent:
            self._send_waiting()
        else:
            self._advance(time.monotonic())

    def _may_go_unread(self, message: Message) -> bool:
        """Whether a message that nobody has subscribed to has gone out. On a link that was the
        job's once it is not known whether there are readers: it waits for them for a while."""
        readers = self.status.has_readers
        if readers is False or self.status.covers(message):
            return True
        now = time.monotonic()
        self._unread_since = now if self._unread_since is None else self._unread_since
        if readers is None and now - self._unread_since > self._contract.resend_s:
            self.lost += message.count
            return True
        return False

    def _refuse(self, message: Message, problem: str | None = None) -> None:
        self._refused.append(message)
        if not self._holding:
            self._holding = True
            self._try_at = time.monotonic() + self._pause_s
        if problem is not None:
            self.refusal = f"cannot write to {self.link}: the broker refuses records: {problem}"

    def _accept(self, message: Message) -> None:
        if self._holding and not self._refused:
            self._holding, self._pause_s = False, _FIRST_PAUSE_S
        if not self._refused:
            self.refusal = None
        self._unread_since = None
        self._settle(message)
        if self._contract.is_acknowledged:
            self.window.add(message, time.monotonic())

    def _settle(self, message: Message) -> None:
        """It is pending no more; what is sent again from the window was settled before."""
        if not message.kept:
            self._bytes -= message.size

    def _handle_too_large(self, message: Message, problem: str) -> None:
        self._most_payload = min(self.max_payload, len(message.payload) - 1)
        if message.format is None:
            self._give_up(message, problem)
        else:
            self._split(message)

    def _split(self, message: Message) -> None:
        """Its records go one by one."""
        assert message.format is not None
        parts = message.split(unpack(message.format, message.payload, message.count))
        self._settle(message)
        if message.kept:
            self.window.remove(message)
        else:
            parts[0].stored = message.stored  # in its place, until all of them have been taken
        self._bytes += sum(part.size for part in parts)
        self._waiting.extendleft(reversed(parts))

    def _give_up(self, message: Message, problem: str) -> None:
        if self._contract.is_exact:
            size = len(message.payload)
            raise TooLargeError(
                f"cannot publish a record of {size} bytes to {self.link}: {problem}; raise"
                f" {self.writer.size_setting}, or have such records left out with"
                f" --max-record-bytes {size - 1}"
            )
        self._settle(message)
        self.window.remove(message)
        self._report_left_out(len(message.payload), problem)

    def _report_left_out(self, size: int, problem: str) -> None:
        what = f"cannot publish a record of {size} bytes to {self.link}: {problem}"
        print(f"{what}; it is left out", file=sys.stderr)
        self.left_out += 1

    def _announce_held(self) -> None:
        """Records are held back: nobody reads the link, or the broker refuses them."""
        held = sum(message.count for message in (*self._waiting, *self._refused))
        first = min((*self._waiting, *self._refused), key=lambda m: m.place, default=None)
        if held == self._held or first is None or self.writer.keeps_log:
            return
        self._held, self._announced = held, (None, 0)
        report: dict[str, Any] = {"left_out": self.left_out, "lost": self.lost}
        if self.refusal is None:
            report["unread"] = held
        else:
            report |= {"refused": held, "problem": self.refusal}
        self.writer.report(self.status.render(first.epoch, first.number - 1, **report))
