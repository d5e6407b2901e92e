"""Repeated work in the background."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from speck.clock import Clock

LOG = logging.getLogger(__name__)


class PeriodicTask:
    """Calls `work` in a thread of its own, round after round, until it is stopped.

    After each round it waits for `interval_s` seconds; this may be a function, which must not
    raise. An error in a round is logged, and the next round follows as usual. The first round
    begins at once, or after an interval with `waits_first`.
    """

    def __init__(
        self,
        name: str,
        work: Callable[[], None],
        interval_s: float | Callable[[], float],
        clock: Clock,
        *,
        waits_first: bool = False,
    ):
        self._name = name
        self._work = work
        self._interval_s = interval_s
        self._clock = clock
        self._waits_first = waits_first
        self._woken = threading.Event()
        self._thread: threading.Thread | None = None
        self.stopping = threading.Event()
        """Set once no further round is to begin; waits within a round should end when it is set."""

    def start(self) -> None:
        """Start the thread; call it once."""
        assert self._thread is None
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Begin the next round now, or right after the running one."""
        self._woken.set()

    def ask_to_stop(self) -> None:
        """Begin no further round; do not wait for the running one."""
        self.stopping.set()
        self._woken.set()

    def stop(self, within_s: float | None = None) -> None:
        """Begin no further round, and wait for the running one to end, for `within_s` seconds at
        most. A task that was never started is only marked as stopped."""
        self.ask_to_stop()
        if self._thread is not None:
            self._thread.join(within_s)

    def _run(self) -> None:
        if self._waits_first:
            self._rest()
        while not self.stopping.is_set():
            try:
                self._work()
            except Exception:
                if not self.stopping.is_set():  # its dependencies may be closed by now
                    LOG.exception("a round of %s failed", self._name)
            self._rest()

    def _rest(self) -> None:
        interval_s = self._interval_s() if callable(self._interval_s) else self._interval_s
        self._clock.wait_for(self._woken, max(0.0, interval_s))
        self._woken.clear()
