"""Failpoints: tests and benchmarks choose a point at which the service crashes, and check that
nothing is lost.

`SPECK_CRASH_AT=<kind>:<point>` (or `<kind>:<point>:<n>`, for the n-th time) makes the service kill
itself with SIGKILL when an operation of that kind reaches the point. Before that it writes
`<kind>:<point>` to the file named by `SPECK_CRASH_MARK`. While this file exists it does not crash
again, so that a restarted service survives. Without the variable all failpoints are off.

    before-intent   the intent has not been stored yet
    after-intent    the intent is stored; the request is sent next
    after-request   the request has been sent; its answer has not been read
    after-answer    the answer has been read; nothing of it is stored yet
    before-outcome  the operation has its outcome, which is not stored yet
    after-outcome   the outcome is stored; no call of a dependent operation has been made
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from speck.errors import InvalidError

BEFORE_INTENT = "before-intent"
AFTER_INTENT = "after-intent"
AFTER_REQUEST = "after-request"
AFTER_ANSWER = "after-answer"
BEFORE_OUTCOME = "before-outcome"
AFTER_OUTCOME = "after-outcome"
POINTS = (
    BEFORE_INTENT,
    AFTER_INTENT,
    AFTER_REQUEST,
    AFTER_ANSWER,
    BEFORE_OUTCOME,
    AFTER_OUTCOME,
)

REQUESTS = frozenset(
    {
        *("upload", "try_main", "submit", "fence", "stop", "save", "cancel"),
        *("reserve", "release", "forget", "confirm_sessions"),
        *("carry", "drop"),
    }
)
"""The methods of engines, brokers and state keepers that change something at a site."""

Die = Callable[[str], None]
_T = TypeVar("_T")


@dataclass(slots=True)
class _Trap:
    kind: str
    point: str
    countdown: int
    die: Die


_trap: _Trap | None = None
_lock = threading.Lock()
_here = threading.local()


def arm(at: str, die: Die) -> None:
    """Call `die` with `<kind>:<point>`, once, when an operation reaches the point `at`.

    Raises InvalidError if there is no such point.
    """
    global _trap
    kind, _, rest = at.partition(":")
    point, _, times = rest.partition(":")
    if point not in POINTS or not (times or "1").isdigit():
        raise InvalidError(
            f"cannot crash at {at!r}: write <kind of operation>:<point> with one of"
            f" {', '.join(POINTS)}, and :<n> for the n-th time"
        )
    _trap = _Trap(kind, point, int(times or 1), die)


def disarm() -> None:
    """Turn all failpoints off."""
    global _trap
    _trap = None


def arm_from(env: Mapping[str, str]) -> None:
    """Arm the failpoint that the environment names, if any. Raises InvalidError."""
    at, mark = env.get("SPECK_CRASH_AT"), env.get("SPECK_CRASH_MARK")
    if at is None or (mark is not None and Path(mark).exists()):
        return

    def die(where: str) -> None:
        if mark is not None:
            Path(mark).write_text(where)
        os.kill(os.getpid(), signal.SIGKILL)

    arm(at, die)


def is_armed() -> bool:
    """Whether a failpoint is armed."""
    return _trap is not None


@contextmanager
def carrying_out(kind: str) -> Iterator[None]:
    """Mark this thread as carrying out an operation of `kind` during the block."""
    _here.kind = kind
    try:
        yield
    finally:
        _here.kind = None


def hit(point: str, kind: str | None = None) -> None:
    """Report that an operation has reached `point`; `kind` defaults to the thread's operation."""
    global _trap
    if _trap is None:
        return
    kind = kind or getattr(_here, "kind", None)
    with _lock:
        trap = _trap
        if trap is None or (trap.kind, trap.point) != (kind, point):
            return
        trap.countdown -= 1
        if trap.countdown:
            return
        _trap = None
    trap.die(f"{kind}:{point}")


def hit_after_request() -> None:
    """Report that a request of this thread's operation has gone out."""
    hit(AFTER_REQUEST)


def wrap(binder: _T, *, hits_after_request: bool = True) -> _T:
    """Wrap a binder, if a failpoint is armed, so that each of its `REQUESTS` hits AFTER_INTENT
    first, and AFTER_REQUEST afterwards unless the binder `hits_after_request` itself."""
    return cast(_T, _Wrapper(binder, hits_after_request)) if is_armed() else binder


class _Wrapper:
    def __init__(self, binder: Any, hits_after_request: bool) -> None:
        self._binder = binder
        self._hits_after_request = hits_after_request

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._binder, name)
        if name not in REQUESTS:
            return member

        @wraps(member)
        def call(*args: Any, **kwargs: Any) -> Any:
            hit(AFTER_INTENT)
            answer = member(*args, **kwargs)
            if not self._hits_after_request:
                hit(AFTER_REQUEST)
            return answer

        return call
