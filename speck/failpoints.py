"""Dies on purpose: tests and benchmarks choose the point, and see that nothing is lost by it.

`SPECK_CRASH_AT=<kind>:<point>` (or `:<point>:<n>`, at the n-th time) lets the service kill itself
with SIGKILL when an operation of that kind gets there, after writing `<kind>:<point>` to the file
that `SPECK_CRASH_MARK` names. While that file exists it does not happen again: the service that
is started anew lives. Without the variable nothing is watched.

    before-intent   what will be done is not written yet
    after-intent    it is written; the request goes out next
    after-request   the request went out; its answer was not read
    after-answer    the answer came; nothing of it is written yet
    before-outcome  what the operation waited for has come; that is not written yet
    after-outcome   its outcome is written; nothing that depends on it has begun
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
        *("upload", "try_main", "submit", "fence", "stop", "savepoint", "cancel"),
        *("reserve", "release", "forget", "ask_again"),
        *("carry", "drop"),
    }
)
"""Methods of engines, brokers and keepers that change something there."""

Die = Callable[[str], None]
_T = TypeVar("_T")


@dataclass(slots=True)
class _Trap:
    kind: str
    point: str
    left: int
    die: Die


_trap: _Trap | None = None
_lock = threading.Lock()
_here = threading.local()


def arm(at: str, die: Die) -> None:
    """Let `die` be called with `<kind>:<point>` when `at` is reached, once.

    Raises InvalidError when there is no such point.
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
    """Watch nothing."""
    global _trap
    _trap = None


def arm_from(env: Mapping[str, str]) -> None:
    """As the environment says: see the module. Raises InvalidError."""
    at, mark = env.get("SPECK_CRASH_AT"), env.get("SPECK_CRASH_MARK")
    if at is None or (mark is not None and Path(mark).exists()):
        return

    def die(where: str) -> None:
        if mark is not None:
            Path(mark).write_text(where)
        os.kill(os.getpid(), signal.SIGKILL)

    arm(at, die)


def armed() -> bool:
    """Whether anything is watched."""
    return _trap is not None


@contextmanager
def carrying_out(kind: str) -> Iterator[None]:
    """While this thread carries out an operation of a kind."""
    _here.kind = kind
    try:
        yield
    finally:
        _here.kind = None


def reached(point: str, kind: str | None = None) -> None:
    """Say that an operation has got to a point; `kind` is the thread's own by default."""
    global _trap
    if _trap is None:
        return
    kind = kind or getattr(_here, "kind", None)
    with _lock:
        trap = _trap
        if trap is None or (trap.kind, trap.point) != (kind, point):
            return
        trap.left -= 1
        if trap.left:
            return
        _trap = None
    trap.die(f"{kind}:{point}")


def watched(binder: _T, *, tells: bool = True) -> _T:
    """The binder, with every request that changes something preceded by its point; followed by
    the next one, too, unless the binder `tells` itself when a request went out."""
    return cast(_T, _Watched(binder, tells)) if armed() else binder


class _Watched:
    def __init__(self, binder: Any, tells: bool) -> None:
        self._binder = binder
        self._tells = tells

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._binder, name)
        if name not in REQUESTS:
            return found

        @wraps(found)
        def call(*given: Any, **named: Any) -> Any:
            reached(AFTER_INTENT)
            answer = found(*given, **named)
            if not self._tells:
                reached(AFTER_REQUEST)
            return answer

        return call
