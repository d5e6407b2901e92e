"""A job: a query of Structured Streaming between two links.

Its state is one folder, `query`: Spark's checkpoint, with what the source has taken and what the
sink has published beside it. A job goes on in it in place, so that it may be copied and carried as
long as it does not run. The file `checkpoint` beside it numbers its states.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter
from speck_spark.arguments import CONTRACT, ArgumentFaultError, Arguments
from speck_spark.cluster import NotSharedError, hand_over_secret, require_shared
from speck_spark.failures import explaining
from speck_spark.reporting import Progress, Reporter, Requests, describe_links, read_links
from speck_spark.session import configure
from speck_spark.states import Checkpoint, StateNumber

_TICK_S = 0.1
_END_S = 30.0
"""So long a batch under way may take after the job was asked to end; then it is broken off, and run
again at the next start."""
_OWN = ("checkpoint-interval", "memory-mb")


class SpeckJob:
    """One run of a job. `arguments` may hold others than the contract's; these are the job's.
    `interval_ms`: how often a batch begins, unless `--checkpoint-interval` says otherwise."""

    def __init__(self, arguments: Arguments, interval_ms: int = 1000) -> None:
        self.arguments = arguments
        self.interval_ms = arguments.get_ms("checkpoint-interval", interval_ms)
        self._state = Path(os.environ.get("SPECK_STATE_DIR", "state")).resolve()
        self._reporter = Reporter(self.interval_ms)
        self._stopping = False
        signal.signal(signal.SIGTERM, self._stop)
        name = arguments.get("job-name")
        with hand_over_secret():
            self.spark = configure(SparkSession.builder.appName(name)).getOrCreate()
        require_shared(self.spark, self._state)

    @classmethod
    def from_arguments(
        cls,
        words: Sequence[str] | None = None,
        own: Sequence[str] = (),
        interval_ms: int = 1000,
    ) -> SpeckJob:
        """The job of a program; `own` are names of arguments besides the contract's. Ends the
        program with a message if an argument is wrong, or if the executors of a cluster do not see
        its state."""
        try:
            arguments = Arguments(sys.argv[1:] if words is None else words)
            unknown = set(arguments.values) - CONTRACT - set(_OWN) - set(own)
            for name in sorted(unknown):
                print(f"the argument --{name} is not known; it is left out", file=sys.stderr)
            return cls(arguments, interval_ms)
        except (ArgumentFaultError, NotSharedError) as error:
            sys.exit(str(error))

    @property
    def options(self) -> dict[str, str]:
        """The options of the data source: the contract's arguments."""
        return self.arguments.contract

    @property
    def checkpoint(self) -> str:
        """The query's `checkpointLocation`."""
        return str(self._state / "query")

    def read(self) -> DataFrame:
        """The records of the source link: rows with a column `value`, of bytes."""
        return self.spark.readStream.format("speck").options(**self.options).load()

    def run(self, rows: DataFrame, mode: str = "append") -> None:
        """Publish the column `value` of rows, bytes or text, to the sink link until the program is
        asked to end. Ends the program with a message if the query fails."""
        with explaining():
            self._require_fit()
            self._links.openSink(self.checkpoint, self.options)
            writer = rows.writeStream.format("speck").options(**self.options).outputMode(mode)
            self.run_query(self._start(writer))

    def run_batches(self, rows: DataFrame, store: Callable[[DataFrame, int], None]) -> None:
        """Give each batch of rows, with its number, to `store` instead of the sink link, until the
        program is asked to end. A batch that was broken off comes again under its number, and of a
        link with the same records. Ends the program with a message if `store` or Spark fails."""
        with explaining():
            self._require_fit()
            self.run_query(self._start(rows.writeStream.foreachBatch(store)))

    def _require_fit(self) -> None:
        """Spark goes on with as many parts of state as there were, whatever is asked for."""
        width = int(self.spark.conf.get("spark.sql.shuffle.partitions") or 0)
        if (fault := Checkpoint(Path(self.checkpoint)).find_fault(width)) is not None:
            sys.exit(fault)

    def _start(self, writer: DataStreamWriter) -> StreamingQuery:
        return (
            writer.option("checkpointLocation", self.checkpoint)
            .queryName(self.arguments.get("job-name"))
            .trigger(processingTime=f"{self.interval_ms} milliseconds")
            .start()
        )

    def run_query(self, query: StreamingQuery) -> None:
        """The same for a query with another sink, which was started with `checkpoint`."""
        with explaining():
            try:
                self._supervise(query)
            finally:
                query.stop()
                self._links.close(self.checkpoint)
                self.spark.stop()

    # -- inside

    @property
    def _links(self) -> Any:
        return self.spark._jvm.io.speck.spark.OpenLinks  # type: ignore[union-attr]

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _supervise(self, query: StreamingQuery) -> None:
        """Report once in an interval, until the query fails or the job is asked to end."""
        progress = Progress()
        number = StateNumber(self._state / "checkpoint")
        requests = Requests()
        reported = float("-inf")
        while query.isActive and not self._stopping:
            now = time.monotonic()
            if (now - reported) * 1000 >= self.interval_ms:
                reported, asked = now, self._reporter.read_request()
                is_active = bool(query.status["isTriggerActive"])
                recent = [json.loads(each.json) for each in query.recentProgress]
                requests.look(asked, recent, is_active=is_active)
                has_run = progress.add(recent)
                is_ready = bool(recent)
                if is_ready and (has_run or not is_active):
                    number.step()
                self._report(progress, is_ready=is_ready, request=requests.complete)
            time.sleep(_TICK_S)
        if (error := query.exception()) is not None:
            raise error
        self._await_end_of_batch(query)

    @staticmethod
    def _await_end_of_batch(query: StreamingQuery) -> None:
        """Of the one under way. On a slow machine the next one follows at once: it may be broken
        off, and is run again."""
        last, until = query.lastProgress, time.monotonic() + _END_S
        while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
            if query.lastProgress != last:
                break
            time.sleep(_TICK_S / 10)

    def _report(self, progress: Progress, *, is_ready: bool, request: int) -> None:
        partitions = Checkpoint(Path(self.checkpoint)).partitions
        self._reporter.write(
            ready=is_ready,
            request=request,
            records_in=progress.records_in,
            busy_ms=progress.busy_ms,
            idle_ms=progress.idle_ms,
            back_pressured_ms=0,
            checkpoint_ms=progress.log_ms,
            counters={
                **progress.counters,
                "state_rows": progress.state_rows,
                "state_memory_bytes": progress.state_bytes,
                **({"state_partitions": partitions} if partitions is not None else {}),
            },
            **describe_links(read_links(self._links.describe(self.checkpoint))),
        )
