"""Analyses: each is requested, runs on Spark, and is kept.

One runs at a time, others wait for it. They share a Spark application that stays up between them
("warm") and is ended when it was idle for long, when it has taken too much memory, when another
master is asked for, and when more rows than it holds are. If it dies during an analysis, that
begins again in a new one. It is started before the first request once a job runs, unless memory is
scarce.
"""

from __future__ import annotations

import importlib.util
import json
import logging
import os
import queue
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from speck.analyzer.clusters import SparkClusters
from speck.analyzer.masters import SparkMasters, is_local
from speck.analyzer.process import GRACE_S, SparkApplication
from speck.analyzer.request import OUTGROWN, STARTING, AnalyzerRequest
from speck.analyzer.steps import STEPS
from speck.clock import Clock, never, rfc3339, wait_unless
from speck.config import Config
from speck.errors import ConflictError, InvalidError, NotFoundError, Problem
from speck.metrics.dataset.reading import has_composition
from speck.metrics.dataset.schema import TASKS
from speck.metrics.dataset.storage import Storage
from speck.model.analysis import Analysis, AnalysisHead, AnalysisState, Progress
from speck.store.records import Records

KEPT = 100
"""How many analyses are kept."""
WAITING = 8
"""How many may wait for the one that runs."""
NATIVE_BYTES = 1 << 30
"""Memory of an application besides the JVM's heap; one that has taken more is ended."""
WARM_FREE_BYTES = 2 << 30
"""Nothing is started before it is asked for on a machine with less memory than this available."""
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
class _Run:
    head: AnalysisHead
    request: AnalysisRequest
    application: SparkApplication | None = None
    step: str | None = None
    begun: bool = False
    cancelled: bool = False
    over: threading.Event = field(default_factory=threading.Event)


class _WarmUp:
    """Takes the turn of a run."""


class Analyses:
    """Runs analyses and keeps their results; `flush` writes waiting samples to the dataset."""

    def __init__(
        self,
        config: Config,
        storage: Storage,
        records: Records,
        clock: Clock,
        flush: Callable[[], None],
    ):
        self._storage = storage
        self._masters = SparkMasters(config.spark_masters)
        self._clusters = SparkClusters(config, storage)
        self._memory = config.spark_memory
        self._idle_s = config.spark_idle_s
        self._folder = config.home / "analyses"
        self._records = records
        self._clock = clock
        self._flush = flush
        self._lock = threading.Lock()
        self._runs: dict[str, _Run] = {}
        self._queue: queue.Queue[_Run | _WarmUp | None] = queue.Queue()
        self._warms_up = config.analyzer_warm
        self._thread: threading.Thread | None = None
        self._warm: tuple[str, SparkApplication] | None = None
        self._closing = False
        for head in records.analyses.newest_first():
            if not head.state.over:
                self._store_end(head, AnalysisState.FAILED, "the service stopped")

    # -- reading --------------------------------------------------------------------------

    def all(self, composition: str | None = None, state: str | None = None) -> list[AnalysisHead]:
        """Heads of all analyses, newest first."""
        return [
            head
            for head in self._records.analyses.newest_first()
            if (composition is None or head.composition == composition)
            and (state is None or head.state == state)
        ]

    def get(self, analysis_id: str) -> Analysis:
        """An analysis with its result once it is done; while it runs, with its progress. Raises
        NotFoundError.
        """
        head = self._records.analyses.get(analysis_id)
        if head is None:
            raise NotFoundError(f"cannot find analysis {analysis_id!r}")
        tables: dict[str, Any] = {}
        with suppress(FileNotFoundError):
            tables = json.loads(self._result(analysis_id).read_text())
        analysis = Analysis.of(head, tables)
        return analysis if head.state.over else self._add_progress(analysis)

    def newest(self, composition: str) -> Analysis | None:
        """The newest analysis that has a result, of this composition or of all."""
        for head in self.all():
            covers = head.composition in (None, composition)
            if covers and head.state is AnalysisState.DONE:
                analysis = self.get(head.id)
                if analysis.has_result:
                    return analysis
        return None

    def _add_progress(self, analysis: Analysis) -> Analysis:
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

    def _find_former(self) -> str | None:
        """The analysis that others wait for: the one that has begun. The caller holds the lock."""
        return next((each.head.id for each in self._runs.values() if each.begun), None)

    # -- running --------------------------------------------------------------------------

    def start(self, request: AnalysisRequest) -> AnalysisHead:
        """Start an analysis.

        Raises InvalidError without Spark or Java, or for what cannot be analysed; NotFoundError for
        a composition of which nothing is known; ConflictError when too many wait.
        """
        self._check_composition(request.composition)
        master = self._masters.choose(request.master)
        self._clusters.check(master)
        if request.since and request.until and request.since >= request.until:
            raise InvalidError("cannot analyse", [Problem("until", "comes before since")])
        _check_installed()
        now = self._clock.now()
        analysis_id = f"{int(now.timestamp() * 1000):012x}{self._clock.new_id()[:8]}"
        head = AnalysisHead(
            id=analysis_id,
            state=AnalysisState.RUNNING,
            composition=request.composition,
            started=rfc3339(now),
            ended=None,
            error=None,
            master=master,
        )
        run = _Run(head, request)
        with self._lock:
            self._refuse_too_many()
            self._runs[analysis_id] = run
            self._records.write(self._records.analyses.put(head))
            self._drop_oldest()
            self._enqueue(run)
        return head

    def warm_up(self) -> None:
        """Start the application that stays up, so that the first analysis finds it ready. Does not
        wait. Does nothing if that is switched off or memory is scarce, without Spark or Java, and
        for a cluster."""
        with suppress(InvalidError):
            _check_installed()
            master = self._masters.choose(None)
            is_free = psutil.virtual_memory().available >= WARM_FREE_BYTES
            with self._lock:
                if self._warms_up and is_free and is_local(master) and not self._closing:
                    self._enqueue(_WarmUp())

    def _enqueue(self, run: _Run | _WarmUp) -> None:
        """Give it to the thread that runs analyses. The caller holds the lock."""
        self._queue.put(run)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, daemon=True)
            self._thread.start()

    def _check_composition(self, name: str | None) -> None:
        """Raises NotFoundError for one that is neither in the store nor has samples."""
        if name is None or self._records.compositions.head(name) is not None:
            return
        if not has_composition(self._storage, TASKS, name):
            raise NotFoundError(
                f"cannot analyse composition {name!r}: there is no such composition, and there are"
                " no samples of one"
            )

    def begin(self, window_s: float, ahead_s: float | None = None) -> str:
        """Start an analysis of the last seconds of all jobs, with a forecast for `ahead_s`; returns
        its id. Raises SpeckError."""
        return self.start(AnalysisRequest(window_s=window_s, ahead_s=ahead_s or None)).id

    def cancel(self, analysis_id: str) -> Analysis:
        """End an analysis that runs; one that is over stays as it is. Raises NotFoundError."""
        with self._lock:
            run = self._runs.get(analysis_id)
            if run is not None:
                run.cancelled = True
                if run.application is not None:
                    run.application.end()
                if not run.begun:
                    self._finish(run, AnalysisState.CANCELLED)
        if run is not None:
            run.over.wait(2 * GRACE_S)
        return self.get(analysis_id)

    def wait(self, analysis_id: str, seconds: float, gives_up: Callable[[], bool] = never) -> None:
        """Wait until it is over, at most this many seconds, and not once somebody gives up."""
        with self._lock:
            run = self._runs.get(analysis_id)
        if run is not None:
            wait_unless(self._clock, run.over, seconds, gives_up)

    def close(self) -> None:
        """End all running analyses, which count as failed since the service stops, and the
        application that stays up."""
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

    def _refuse_too_many(self) -> None:
        if self._closing:
            raise ConflictError("cannot analyse: the service is stopping")
        running = list(self._runs)
        if len(running) > WAITING:
            raise ConflictError(
                f"cannot analyse: analysis {running[0]} runs and {WAITING} wait for it;"
                f" end it with DELETE /analyses/{running[0]}, or wait"
            )

    def _work(self) -> None:
        while (run := self._await_next()) is not None:
            if isinstance(run, _WarmUp):
                self._start_warm()
            else:
                self._run(run)
        self._end_warm()

    def _start_warm(self) -> None:
        """Start the application that stays up, unless there is one."""
        if self._warm is None:
            try:
                self._take_warm(self._masters.choose(None)).warm_up()
            except OSError as error:
                _LOG.warning("cannot start the analyzer before it is needed: %s", error)
                self._end_warm()

    def _await_next(self) -> _Run | _WarmUp | None:
        """The next analysis; None at the end. An application that is idle for long is ended."""
        if self._warm is not None:
            try:
                return self._queue.get(timeout=self._idle_s)
            except queue.Empty:
                self._end_warm()
        return self._queue.get()

    def _run(self, run: _Run) -> None:
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

    def _finish(self, run: _Run, state: AnalysisState, error: str = "") -> None:
        """Store how a run ended. The caller holds the lock."""
        self._runs.pop(run.head.id, None)
        with suppress(Exception):  # a store that takes no writes is reported elsewhere
            self._store_end(run.head, state, error)
        run.over.set()

    def _store_end(self, head: AnalysisHead, state: AnalysisState, error: str) -> None:
        now = rfc3339(self._clock.now())
        ended = replace(head, state=state, error=error or None, ended=now)
        self._records.write(self._records.analyses.put(ended))

    def _analyse(self, run: _Run) -> tuple[str, str]:
        """The state and error of an analysis, by the application that stays up."""
        while True:
            application = self._take_warm(run.head.master)
            was_warm = application.is_warm
            outcome = self._ask(run, application, warm=was_warm)
            if application.measure_memory() > self._memory + NATIVE_BYTES:
                self._end_warm()
            if outcome is not None and outcome[0] != OUTGROWN:
                return outcome
            self._end_warm()
            if outcome is None and not was_warm:
                return "failed", application.describe_end()
            why = "the analyzer died" if outcome is None else "a larger JVM is started"
            _LOG.warning("%s; analysis %s begins again", why, run.head.id)

    def _ask(
        self, run: _Run, application: SparkApplication, *, warm: bool
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

    def _describe(self, run: _Run) -> AnalyzerRequest:
        """The request, as the analyzer takes it."""
        request = run.request
        return AnalyzerRequest(
            self._storage,
            self._result(run.head.id),
            request.composition,
            request.window_s,
            request.since,
            request.until,
            request.ahead_s or None,
        )

    def _take_warm(self, master: str) -> SparkApplication:
        """The application that stays up; a new one if there is none at this master."""
        if self._warm is not None:
            its_master, application = self._warm
            if application.is_usable and its_master == master:
                return application
            self._end_warm()
        application = self._make_application(master)
        self._warm = (master, application)
        return application

    def _end_warm(self) -> None:
        if self._warm is not None:
            _, application = self._warm
            self._warm = None
            application.end()
            application.await_end()

    def _make_application(self, master: str) -> SparkApplication:
        argv = [sys.executable, "-m", "speck.analyzer", "--serve", "--master", master]
        argv += ["--memory", f"{self._memory >> 20}m", *self._clusters.list_arguments()]
        return SparkApplication(argv, self._folder / "analyzer.log")

    def _result(self, analysis_id: str) -> Path:
        return self._folder / f"{analysis_id}.json"

    def _drop_oldest(self) -> None:
        ended = [head.id for head in self._records.analyses.newest_first() if head.state.over]
        for analysis_id in ended[KEPT - 1 :]:
            self._records.write(self._records.analyses.drop(analysis_id))
            self._result(analysis_id).unlink(missing_ok=True)


def _check_installed() -> None:
    """Raises InvalidError naming what is missing and how to get it."""
    if importlib.util.find_spec("pyspark") is None:
        raise InvalidError(
            "cannot analyse: PySpark is not installed with the service;"
            " install it with `pip install speck[analyzer]`"
        )
    java = os.environ.get("JAVA_HOME")
    if shutil.which("java") is None and not (java and Path(java, "bin/java").exists()):
        raise InvalidError(
            "cannot analyse: there is no Java where the service runs; install Java 17 or later,"
            " on Debian with `apt-get install default-jre-headless`"
        )
