"""The outcome of an operation, and its time limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from speck.model.engines import EngineAt
from speck.model.observation import EngineJob
from speck.model.queue import DroppedQueue
from speck.store.tables import Batch


@dataclass(frozen=True, slots=True)
class Done:
    """The operation succeeded. `store` is written together with the outcome; `afterwards` cleans up
    once that is stored. `dropped` is the queue that it has dropped.

    `sessions` are those (by client id) whose records are written, too: nobody else writes these
    meanwhile. `put_sessions` makes the writes for them then, from the records as they are. Of the
    operations that may end at the same time, only one may write a session in this way."""

    store: Batch = field(default_factory=dict)
    afterwards: Callable[[], None] | None = None
    dropped: DroppedQueue | None = None
    sessions: tuple[str, ...] = ()
    put_sessions: Callable[[], Batch] | None = None

    def with_writes(self, batch: Batch) -> Done:
        """The outcome with more to write together with it."""
        return replace(self, store={**self.store, **batch})

    def batch(self) -> Batch:
        """What is written together with the outcome, while the locks of its `sessions` are held."""
        return self.store if self.put_sessions is None else {**self.store, **self.put_sessions()}


@dataclass(frozen=True, slots=True)
class Waiting:
    """The engine is still working. Once `ready(jobs)` holds for the engine's jobs, `finish` is
    called.

    Without an `engine` no engine is asked, and `ready` gets an empty mapping at each poll. `finish`
    may return another Waiting. After `limit_s` seconds the operation fails with the message of
    `overdue`. `may_be_left`: nothing has begun, so a cancelled change does not wait for it.
    `progress` describes the progress to users, `trouble` what delays it.
    """

    engine: EngineAt | None
    ready: Callable[[Mapping[str, EngineJob]], bool]
    finish: Callable[[], Done | Waiting]
    limit_s: float
    overdue: Callable[[], str]
    may_be_left: bool = False
    progress: str | None = None
    trouble: str | None = None


Outcome = Done | Waiting


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits in seconds; docs/planning.md gives the reason for each. None: as long as the
    binder of the engine says."""

    start_s: float | None = None
    start_ask_s: float = 1.0
    connect_s: float = 8.0
    forgotten_s: float = 10.0
    refill_s: float = 4.0
    cancel_s: float = 300.0
    stop_s: float = 1800.0
    stop_starting_s: float = 10.0
    stop_idle_s: float | None = None
    stop_sink_idle_s: float = 10.0
    stop_poll_s: float = 1.0
    drain_idle_s: float = 60.0
    drain_poll_s: float = 0.2
    drain_ask_s: float = 3.0
    drain_quiet_s: float = 2.0
    drain_mark_s: float = 3.0
    carry_idle_s: float = 60.0
