"""`speck top`"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from speck.cli.options import client, connected, formatted, names_of, output
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from speck.cli.output import Grid

_EVERY_S = 2.0


@click.command()
@click.argument("composition", required=False, shell_complete=names_of("compositions"))
@click.option("--once", is_flag=True, help="Print one table and end.")
@click.option(
    "--every", type=click.FloatRange(min=0.2), default=_EVERY_S, help="Seconds between looks (2)."
)
@connected
@formatted
def top(composition: str | None, once: bool, every: float) -> None:
    """Show what jobs do, anew every 2 seconds; q or Ctrl-C ends it.

    Rates are those between the last two looks of the service's collector (every 5 s); `-` is not
    known, which is no zero. With `-o json` or `--once`, or without a terminal, once.
    """
    from speck.cli.names import check_known

    service = client()
    check_known(service, composition=composition)
    if once or not output().table or not sys.stdout.isatty():
        found = service.rates(composition)
        output().show({"jobs": found}, _table(found))
        return
    with _keys() as q_is_pressed:
        while True:
            shown = _fitted(str(_table(service.rates(composition))))
            click.clear()
            click.echo(shown)
            if q_is_pressed(every):
                return


def _fitted(text: str) -> str:
    """As many lines as the terminal has."""
    lines, height = text.splitlines(), shutil.get_terminal_size().lines
    if len(lines) < height:
        return text
    kept = max(1, height - 2)
    return "\n".join([*lines[:kept], f"... and {len(lines) - kept} more"])


def _only_wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextmanager
def _keys() -> Iterator[Callable[[float], bool]]:
    """Waits so many seconds, or until q is pressed: whether it was."""
    if not sys.stdin.isatty():
        yield _only_wait
        return
    import select
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)

    def pressed(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            if not select.select([sys.stdin], [], [], left)[0]:
                continue
            typed = os.read(sys.stdin.fileno(), 64)
            if not typed or b"q" in typed.lower():  # nothing: the terminal is gone
                return True
        return False

    try:
        yield pressed
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _table(found: list[JsonObject]) -> Grid:
    """Jobs, those that work hardest first."""
    from speck.cli.output import Grid

    return Grid(
        (
            "name",
            "composition",
            "site",
            "in/s",
            "out/s",
            "busy",
            "back-pressure",
            "lag",
            "restarts",
        ),
        [
            (
                job["job_name"],
                job["composition"],
                job["site"],
                _rate(job["in_rate"]),
                _rate(job["out_rate"]),
                _share(job["busy"]),
                _share(job["back_pressured"]),
                job["lag"],
                job["restarts"],
            )
            for job in sorted(found, key=lambda job: (-(job["busy"] or 0.0), job["job_name"]))
        ],
        None,
        "no jobs",
    )


def _rate(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.0%}"
