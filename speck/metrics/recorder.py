"""Writes sampled rows to the dataset, reports a failing disk, and runs maintenance."""

from __future__ import annotations

import logging
import threading
from concurrent.futures import Future, ThreadPoolExecutor, wait

from speck.clock import Clock
from speck.errors import SpeckError, TransientError
from speck.metrics.dataset.maintenance import maintain
from speck.metrics.dataset.schema import Table
from speck.metrics.dataset.writer import Writer
from speck.metrics.rows import Row
from speck.store.records import Records

LOG = logging.getLogger(__name__)

MAINTENANCE_EVERY_S = 600.0
"""Interval at which small files are merged and old days dropped."""

MAINTENANCE_RETRY_S = 30.0
"""Delay before maintenance is retried after an analysis or an export was reading."""


class Recorder:
    """Appends rows to `writer`; thread-safe. Maintenance runs in a thread of its own."""

    def __init__(self, records: Records, clock: Clock, writer: Writer, days: int):
        """`days`: how long rows are kept (0: for ever)."""
        self._records = records
        self._clock = clock
        self._writer = writer
        self._days = days
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="collect")
        self._lock = threading.Lock()
        self._failure: str | None = None
        self._maintained_at = float("-inf")
        self._maintenance: Future[None] | None = None

    def close(self) -> None:
        """Wait for maintenance and write the waiting rows."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._maintenance is not None and not self._maintenance.cancelled():
            wait([self._maintenance])
        self.flush()

    def flush(self) -> None:
        """Write all waiting rows to files, so that an analysis finds them.

        If the disk fails, an event reports it once, and the rows are kept.
        """
        try:
            self._writer.flush()
        except TransientError as error:
            self._report_failure(str(error))
        else:
            self._report_failure(None)

    def retry(self) -> None:
        """Write the waiting rows if the last write failed."""
        if self._failure is not None:
            self.flush()

    def append(self, table: Table, rows: list[Row]) -> None:
        """Append rows; if the disk fails, report it and keep the rows."""
        if rows:
            try:
                self._writer.append(table, rows)
            except TransientError as error:  # the rows are kept
                self._report_failure(str(error))

    def _report_failure(self, failure: str | None) -> None:
        with self._lock:
            previous_failure, self._failure = self._failure, failure
        if (previous_failure is None) == (failure is None):
            return
        message = failure or "metrics are written again"
        LOG.warning("%s", message)
        try:
            self._records.write(self._records.events.make("metrics", message))
        except SpeckError as error:  # the event needs the same disk
            LOG.info("no event: %s", error)

    def start_maintenance(self) -> None:
        """Start maintenance in the background if it is due and not running."""
        now = self._clock.monotonic()
        under_way = self._maintenance is not None and not self._maintenance.done()
        if not under_way and now - self._maintained_at >= MAINTENANCE_EVERY_S:
            self._maintained_at = now
            self._maintenance = self._pool.submit(self._maintain)

    def _maintain(self) -> None:
        try:
            report = maintain(self._writer.storage, self._clock.now(), self._days)
        except TransientError as error:
            LOG.warning("%s", error)
        except Exception:
            LOG.exception("cannot maintain the metrics dataset")
        else:
            if report.busy:
                self._maintained_at = (
                    self._clock.monotonic() - MAINTENANCE_EVERY_S + MAINTENANCE_RETRY_S
                )
            for damaged_file in report.damaged:
                LOG.warning("%s", damaged_file)
