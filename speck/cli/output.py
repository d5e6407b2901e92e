"""Output on stdout: data as a table, JSON or YAML."""

from __future__ import annotations

import io
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import click

from speck.cli.messages import clean, style, to_json
from speck.model.values import JsonObject

_WIDE = 100_000
_WORD = 24
_BETWEEN = 2
_COLOURS = {
    "up": "green",
    "running": "green",
    "done": "green",
    "deploying": "cyan",
    "updating": "cyan",
    "moving": "cyan",
    "stopping": "cyan",
    "pending": "cyan",
    "stalled": "yellow",
    "degraded": "yellow",
    "unreachable": "yellow",
    "blocked": "yellow",
    "warning": "yellow",
    "failed": "red",
    "restarting": "red",
    "finished": "green",
    "lost": "red",
    "down": "red",
    "error": "red",
}


@dataclass(frozen=True, slots=True)
class Grid:
    """A table: a title (or none), a heading for each column, and rows of values. On a terminal
    that is too narrow for all columns those of `dispensable` are left out, the first one first."""

    headings: Sequence[str]
    rows: Iterable[Sequence[object]]
    title: str | None = None
    empty: str = "none"
    dispensable: Sequence[str] = ()

    def __str__(self) -> str:
        rows = [tuple(map(_cell, row)) for row in self.rows]
        head = f"{style(self.title, bold=True)}\n" if self.title else ""
        return head + (_draw(self.headings, rows, self.dispensable) if rows else self.empty)


class Output:
    """Prints a command's data in the format given with -o."""

    def __init__(self, form: str):
        self.form = form

    @property
    def table(self) -> bool:
        """Whether the format is a table, for people."""
        return self.form == "table"

    def show(self, data: JsonObject, *blocks: object) -> None:
        """Print `data` as JSON or YAML, or `blocks` (grids and lines) as tables."""
        if self.form == "json":
            click.echo(to_json(data, 2))
        elif self.form == "yaml":
            from speck.spec.yaml_writer import to_yaml

            click.echo(to_yaml(data), nl=False)
        else:
            for block in blocks:
                click.echo(str(block))


def fields(pairs: Iterable[tuple[str, object]]) -> str:
    """Lines of `name  value`; values that are None are omitted."""
    return _draw(None, [(name, _cell(value)) for name, value in pairs if value is not None])


def moment(text: object) -> str:
    """An RFC 3339 time without its fraction."""
    return f"{text[:19]}Z" if isinstance(text, str) and len(text) >= 20 else _cell(text)


def _cell(value: object) -> str:
    if value is None or value == "":
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return clean(value)


def _draw(
    headings: Sequence[str] | None,
    rows: Sequence[Sequence[str]],
    dispensable: Sequence[str] = (),
) -> str:
    """Align columns; on a terminal, long cells are folded to its width."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    tty = sys.stdout.isatty()
    heads = headings or [""] * len(rows[0])
    room = shutil.get_terminal_size().columns if tty else _WIDE
    shown = _columns_that_fit(heads, rows, room, dispensable)
    heads = [heads[i] for i in shown]
    rows = [[row[i] for i in shown] for row in rows]
    widths = _widths(_by_column(heads, rows), room)
    table = Table(box=None, pad_edge=False, show_header=headings is not None, header_style="bold")
    for heading, width in zip(heads, widths, strict=True):
        table.add_column(heading.upper(), overflow="fold", width=width)
    for row in rows:
        table.add_row(*(Text(cell, style=_colour(cell)) for cell in row))
    out = io.StringIO()
    console = Console(
        file=out,
        force_terminal=tty,
        width=_WIDE,
        no_color=bool(os.environ.get("NO_COLOR")),
        highlight=False,
    )
    console.print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def _columns_that_fit(
    heads: Sequence[str], rows: Sequence[Sequence[str]], room: int, dispensable: Sequence[str]
) -> list[int]:
    """Which columns are shown: all, or without as many of `dispensable` as have no room."""
    least = list(map(_least_width, _by_column(heads, rows)))
    shown = list(range(len(heads)))
    for head in dispensable:
        if sum(least[i] + _BETWEEN for i in shown) - _BETWEEN <= room:
            break
        shown = [i for i in shown if heads[i] != head]
    return shown


def _by_column(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[list[str]]:
    return [[head, *(row[i] for row in rows)] for i, head in enumerate(heads)]


def _least_width(cells: Sequence[str]) -> int:
    """The width below which words of usual length break."""
    from rich.cells import cell_len

    return min(_WORD, max((cell_len(word) for cell in cells for word in cell.split()), default=0))


def _widths(columns: Sequence[Sequence[str]], room: int) -> list[int]:
    """Column widths that fit into `room` if possible: the widest columns shrink first, but none
    below a word of usual length."""
    from rich.cells import cell_len

    widths = [max(map(cell_len, cells)) for cells in columns]
    least = list(map(_least_width, columns))
    room -= _BETWEEN * (len(columns) - 1)
    while sum(widths) > room:
        shrinkable = [i for i, width in enumerate(widths) if width > least[i]]
        if not shrinkable:
            break
        widths[max(shrinkable, key=lambda i: widths[i])] -= 1
    return widths


def _colour(cell: str) -> Any:
    return _COLOURS.get(cell.partition(" (")[0], "")
