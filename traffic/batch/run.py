"""Makes the report of an archive with Spark."""

from __future__ import annotations

from functools import partial

from pyspark.sql import SparkSession

from speck.errors import NotFoundError
from speck.metrics.dataset.storage import Storage
from traffic.batch.comparison import compare_windows, find_window_ms
from traffic.batch.report import Query, Report
from traffic.batch.statistics import Detections, count_unreadable, read_newest, read_table


def make_report(spark: SparkSession, storage: Storage, query: Query) -> Report:
    """Raises NotFoundError if there are no detections of these days, and InvalidError if the online
    results cannot be compared."""
    rows = read_table(spark, storage, "detections", query.first, query.last)
    if rows is None:
        raise NotFoundError(
            f"cannot find detections in the archive {storage}: none are stored for these days"
        )
    statistics = read_table(spark, storage, "global", query.first, query.last)
    online = [] if statistics is None else read_newest(statistics)
    unreadable = sum(count_unreadable(table) for table in (rows, statistics) if table is not None)
    detections = Detections(rows)
    try:
        comparison = None
        if online:
            window_ms = find_window_ms(online)
            comparison = compare_windows(
                detections.sum_windows(window_ms),
                online,
                partial(detections.sum_late, window_ms=window_ms, lateness_ms=query.lateness_ms),
            )
        count = detections.count()
        return Report(count, unreadable, detections.sum_hours(query.timezone), comparison)
    finally:
        detections.close()
