"""`speck batch traffic URI`: the command. It needs no service."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import click

from speck.cli.durations import Duration
from speck.cli.options import add_output_option, output

if TYPE_CHECKING:
    from collections.abc import Iterator

    from speck.metrics.dataset.storage import Storage
    from traffic.batch.comparison import WindowComparison
    from traffic.batch.report import Query, Report
    from traffic.batch.results import HourKey

DIFFERENT = 1
"""The exit status if online results differ by more than what came too late."""


def _check_timezone(_: click.Context, __: click.Parameter, name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise click.BadParameter(
            f"there is no time zone {name!r}: write one as Europe/Rome"
        ) from error
    return name


_day = click.DateTime(["%Y-%m-%d"])


@click.command()
@click.argument("archive", metavar="URI")
@click.option("--since", type=_day, help="First day (UTC) to read, as 2026-11-28.")
@click.option("--until", type=_day, help="Last day (UTC) to read.")
@click.option(
    "--timezone",
    default="UTC",
    show_default=True,
    callback=_check_timezone,
    help="Of weekdays and hours.",
)
@click.option(
    "--top",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="How many of the most congested sensors to show.",
)
@click.option(
    "--lateness",
    type=Duration("0s"),
    default="10m",
    show_default=True,
    help="The --lateness of the job `merge`: what came later need not be in its results.",
)
@click.option(
    "--master",
    metavar="URL",
    default="local[*]",
    show_default=True,
    help="Where Spark runs: local[2], spark://host:port, yarn or k8s://host.",
)
@click.option("--memory", default="1g", show_default=True, help="Heap of Spark's driver.")
@add_output_option
@click.pass_context
def traffic(
    context: click.Context,
    archive: str,
    since: datetime | None,
    until: datetime | None,
    timezone: str,
    top: int,
    lateness: float,
    master: str,
    memory: str,
) -> None:
    """Sum up the traffic that was archived at URI, and check the online results.

    Shows the most congested sensors, and count, mean speed and occupancy by sensor, weekday and
    hour (all sensors with -o json). The global statistics in the archive have to be equal to those
    of its detections: the exit status is 1 if they differ by more than what came too late.
    """
    from speck.archive.files import open_archive
    from speck.cli.messages import say
    from traffic.batch.report import Query, to_json

    storage = open_archive(archive)
    first, last = (None if day is None else day.date() for day in (since, until))
    say(f"reading {storage} with Spark at {master}")
    report = _run(storage, Query(first, last, timezone, round(lateness * 1000)), master, memory)
    output().show(to_json(report, top), *_draw(report, timezone, top))
    if report.comparison is not None and not report.comparison.agrees:
        context.exit(DIFFERENT)


def _run(storage: Storage, query: Query, master: str, memory: str) -> Report:
    """Raises NotFoundError if there is no archive, and PermanentError without Spark, or if Spark
    fails."""
    from speck.archive.files import list_tables
    from speck.cli.offline import config_at
    from speck.errors import PermanentError
    from speck.metrics.dataset.reading import hold_files

    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException

        from speck.analyzer.request import describe_failure
        from speck.analyzer.session import start_session
        from traffic.batch.run import make_report
    except ImportError as error:
        raise PermanentError(
            "cannot read an archive without PySpark; install it with `pip install speck[analyzer]`"
        ) from error
    list_tables(storage)  # a session takes seconds to start
    config = config_at(None)
    try:
        spark = start_session(
            master,
            memory=memory,
            driver_host=config.spark_driver_host,
            secret_file=config.spark_secret_file,
            jars=config.spark_jars,
        )
        try:
            with hold_files(storage):
                return make_report(spark, storage, query)
        finally:
            spark.stop()
    except (Py4JError, PySparkException) as error:
        cause = describe_failure(error).removeprefix("cannot analyse: ")
        raise PermanentError(f"cannot read the archive {storage}: {cause}") from error


def _draw(report: Report, timezone: str, top: int) -> Iterator[object]:
    from speck.cli.output import Grid

    yield f"{report.detections} detections" + (
        f", and {report.unreadable} records that could not be read" if report.unreadable else ""
    )
    congested = report.list_congested(top)
    yield Grid(
        ("site", "sensor", "occupancy", "m/s", "count", "busiest", "occupancy then"),
        (
            (
                each.site,
                each.sensor,
                _percent(each.total.occupancy),
                f"{each.total.mean_speed_mps:.1f}",
                each.total.count,
                _hour(each.busiest),
                _percent(report.hours[each.busiest].occupancy),
            )
            for each in congested
        ),
        "The most congested sensors",
    )
    shown = {(each.site, each.sensor) for each in congested}
    yield Grid(
        ("site", "sensor", "hour", "count", "m/s", "occupancy"),
        (
            (
                key.site,
                key.sensor,
                _hour(key),
                hour.count,
                f"{hour.mean_speed_mps:.1f}",
                _percent(hour.occupancy),
            )
            for key, hour in sorted(report.hours.items())
            if (key.site, key.sensor) in shown
        ),
        f"Their hours ({timezone})",
    )
    yield from _draw_comparison(report.comparison)


def _draw_comparison(comparison: WindowComparison | None) -> Iterator[object]:
    from speck.cli.output import Grid

    if comparison is None:
        yield "no online results to compare with: archive them, too (--records global)"
        return
    yield (
        f"online results of windows of {comparison.window_ms / 1000:g} s: {comparison.equal} equal,"
        f" {len(comparison.late)} without detections that came too late,"
        f" {len(comparison.different)} different, {len(comparison.missing)} missing,"
        f" {len(comparison.extra)} without detections in the archive;"
        f" {comparison.outside} windows have none yet, or had none"
    )
    if comparison.late:
        yield Grid(
            ("window", "archived", "online", "late"),
            (
                (_moment(it.start_ms), it.archived, it.online, it.archived - it.online)
                for it in comparison.late
            ),
            "Late detections",
        )
    kinds = ("different", "missing", "extra")
    wrong = [(start, kind) for kind in kinds for start in getattr(comparison, kind)]
    if wrong:
        rows = ((_moment(start), kind) for start, kind in sorted(wrong))
        yield Grid(("window", "online result"), rows, "Online results that differ")


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _hour(key: HourKey) -> str:
    from traffic.batch.report import WEEKDAYS

    return f"{WEEKDAYS[key.weekday]} {key.hour:02d}"


def _moment(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
