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

from speck.cli.options import add_connection_options, add_output_option, client, output
from speck.cli.subjects import add_composition
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from speck.cli.output import Grid

_EVERY_S = 2.0


@click.command()
@add_composition(required=False)
@click.option("--once", is_flag=True, help="Print one table and exit.")
@click.option(
    "--every", type=click.FloatRange(min=0.2), default=_EVERY_S, help="Seconds between updates (2)."
)
@add_connection_options
@add_output_option
def top(composition: str | None, once: bool, every: float) -> None:
    """Show the rates of jobs every 2 seconds; q or Ctrl-C ends it.

    Rates are those between the last two polls of the service's collector (every 5 s); `-` means
    unknown, not zero. With `-o json` or `--once`, or without a terminal, prints them once.
    """
    from speck.cli.names import check_known

    service = client()
    check_known(service, composition=composition)
    if once or not output().table or not sys.stdout.isatty():
        rates = service.rates(composition)
        output().show({"jobs": rates}, _table(rates))
        return
    with _watch_keys() as wait_for_q:
        while True:
            screen = _fit(str(_table(service.rates(composition))))
            click.clear()
            click.echo(screen)
            if wait_for_q(every):
                return


def _fit(text: str) -> str:
    """Cut a text to the height of the terminal."""
    lines, height = text.splitlines(), shutil.get_terminal_size().lines
    if len(lines) < height:
        return text
    visible = max(1, height - 2)
    return "\n".join([*lines[:visible], f"... and {len(lines) - visible} more"])


def _only_wait(seconds: float) -> bool:
    time.sleep(seconds)
    return False


@contextmanager
def _watch_keys() -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits so many seconds, or until q is pressed, and returns whether it
    was."""
    if not sys.stdin.isatty():
        yield _only_wait
        return
    import select
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)

    def wait_for_q(seconds: float) -> bool:
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            if not select.select([sys.stdin], [], [], remaining)[0]:
                continue
            typed = os.read(sys.stdin.fileno(), 64)
            if (
                not typed or b"q" in typed.lower()
            ):  # an empty read means that the terminal was closed
                return True
        return False

    try:
        yield wait_for_q
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _table(rates: list[JsonObject]) -> Grid:
    """The jobs as a table, busiest first; lost sessions only if there are any."""
    from speck.cli.output import Grid

    headings = ["name", "composition", "site", "in/s", "out/s", "busy", "back-pressure", "lag"]
    headings += ["restarts", "lost sessions"]
    width = len(headings) if any(job["sessions_lost"] for job in rates) else len(headings) - 1
    rows = [
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
            job["sessions_lost"],
        )
        for job in sorted(rates, key=lambda job: (-(job["busy"] or 0.0), job["job_name"]))
    ]
    return Grid(headings[:width], [row[:width] for row in rows], None, "no jobs")


def _rate(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.0%}"
