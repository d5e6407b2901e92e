"""Switches by which a test makes an engine or a broker fail, and the log of their calls."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock

from speck.binding import ignore_request
from speck.errors import SpeckError, UnreachableError

CHANGING = frozenset(
    {
        *("upload", "try_main", "submit", "fence", "stop", "savepoint", "cancel"),
        *("reserve", "release", "forget", "confirm_sessions"),
    }
)
"""The methods of binders that may change something."""


@dataclass(slots=True, kw_only=True, eq=False)
class Faults:
    """The behaviour of one address towards the binders that are opened on it.

    With `hears` calls that may change something take effect while it is `unreachable`: only their
    answers are lost. `calls` holds (method, subject) in order; the subject is the engine job id,
    the jar's hash or the client id, or "" if there is none. `before`, if set, runs before each call
    and outside the world's lock: a test may block in it to see which calls overlap. `on_request`:
    see `speck.binding.Target`.
    """

    address: str
    lock: RLock
    unreachable: bool = False
    hears: bool = False
    calls: list[tuple[str, str]] = field(default_factory=list)
    before: Callable[[str, str], None] | None = None
    on_request: Callable[[], None] = ignore_request
    _refusals: dict[str, deque[tuple[SpeckError, bool]]] = field(
        default_factory=lambda: defaultdict(deque)
    )

    def refuse(self, kind: str, times: int, error: SpeckError, *, after: bool = False) -> None:
        """Make the next `times` calls of method `kind` raise `error`; with `after` they take
        effect first, as if the answer were lost."""
        self._refusals[kind].extend([(error, after)] * times)

    def forgive(self) -> None:
        """Cancel all errors that `refuse` has set up."""
        self._refusals.clear()

    def count(self, kind: str) -> int:
        """Count the calls of method `kind`."""
        return sum(1 for method, _ in self.calls if method == kind)

    @contextmanager
    def call(self, kind: str, subject: str = "") -> Iterator[None]:
        """Record a call of a binder, and raise the errors that a test has set up."""
        if self.before is not None:
            self.before(kind, subject)
        with self.lock:
            self.calls.append((kind, subject))
            silent = UnreachableError(f"cannot reach {self.address}: made unreachable by a test")
            if self.unreachable and not (self.hears and kind in CHANGING):
                raise silent
            refusals = self._refusals[kind]
            error, after = refusals.popleft() if refusals else (None, False)
            if error is not None and not after:
                raise error
            yield
            if kind in CHANGING:
                self.on_request()
            if self.unreachable:
                raise silent
            if error is not None:
                raise error
