"""Carries out analyses, one after the other, by the Spark application that stays up."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from speck.analyzer.process import GRACE_S, SparkApplication
from speck.analyzer.request import OUTGROWN, STARTING, AnalyzerRequest
from speck.analyzer.steps import STEPS
from speck.analyzer.warm_application import WarmApplication
from speck.clock import Clock, rfc3339
from speck.errors import ConflictError
from speck.model.analysis import Analysis, AnalysisHead, AnalysisState, Progress
from speck.store.records import Records

WAITING = 8
"""How many may wait for the one that runs."""
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AnalysisRequest:
    """What to analyse: the `window_s` seconds before `until` (None: the newest sample), or from
    `since`; of one composition or of all (None); at which of the service's Spark masters (None:
    the first). `ahead_s`: also forecast the rates of links for so many seconds."""

    composition: str | None = None
    window_s: float = 600.0
    since: datetime | None = None
    until: datetime | None = None
    master: str | None = None
    ahead_s: float | None = None


@dataclass(slots=True)
class AnalysisRun:
    """An analysis that is not over."""

    head: AnalysisHead
    request: AnalysisRequest
    application: SparkApplication | None = None
    step: str | None = None
    begun: bool = False
    cancelled: bool = False
    over: threading.Event = field(default_factory=threading.Event)


@dataclass(frozen=True, slots=True)
class _WarmUp:
    """Takes the turn of a run."""

    master: str


class AnalysisRuns:
    """The analyses that run or wait. Thread-safe; a thread of its own carries them out."""

    def __init__(
        self,
        records: Records,
        clock: Clock,
        application: WarmApplication,
        idle_s: float,
        describe: Callable[[AnalysisRun], AnalyzerRequest],
        flush: Callable[[], None],
    ):
        """An application that is idle for `idle_s` is ended. `describe` returns the request as the
        analyzer takes it; `flush` writes waiting samples to the dataset."""
        self._records = records
        self._clock = clock
        self.application = application
        self.idle_s = idle_s
        self._describe = describe
        self._flush = flush
        self._lock = threading.Lock()
        self._runs: dict[str, AnalysisRun] = {}
        self._queue: queue.Queue[AnalysisRun | _WarmUp | None] = queue.Queue()
        self._thread: threading.Thread | None = None
        self._closing = False

    @property
    def idle(self) -> bool:
        """Whether nothing was ever to be done."""
        return self._thread is None and self._queue.empty()

    def find(self, analysis_id: str) -> AnalysisRun | None:
        """The run of an analysis that is not over."""
        with self._lock:
            return self._runs.get(analysis_id)

    def add(self, run: AnalysisRun, accept: Callable[[], None]) -> None:
        """Have an analysis carried out in its turn; `accept` stores it. Raises ConflictError when
        too many wait, or the service stops."""
        with self._lock:
            self._refuse_too_many()
            accept()
            self._runs[run.head.id] = run
            self._enqueue(run)

    def warm_up(self, master: str) -> None:
        """Start the application, in its turn."""
        with self._lock:
            if not self._closing:
                self._enqueue(_WarmUp(master))

    def cancel(self, analysis_id: str) -> None:
        """End an analysis, if it is not over."""
        with self._lock:
            run = self._runs.get(analysis_id)
            if run is None:
                return
            run.cancelled = True
            if run.application is not None:
                run.application.end()
            if not run.begun:
                self._finish(run, AnalysisState.CANCELLED)
        run.over.wait(2 * GRACE_S)

    def add_progress(self, analysis: Analysis) -> Analysis:
        """The analysis with how far it has got."""
        with self._lock:
            run = self._runs.get(analysis.id)
            if run is None:
                return analysis
            if not run.begun:
                return replace(analysis, waits_for=self._find_former())
            if run.step is None:
                return analysis
            is_cold = not run.head.warm or run.step == STARTING
            steps = [STARTING, *STEPS] if is_cold else [*STEPS]
            if run.request.ahead_s is None:
                steps.remove(STEPS[-1])
            progress = Progress(run.step, steps.index(run.step), len(steps))
            return replace(analysis, warm=run.head.warm, progress=progress)

    def store_end(self, head: AnalysisHead, state: AnalysisState, error: str) -> None:
        """Store how an analysis has ended."""
        now = rfc3339(self._clock.now())
        ended = replace(head, state=state, error=error or None, ended=now)
        self._records.write(self._records.analyses.put(ended))

    def close(self) -> None:
        """End all, which count as failed since the service stops, and the application."""
        with self._lock:
            self._closing = True
            runs = list(self._runs.values())
            for run in runs:
                if run.application is not None:
                    run.application.end()
            self._queue.put(None)
        for run in runs:
            run.over.wait(2 * GRACE_S)
        if self._thread is not None:
            self._thread.join(2 * GRACE_S)

    # -- with the lock held -------------------------------------------------------------------

    def _refuse_too_many(self) -> None:
        if self._closing:
            raise ConflictError("cannot analyse: the service is stopping")
        running = list(self._runs)
        if len(running) > WAITING:
            raise ConflictError(
                f"cannot analyse: analysis {running[0]} runs and {WAITING} wait for it;"
                f" end it with DELETE /analyses/{running[0]}, or wait"
            )

    def _enqueue(self, run: AnalysisRun | _WarmUp) -> None:
        self._queue.put(run)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def _find_former(self) -> str | None:
        """The analysis that others wait for: the one that has begun."""
        return next((each.head.id for each in self._runs.values() if each.begun), None)

    def _finish(self, run: AnalysisRun, state: AnalysisState, error: str = "") -> None:
        """Store how a run ended."""
        self._runs.pop(run.head.id, None)
        with suppress(Exception):  # a store that takes no writes is reported elsewhere
            self.store_end(run.head, state, error)
        run.over.set()

    # -- the thread ---------------------------------------------------------------------------

    def _work(self) -> None:
        while (run := self._await_next()) is not None:
            if isinstance(run, _WarmUp):
                self.application.start(run.master)
            else:
                self._run(run)
        self.application.end()

    def _await_next(self) -> AnalysisRun | _WarmUp | None:
        """The next one; None at the end. An application that is idle for long is ended."""
        if self.application.current is not None:
            try:
                return self._queue.get(timeout=self.idle_s)
            except queue.Empty:
                self.application.end()
        return self._queue.get()

    def _run(self, run: AnalysisRun) -> None:
        with self._lock:
            if run.cancelled:  # while it waited
                return
            run.begun = True
        state, error = "failed", "the service stopped"
        try:
            self._flush()
            state, error = self._analyse(run)
        except Exception as fault:
            _LOG.exception("an analysis failed")
            state, error = "failed", f"cannot run the analyzer: {fault}"
        finally:
            with self._lock:
                self._finish(run, AnalysisState(state), error)

    def _analyse(self, run: AnalysisRun) -> tuple[str, str]:
        """The state and error of an analysis, by the application that stays up."""
        while True:
            application = self.application.take(run.head.master)
            was_warm = application.is_warm
            outcome = self._ask(run, application, warm=was_warm)
            self.application.end_if_large()
            if outcome is not None and outcome[0] != OUTGROWN:
                return outcome
            self.application.end()
            if outcome is None and not was_warm:
                return "failed", application.describe_end()
            why = "the analyzer died" if outcome is None else "a larger JVM is started"
            _LOG.warning("%s; analysis %s begins again", why, run.head.id)

    def _ask(
        self, run: AnalysisRun, application: SparkApplication, *, warm: bool
    ) -> tuple[str, str] | None:
        """The state and error of an analysis; None if the application died."""

        def report(step: str) -> None:
            with self._lock:
                run.step = step

        with self._lock:
            run.application = application
            run.head = replace(run.head, warm=warm)
            if run.cancelled or self._closing:
                application.end()
        outcome = application.ask(self._describe(run), report)
        with self._lock:
            run.application = None
            if run.cancelled:
                return "cancelled", ""
            if self._closing:
                return "failed", "the service stopped"
        return outcome
