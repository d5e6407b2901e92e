"""Switches by which a test makes an engine or a broker fail, and the log of what it was asked."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import RLock

from speck import failpoints
from speck.errors import SpeckError, UnreachableError


@dataclass(slots=True, kw_only=True, eq=False)
class Faults:
    """How one address behaves towards the binders opened on it.

    `calls` holds (method, subject) in order; the subject is the engine job id, the jar's hash
    or the client id, "" where there is none. `before`, when set, runs before each call and
    outside the world's lock: a test may block in it to see what runs at the same time.
    """

    address: str
    lock: RLock
    unreachable: bool = False
    calls: list[tuple[str, str]] = field(default_factory=list)
    before: Callable[[str, str], None] | None = None
    _refusals: dict[str, deque[tuple[SpeckError, bool]]] = field(
        default_factory=lambda: defaultdict(deque)
    )

    def refuse(self, kind: str, times: int, error: SpeckError, *, after: bool = False) -> None:
        """Let the next `times` calls of method `kind` raise `error`; with `after` they take
        effect first, as when an answer is lost."""
        self._refusals[kind].extend([(error, after)] * times)

    def forgive(self) -> None:
        """Let no further calls raise what `refuse` asked for."""
        self._refusals.clear()

    def count(self, kind: str) -> int:
        """How often method `kind` was called."""
        return sum(1 for called, _ in self.calls if called == kind)

    @contextmanager
    def call(self, kind: str, subject: str = "") -> Iterator[None]:
        """Around each call of a binder."""
        if self.before is not None:
            self.before(kind, subject)
        with self.lock:
            self.calls.append((kind, subject))
            if self.unreachable:
                raise UnreachableError(f"cannot reach {self.address}: made unreachable by a test")
            refusals = self._refusals[kind]
            error, after = refusals.popleft() if refusals else (None, False)
            if error is not None and not after:
                raise error
            yield
            if kind in failpoints.REQUESTS:
                failpoints.hit(failpoints.AFTER_REQUEST)
            if error is not None:
                raise error
