"""One request for an analysis, and its answer: from the dataset to a file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from speck.analyzer.steps import FORECASTING, READING, Report
from speck.errors import InvalidError, SpeckError
from speck.metrics.dataset.opening import open_storage
from speck.metrics.dataset.reading import hold_files
from speck.metrics.dataset.schema import LINKS, TABLES
from speck.metrics.dataset.storage import Storage
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from speck.analyzer.reading import Span

STARTING = "starting Spark"
WARM_UP: JsonObject = {"warm_up": True}
"""The request to get ready; it has no answer."""
OUTGROWN = "outgrown"
"""The state of a request that reads more rows than the JVM that stays up holds."""
STEP = "step: "
"""What a line of standard output begins with that names a step which begins."""


@dataclass(frozen=True, slots=True)
class AnalyzerRequest:
    """What to analyse: `dataset` from `since` to `until` (without them:
    the `window_s` seconds before the newest sample), all jobs or those of one composition; with
    `ahead_s`, forecasts of links for so many seconds. `out` is the file for the answer."""

    dataset: Storage
    out: Path
    composition: str | None = None
    window_s: float = 600.0
    since: datetime | None = None
    until: datetime | None = None
    ahead_s: float | None = None

    def to_json(self) -> JsonObject:
        """As plain data: places and times (RFC 3339) are strings."""
        places = {"dataset": self.dataset.uri, "local": str(self.dataset.local)}
        rest = {field.name: getattr(self, field.name) for field in fields(self)}
        times = {
            name: at.isoformat() if (at := getattr(self, name)) else None
            for name in ("since", "until")
        }
        return {**rest, **places, "out": str(self.out), **times}

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> AnalyzerRequest:
        """Read what `to_json` has made. Raises InvalidError if there is no such dataset."""
        rest = {name: value for name, value in values.items() if name != "local"}
        dataset = open_storage(values["dataset"], Path(values["local"]))
        times = {name: parse_time(values[name]) for name in ("since", "until") if values.get(name)}
        return cls(**{**rest, "dataset": dataset, "out": Path(values["out"]), **times})


def parse_time(text: str) -> datetime:
    """Read an RFC 3339 time; without an offset it is UTC. Raises ValueError."""
    at = datetime.fromisoformat(text)
    return at if at.tzinfo else at.replace(tzinfo=UTC)


def answer(spark: SparkSession, request: AnalyzerRequest, report: Report = lambda _: None) -> None:
    """Analyse as requested and write the answer. Raises SpeckError, or an error of Spark's."""
    from speck.analyzer import probe, result, run

    storage = request.dataset
    probe.check_readable(spark, storage)
    report(READING)
    span = _choose_span(request)
    analysis = run.analyse(spark, storage, span, request.composition, report)
    if request.ahead_s:
        report(FORECASTING)
        ahead = timedelta(seconds=request.ahead_s)
        forecast = run.forecast_links(spark, storage, span.until, ahead)
        analysis = replace(analysis, forecast=forecast)
    result.write(analysis, request.out)


def _choose_span(request: AnalyzerRequest) -> Span:
    """The window. Raises SpeckError if there is none."""
    from speck.analyzer import reading

    until = request.until or reading.find_newest(request.dataset, request.composition)
    since = request.since or until - timedelta(seconds=request.window_s)
    if since >= until:
        raise InvalidError("cannot analyse: the window ends before it begins")
    return reading.Span(since, until)


def is_small(request: AnalyzerRequest) -> bool:
    """Whether a request reads so few rows that a small JVM holds them."""
    from speck.analyzer import forecast, reading, run

    storage = request.dataset
    try:
        with hold_files(storage):
            span = _choose_span(request)
            size = reading.count_bytes(storage, TABLES.values(), span.extend(run.PLANS_EVERY))
            if request.ahead_s:
                history = reading.Span(span.until - forecast.HISTORY, span.until)
                size += reading.count_bytes(storage, (LINKS,), history)
    except SpeckError:  # the answer will say so
        return True
    return size <= reading.SMALL_BYTES


def describe_failure(error: Exception) -> str:
    """The message of an error; for a Java error the first line of its root cause."""
    if isinstance(error, SpeckError):
        return "\n".join([str(error), *(f"  {p}" for p in getattr(error, "problems", ()))])
    if isinstance(error, ModuleNotFoundError) and error.name == "pyspark":
        cause = "PySpark is not installed; install it with `pip install speck[analyzer]`"
        return f"cannot analyse: {cause}"
    if "org.apache.hadoop.fs.s3a.S3AFileSystem not found" in str(error):
        cause = (
            "Spark lacks its connector to S3; run `make spark-s3` and name the folder that it fills"
        )
        return f"cannot analyse: {cause} with SPECK_SPARK_JARS"
    lines = str(error).splitlines() or [type(error).__name__]
    causes = [line.removeprefix("Caused by: ") for line in lines if line.startswith("Caused by: ")]
    first = next((line for line in lines if line.strip()), lines[0])
    return f"cannot analyse: {causes[-1] if causes else first}"
