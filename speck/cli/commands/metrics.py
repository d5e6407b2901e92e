"""`speck metrics`"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import client, connected, formatted, names_of, output
from speck.model.values import JsonObject

_FORMATS = ("parquet", "csv", "jsonl")
_TABLES = ("tasks", "links", "plans", "sites", "brokers")
_RATES = ("in_rate", "out_rate", "busy", "idle", "back_pressured")


@click.group(cls=HelpfulGroup)
def metrics() -> None:
    """Show, export and import what was measured."""


@metrics.command()
@click.argument("job", shell_complete=names_of("jobs"))
@connected
@formatted
def show(job: str) -> None:
    """Show what a job and its subtasks did between the last two looks; `-` is not known."""
    from speck.cli.output import Grid

    found = client().job_metrics(job)
    whole = [("job", None, *(_shown(found[rate]) for rate in _RATES))]
    tasks = [
        (task["name"], task["subtask"], *(_shown(task[rate]) for rate in _RATES))
        for task in found["tasks"]
    ]
    title = f"{job} at {found['site']}: lag {_shown(found['lag']) or '-'}"
    output().show(found, Grid(("task", "subtask", *_RATES), whole + tasks, title))


def _shown(value: float | None) -> str | None:
    return None if value is None else f"{value:.4g}"


def _ranged(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        click.option("--composition", help="Only its rows (_alone: jobs posted alone)."),
        click.option("--until", metavar="TIME", help="Rows before this time (RFC 3339)."),
        click.option("--since", metavar="TIME", help="Rows of this time or later (RFC 3339)."),
    ):
        command = option(command)
    return command


@metrics.command("export")
@click.argument("target", metavar="FILE|FOLDER", type=click.Path(path_type=Path))
@click.option("--table", type=click.Choice(_TABLES), help="Of a FILE: which table (tasks).")
@_ranged
@connected
@formatted
def export_metrics(target: Path, table: str | None, **wanted: str | None) -> None:
    """Write metrics to a file, or all tables to a folder.

    FILE ends with .parquet, .csv or .jsonl and holds one table; FOLDER gets one Parquet file for
    each table. Each file is written whole or not at all. docs/metrics.md tells the columns.
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
    done = []
    for file, name in files.items():
        rows, damaged = _fetch(file, name, wanted)
        done.append({"file": str(file), "table": name, "rows": rows})
        if damaged:
            say(f"{damaged} files of {name} are damaged and left out: the service's log names them")
    shown = [(one["file"], one["table"], one["rows"]) for one in done]
    output().show({"files": done}, Grid(("file", "table", "rows"), shown))


def _fetch(file: Path, table: str, wanted: dict[str, str | None]) -> tuple[int, int]:
    """Download one table; its rows, and how many files of the dataset are damaged."""
    import os
    import tempfile

    from speck.cli.bars import bytes_bar
    from speck.errors import PermanentError

    name = None
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(descriptor, "wb") as out, bytes_bar(f"exporting {table}", None) as got:
            rows, damaged, pieces = client().export_metrics(table, file.suffix[1:], **wanted)
            for piece in pieces:
                out.write(piece)
                got(len(piece))
        os.replace(name, file)
    except OSError as error:
        raise PermanentError(f"cannot write {file}: {error.strerror or error}") from error
    finally:
        if name is not None:
            Path(name).unlink(missing_ok=True)
    return rows, damaged


@metrics.command("import")
@click.argument("paths", metavar="FILE|FOLDER...", nargs=-1, required=True, type=Path)
@click.option(
    "--table", type=click.Choice(_TABLES), help="Which table; without it, the columns tell."
)
@connected
@formatted
def import_metrics(paths: tuple[Path, ...], table: str | None) -> None:
    """Take over metrics from files, each as a whole or not at all.

    Files end with .parquet, .csv or .jsonl: what `speck metrics export` wrote, or traces of Flink's
    gauges (job, vertex, subtask, timestamp, busyTimeMsPerSecond, ...). What is there already stays
    as it is.
    """
    from speck.cli.messages import say
    from speck.cli.output import Grid

    done = []
    for file in _files(paths):
        found = {"file": str(file), **_send(file, table)}
        for warning in found["warnings"]:
            say(f"{file}: {warning}")
        if found["ignored"]:
            say(f"{file}: not taken over: {', '.join(found['ignored'])}")
        done.append(found)
    shown = [(one["file"], one["table"], one["rows"], one["new"]) for one in done]
    output().show({"files": done}, Grid(("file", "table", "rows", "new"), shown))


def _files(paths: tuple[Path, ...]) -> Iterator[Path]:
    from speck.errors import InvalidError

    for path in paths:
        inside = sorted(path.iterdir()) if path.is_dir() else [path]
        found = [one for one in inside if one.suffix.removeprefix(".") in _FORMATS]
        if not found:
            raise InvalidError(f"cannot import {path}: give .parquet, .csv or .jsonl files")
        yield from found


def _send(file: Path, table: str | None) -> JsonObject:
    from speck.cli.bars import bytes_bar
    from speck.errors import NotFoundError

    try:
        with bytes_bar(f"importing {file.name}", file.stat().st_size) as sent:
            return client().import_metrics(file, file.suffix[1:], table, sent)
    except OSError as error:
        raise NotFoundError(f"cannot read {file}: {error.strerror or error}") from error
