"""`speck metrics`"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import add_service_options, client, output
from speck.cli.subjects import add_name
from speck.cli.writing import WholeFiles
from speck.model.values import JsonObject

_FORMATS = ("parquet", "csv", "jsonl")
_TABLES = ("tasks", "links", "plans", "sites", "brokers")
_RATES = ("in_rate", "out_rate", "busy", "idle", "back_pressured")


@click.group(cls=HelpfulGroup)
def metrics() -> None:
    """Show, export and import metrics."""


@metrics.command()
@add_name("job", "job")
@add_service_options
def show(job: str) -> None:
    """Show the rates of a job and its subtasks between the last two polls; `-` means unknown."""
    from speck.cli.output import Grid

    record = client().job_metrics(job)
    whole = [("job", None, *(_format_value(record[rate]) for rate in _RATES))]
    tasks = [
        (task["name"], task["subtask"], *(_format_value(task[rate]) for rate in _RATES))
        for task in record["tasks"]
    ]
    title = f"{job} at {record['site']}: lag {_format_value(record['lag']) or '-'}"
    output().show(record, Grid(("task", "subtask", *_RATES), whole + tasks, title))


def _format_value(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _add_range_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option(
            "--composition", help="Only rows of this composition (_alone: jobs posted alone)."
        ),
        click.option("--until", metavar="TIME", help="Rows before this time (RFC 3339)."),
        click.option("--since", metavar="TIME", help="Rows of this time or later (RFC 3339)."),
    ):
        command = option(command)
    return command


@metrics.command("export")
@click.argument("target", metavar="FILE|FOLDER", type=click.Path(path_type=Path))
@click.option(
    "--table", type=click.Choice(_TABLES), help="The table to write to a FILE (default: tasks)."
)
@_add_range_options
@add_service_options
def export_metrics(target: Path, table: str | None, **filters: str | None) -> None:
    """Write metrics to a file, or all tables to a folder.

    FILE ends with .parquet, .csv or .jsonl and holds one table; FOLDER gets one Parquet file for
    each table. All are written completely or not at all. docs/metrics.md lists the columns.
    """
    from speck.cli.messages import say
    from speck.cli.output import Grid
    from speck.errors import InvalidError

    if table is None and target.suffix == "":
        files = {target / f"{name}.parquet": name for name in _TABLES}
    elif target.suffix.removeprefix(".") in _FORMATS:
        files = {target: table or "tasks"}
    else:
        raise InvalidError(
            f"cannot tell the format of {target}: give a name that ends with .parquet, .csv or"
            " .jsonl, or a folder for all tables"
        )
    reports = []
    with WholeFiles() as staged:
        for file, name in files.items():
            rows, damaged = _fetch(staged, file, name, filters)
            reports.append({"file": str(file), "table": name, "rows": rows})
            if damaged:
                say(
                    f"{damaged} files of {name} are damaged and ignored; the service's log names"
                    " them"
                )
        staged.publish()
    rows_shown = [(one["file"], one["table"], one["rows"]) for one in reports]
    output().show({"files": reports}, Grid(("file", "table", "rows"), rows_shown))


def _fetch(
    files: WholeFiles, file: Path, table: str, filters: dict[str, str | None]
) -> tuple[int, int]:
    """Download one table; returns its number of rows and the number of damaged dataset files."""
    from speck.cli.bars import bytes_bar

    rows, damaged, content = client().export_metrics(table, file.suffix[1:], **filters)
    with bytes_bar(f"exporting {table}", content.size) as advance:
        files.add(file, content.pieces, content.size, advance, make_folders=True)
    return rows, damaged


@metrics.command("import")
@click.argument("paths", metavar="FILE|FOLDER...", nargs=-1, required=True, type=Path)
@click.option(
    "--table", type=click.Choice(_TABLES), help="The table (default: inferred from the columns)."
)
@add_service_options
def import_metrics(paths: tuple[Path, ...], table: str | None) -> None:
    """Import metrics from files, each completely or not at all.

    Files end with .parquet, .csv or .jsonl, as exports of `speck metrics export` do. Rows that
    exist already are left unchanged.
    """
    from speck.cli.messages import say
    from speck.cli.output import Grid

    reports = []
    for file in _files(paths):
        report = {"file": str(file), **_send(file, table)}
        for warning in report["warnings"]:
            say(f"{file}: {warning}")
        reports.append(report)
    rows = [(one["file"], one["table"], one["rows"], one["new"]) for one in reports]
    output().show({"files": reports}, Grid(("file", "table", "rows", "new"), rows))


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    from speck.errors import InvalidError

    for path in paths:
        candidates = sorted(path.iterdir()) if path.is_dir() else [path]
        files = [one for one in candidates if one.suffix.removeprefix(".") in _FORMATS]
        if not files:
            raise InvalidError(f"cannot import {path}: give .parquet, .csv or .jsonl files")
        yield from files


def _send(file: Path, table: str | None) -> JsonObject:
    from speck.cli.bars import bytes_bar
    from speck.errors import NotFoundError

    try:
        with bytes_bar(f"importing {file.name}", file.stat().st_size) as advance:
            return client().import_metrics(file, file.suffix[1:], table, advance)
    except OSError as error:
        raise NotFoundError(f"cannot read {file}: {error.strerror or error}") from error
