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
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import psutil

from speck.analyzer.masters import SparkMasters, is_local
from speck.analyzer.request import OUTGROWN, STARTING, AnalyzerRequest
from speck.analyzer.steps import STEPS
from speck.clock import Clock, never, rfc3339, wait_unless
from speck.config import Config
from speck.errors import ConflictError, InvalidError, NotFoundError, Problem
from speck.metrics.dataset.reading import has_composition
from speck.metrics.dataset.schema import TASKS
from speck.metrics.dataset.storage import Storage
from speck.model.values import JsonObject
from speck.service.answer import Answer
from speck.service.spark_application import GRACE_S, SparkApplication
from speck.service.spark_clusters import SparkClusters
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
_HEAD = (
    "id",
    "state",
    "composition",
    "started",
    "ended",
    "error",
    "master",
    "warm",
)


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
    record: JsonObject
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
        for analysis_id, record in list(records.analyses.items()):
            if record["state"] == "running":
                ended = {"state": "failed", "error": "the service stopped"}
                failed = {**record, **ended, "ended": rfc3339(clock.now())}
                records.write(records.analyses.put(failed, analysis_id))

    # -- reading --------------------------------------------------------------------------

    def all(self, composition: str | None = None, state: str | None = None) -> list[JsonObject]:
        """Heads of all analyses, newest first."""
        records = list(self._records.analyses.values())
        return [
            record
            for record in reversed(records)
            if (composition is None or record["composition"] == composition)
            and (state is None or record["state"] == state)
        ]

    def get(self, analysis_id: str) -> JsonObject:
        """An analysis with its result once it is done; while it runs, with its `progress`. Raises
        NotFoundError.
        """
        record = self._records.analyses.get(analysis_id)
        if record is None:
            raise NotFoundError(f"cannot find analysis {analysis_id!r}")
        if record["state"] == "running":
            record = self._add_progress(record)
        result: JsonObject = {}
        with suppress(FileNotFoundError):
            result = json.loads(self._result(analysis_id).read_text())
        return {**record, **result}

    def newest(self, composition: str) -> JsonObject | None:
        """The newest analysis that has a result, of this composition or of all."""
        for record in self.all():
            covers = record["composition"] in (None, composition)
            if covers and record["state"] == "done":
                analysis = self.get(record["id"])
                if "jobs" in analysis:
                    return analysis
        return None

    def _add_progress(self, record: JsonObject) -> JsonObject:
        with self._lock:
            run = self._runs.get(record["id"])
            if run is None:
                return record
            if not run.begun:
                return {**record, "waits_for": self._find_former()}
            if run.step is None:
                return record
            is_cold = not run.record["warm"] or run.step == STARTING
            steps = [STARTING, *STEPS] if is_cold else [*STEPS]
            if run.request.ahead_s is None:
                steps.remove(STEPS[-1])
            progress = {"step": run.step, "done": steps.index(run.step), "of": len(steps)}
            return {**record, "warm": run.record["warm"], "progress": progress}

    def _find_former(self) -> str | None:
        """The analysis that others wait for: the one that has begun. The caller holds the lock."""
        return next((each.record["id"] for each in self._runs.values() if each.begun), None)

    # -- running --------------------------------------------------------------------------

    def start(self, request: AnalysisRequest) -> Answer:
        """Start an analysis: 202 with its location.

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
        record: JsonObject = {
            **dict.fromkeys(_HEAD),
            "id": analysis_id,
            "state": "running",
            "composition": request.composition,
            "started": rfc3339(now),
            "master": master,
        }
        run = _Run(record, request)
        with self._lock:
            self._refuse_too_many()
            self._runs[analysis_id] = run
            self._records.write({self._records.analyses.key(analysis_id): record})
            self._drop_oldest()
            self._enqueue(run)
        return Answer(202, record, f"/analyses/{analysis_id}")

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
        head = self._records.heads.get(name) if name is not None else None
        if name is None or (head is not None and not head.get("deleted")):
            return
        if not has_composition(self._storage, TASKS, name):
            raise NotFoundError(
                f"cannot analyse composition {name!r}: there is no such composition, and there are"
                " no samples of one"
            )

    def begin(self, window_s: float, ahead_s: float | None = None) -> str:
        """Start an analysis of the last seconds of all jobs, with a forecast for `ahead_s`; returns
        its id. Raises SpeckError."""
        body = self.start(AnalysisRequest(window_s=window_s, ahead_s=ahead_s or None)).body
        assert body is not None
        return str(body["id"])

    def cancel(self, analysis_id: str) -> JsonObject:
        """End an analysis that runs; one that is over stays as it is. Raises NotFoundError."""
        with self._lock:
            run = self._runs.get(analysis_id)
            if run is not None:
                run.cancelled = True
                if run.application is not None:
                    run.application.end()
                if not run.begun:
                    self._finish(run, "cancelled")
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
                self._finish(run, state, error)

    def _finish(self, run: _Run, state: str, error: str = "") -> None:
        """Store how a run ended. The caller holds the lock."""
        ended = {"state": state, "error": error or None, "ended": rfc3339(self._clock.now())}
        self._runs.pop(run.record["id"], None)
        with suppress(Exception):  # a store that takes no writes is reported elsewhere
            self._records.write(
                {self._records.analyses.key(run.record["id"]): {**run.record, **ended}}
            )
        run.over.set()

    def _analyse(self, run: _Run) -> tuple[str, str]:
        """The state and error of an analysis, by the application that stays up."""
        while True:
            application = self._take_warm(run.record["master"])
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
            _LOG.warning("%s; analysis %s begins again", why, run.record["id"])

    def _ask(
        self, run: _Run, application: SparkApplication, *, warm: bool
    ) -> tuple[str, str] | None:
        """The state and error of an analysis; None if the application died."""

        def report(step: str) -> None:
            with self._lock:
                run.step = step

        with self._lock:
            run.application = application
            run.record["warm"] = warm
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
            self._result(run.record["id"]),
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
        analyses = self._records.analyses
        ended = [name for name, record in analyses.items() if record["state"] != "running"]
        for analysis_id in ended[: max(0, len(ended) - KEPT + 1)]:
            self._records.write(analyses.drop(analysis_id))
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
