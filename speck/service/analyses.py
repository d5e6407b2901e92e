"""Analyses: each is requested, runs on Spark, and is kept.

One runs at a time, others wait for it (`speck.service.analysis_runs`). They share a Spark
application that stays up between them ("warm") and is ended when it was idle for long, when it has
taken too much memory, when another master is asked for, and when more rows than it holds are. If it
dies during an analysis, that begins again in a new one. It is started before the first request once
a job runs, unless memory is scarce.
"""

from __future__ import annotations

import importlib.util
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import orjson
import psutil

from speck.analyzer.clusters import SparkClusters
from speck.analyzer.masters import SparkMasters, is_local
from speck.analyzer.request import AnalyzerRequest
from speck.analyzer.warm_application import WarmApplication
from speck.clock import Clock, never, rfc3339, wait_unless
from speck.config import Config
from speck.errors import ConflictError, InvalidError, NotFoundError, Problem
from speck.metrics.dataset.reading import has_composition
from speck.metrics.dataset.schema import TASKS
from speck.metrics.dataset.storage import Storage
from speck.model.analysis import Analysis, AnalysisHead, AnalysisState
from speck.model.analysis_result import AnalysisResult
from speck.service.analysis_runs import AnalysisRequest, AnalysisRun, AnalysisRuns
from speck.store.codec import from_shown
from speck.store.records import Records

_LOG = logging.getLogger(__name__)

KEPT = 100
"""How many analyses are kept."""
WARM_FREE_BYTES = 2 << 30
"""Nothing is started before it is asked for on a machine with less memory than this available."""


class Analyses:
    """Starts analyses and keeps their results; `flush` writes waiting samples to the dataset."""

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
        self._folder = config.home / "analyses"
        self._records = records
        self._clock = clock
        self._warms_up = config.analyzer_warm
        log = self._folder / "analyzer.log"
        application = WarmApplication(self._clusters, config.spark_memory, log)
        self.runs = AnalysisRuns(
            records, clock, application, config.spark_idle_s, self._describe, flush
        )
        for head in records.analyses.newest_first():
            if not head.state.over:
                self.runs.store_end(head, AnalysisState.FAILED, "the service stopped")

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
        """An analysis with its result once it is done; while it runs, with its progress. If the
        file of its result cannot be read, it has none, and `error` says why. Raises NotFoundError.
        """
        head = self._records.analyses.get(analysis_id)
        if head is None:
            raise NotFoundError(f"cannot find analysis {analysis_id!r}")
        analysis = self._read(head)
        return analysis if head.state.over else self.runs.add_progress(analysis)

    def newest(self, composition: str) -> Analysis | None:
        """The newest analysis that has a result, of this composition or of all. Those whose results
        cannot be read are passed over, with a warning."""
        for analysis in self._list_done(composition):
            if analysis.result is not None:
                return analysis
            if analysis.error is not None:
                _LOG.warning("an older analysis is taken, if there is one: %s", analysis.error)
        return None

    def newest_fault(self, composition: str) -> str | None:
        """Why the newest result that `newest` passes over cannot be read."""
        errors = (each.error for each in self._list_done(composition))
        return next(filter(None, errors), None)

    def _list_done(self, composition: str) -> Iterator[Analysis]:
        """Those of a composition or of all that are done, newest first."""
        for head in self.all(state=AnalysisState.DONE):
            if head.composition in (None, composition):
                yield self._read(head)

    def _read(self, head: AnalysisHead) -> Analysis:
        """An analysis with what its file holds, or the error of reading it."""
        try:
            return Analysis.of(head, _read_result(head.id, self._result(head.id)))
        except ConflictError as error:
            return Analysis.of(replace(head, error=str(error)), None)

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
        head = AnalysisHead(
            id=f"{int(now.timestamp() * 1000):012x}{self._clock.new_id()[:8]}",
            state=AnalysisState.RUNNING,
            composition=request.composition,
            started=rfc3339(now),
            ended=None,
            error=None,
            master=master,
        )
        self.runs.add(AnalysisRun(head, request), lambda: self._accept(head))
        return head

    def begin(self, window_s: float, ahead_s: float | None = None) -> str:
        """Start an analysis of the last seconds of all jobs, with a forecast for `ahead_s`; returns
        its id. Raises SpeckError."""
        return self.start(AnalysisRequest(window_s=window_s, ahead_s=ahead_s or None)).id

    def warm_up(self) -> None:
        """Start the application that stays up, so that the first analysis finds it ready. Does not
        wait. Does nothing if that is switched off or memory is scarce, without Spark or Java, and
        for a cluster."""
        with suppress(InvalidError):
            _check_installed()
            master = self._masters.choose(None)
            is_free = psutil.virtual_memory().available >= WARM_FREE_BYTES
            if self._warms_up and is_free and is_local(master):
                self.runs.warm_up(master)

    def cancel(self, analysis_id: str) -> Analysis:
        """End an analysis that runs; one that is over stays as it is. Raises NotFoundError."""
        self.runs.cancel(analysis_id)
        return self.get(analysis_id)

    def wait(self, analysis_id: str, seconds: float, gives_up: Callable[[], bool] = never) -> None:
        """Wait until it is over, at most this many seconds, and not once somebody gives up."""
        run = self.runs.find(analysis_id)
        if run is not None:
            wait_unless(self._clock, run.over, seconds, gives_up)

    def close(self) -> None:
        """End all running analyses, which count as failed since the service stops, and the
        application that stays up."""
        self.runs.close()

    def _check_composition(self, name: str | None) -> None:
        """Raises NotFoundError for one that is neither in the store nor has samples."""
        if name is None or self._records.compositions.head(name) is not None:
            return
        if not has_composition(self._storage, TASKS, name):
            raise NotFoundError(
                f"cannot analyse composition {name!r}: there is no such composition, and there are"
                " no samples of one"
            )

    def _accept(self, head: AnalysisHead) -> None:
        """Store a new analysis, and drop the oldest."""
        self._records.write(self._records.analyses.put(head))
        ended = [each.id for each in self._records.analyses.newest_first() if each.state.over]
        for analysis_id in ended[KEPT - 1 :]:
            self._records.write(self._records.analyses.drop(analysis_id))
            self._result(analysis_id).unlink(missing_ok=True)

    def _describe(self, run: AnalysisRun) -> AnalyzerRequest:
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

    def _result(self, analysis_id: str) -> Path:
        return self._folder / f"{analysis_id}.json"


def _read_result(analysis_id: str, file: Path) -> AnalysisResult | None:
    """The result in a file; None if there is none. Raises ConflictError, which names the file."""
    try:
        result = from_shown(orjson.loads(file.read_bytes()), AnalysisResult)
        _check_times(result)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise ConflictError(
            f"cannot read the result of analysis {analysis_id} in {file}: {error!s:.200}; it was"
            " damaged or written by another version of speck: delete the file, and run `speck"
            " analyze` again"
        ) from error
    return result


def _check_times(result: AnalysisResult) -> None:
    """Raises ValueError for a text that is no time with an offset."""
    times = {"window.from": result.window.since, "window.to": result.window.until}
    times |= {f"forecast[{i}].at": each.at for i, each in enumerate(result.forecast or ())}
    for place, text in times.items():
        try:
            is_time = text is None or datetime.fromisoformat(text).tzinfo is not None
        except ValueError:
            is_time = False
        if not is_time:
            raise ValueError(f"{place}: must be a time (RFC 3339), is {text!r:.80}")


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
