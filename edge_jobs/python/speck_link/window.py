"""The messages that the broker has acknowledged not long ago; a twin of the connector's
ResendWindow.

Mosquitto acknowledges before it has anything on disk: a broker that is killed forgets what came
since its last autosave. The time counts from the last acknowledgement, and only while the broker is
known to live.
"""

from __future__ import annotations

from collections import deque

from speck_link.link_status import LinkStatus
from speck_link.messages import NOT_STORED, SENT, Message

_LONGEST_SILENCE_S = 30.0
"""After so long a broker's silence has ended the connection, over any transport."""


class ResendWindow:
    """Acknowledged messages, oldest first."""

    def __init__(self, span_s: float, most_bytes: int, most_state_bytes: int) -> None:
        self._span_s, self._most, self._most_state = span_s, most_bytes, most_state_bytes
        self._messages: deque[Message] = deque()
        self._bytes = 0
        self._last_acked = float("-inf")
        self._gone: list[int] = []
        self.cut = self.left_out = 0

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def newest(self) -> Message | None:
        return self._messages[-1] if self._messages else None

    def add(self, message: Message, now: float) -> None:
        """A message was acknowledged, also for a second time: it keeps its place then."""
        if not self._span_s:
            self._forget(message)
            return
        message.acked_at = self._last_acked = now
        message.resent = False
        if message.kept:
            return
        message.kept = True
        self._messages.append(message)
        self._bytes += message.size
        while self._bytes > self._most and len(self._messages) > 1:
            self._forget_oldest()
            self.cut += 1

    def prune(self, now: float, *, connected: bool) -> None:
        alive = max(self._last_acked, now - _LONGEST_SILENCE_S) if connected else self._last_acked
        while self._messages:
            oldest = self._messages[0]
            if oldest.resent or alive - oldest.acked_at <= self._span_s:
                return
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        self._forget(self._messages.popleft())

    def _forget(self, message: Message) -> None:
        if message.kept:
            message.kept = False
            self._bytes -= message.size
        if message.stored:
            self._gone.append(message.place)

    def remove(self, message: Message) -> None:
        """It will not be sent again after all."""
        if message.kept:
            self._messages.remove(message)
        self._forget(message)

    def send_again(self, status: LinkStatus | None) -> list[Message]:
        """What is to be sent again, in order: all but what the broker has by its `status`; without
        one, all. It stays in the window meanwhile."""
        missing: list[Message] = []
        is_reached = False  # a broker that has one has all that it acknowledged before
        for message in reversed(self._messages):
            is_reached = is_reached or (status is not None and status.reaches(message))
            message.resent = not is_reached or _is_lacking(status, message)
            if message.resent:
                missing.append(message)
        return missing[::-1]

    def store(self, before: int) -> tuple[list[Message], list[int]]:
        """The messages that a checkpoint has to store, and the places of those that it deletes. It
        keeps the newest, as many as it may; nothing from the place `before` on is touched, since
        parts of what is stored there may not have been sent."""
        room, kept, fresh = self._most_state, 0, list[Message]()
        for message in reversed(self._messages):
            room -= message.size
            if room < 0:
                break
            kept += 1
            if message.stored != SENT and message.place < before:
                fresh.append(message)
        self.left_out = len(self._messages) - kept
        for at in range(self.left_out):
            message = self._messages[at]
            if message.stored and message.place < before:
                message.stored = NOT_STORED
                self._gone.append(message.place)
        gone = [place for place in self._gone if place < before]
        self._gone = [place for place in self._gone if place >= before]
        return fresh[::-1], gone


def _is_lacking(status: LinkStatus | None, message: Message) -> bool:
    """What was to be sent again already may have been refused, and what came after it not."""
    return message.resent and status is not None and status.may_lack(message)
