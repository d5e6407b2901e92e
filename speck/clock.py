"""Time and fresh ids, injected so that tests can control them."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Event(Protocol):
    """Something that is waited for; `threading.Event` is one."""

    def is_set(self) -> bool:
        """Whether it has happened."""

    def set(self) -> None:
        """It has happened."""

    def wait(self, timeout: float | None = None) -> bool:
        """Sleep until it has happened, at most so many seconds; whether it has."""


class Clock(Protocol):
    """The source of time and fresh ids."""

    def now(self) -> datetime:
        """The current time, aware, UTC."""

    def monotonic(self) -> float:
        """Seconds of a clock that never runs backwards; for deadlines only."""

    def wait(self, seconds: float) -> None:
        """Sleep for `seconds`."""

    def wait_for(self, event: Event, seconds: float) -> bool:
        """Sleep for `seconds`, or until `event` is set; returns whether it is set."""

    def new_id(self) -> str:
        """A fresh id of 32 hex digits."""


class SystemClock:
    """The machine's own time."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()

    def wait(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait_for(self, event: Event, seconds: float) -> bool:
        return event.wait(seconds)

    def new_id(self) -> str:
        return secrets.token_hex(16)


_ASKED_EVERY_S = 0.25


def never() -> bool:
    """Nobody gives up."""
    return False


def wait_unless(clock: Clock, event: Event, seconds: float, gives_up: Callable[[], bool]) -> bool:
    """Wait for `event`, at most so many seconds, and not once `gives_up`, which is asked a few
    times a second; whether the event is set."""
    until = clock.monotonic() + seconds
    while not event.is_set():
        left_s = until - clock.monotonic()
        if left_s <= 0 or gives_up():
            return event.is_set()
        clock.wait_for(event, min(left_s, _ASKED_EVERY_S))
    return True


def rfc3339(moment: datetime) -> str:
    """`moment` as RFC 3339 in UTC with milliseconds, e.g. `2026-01-31T12:00:00.000Z`."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
