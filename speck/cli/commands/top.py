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

from speck.cli.options import Number, add_service_options, client, output
from speck.cli.subjects import add_composition
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from speck.cli.output import Grid

_EVERY_S = 2.0
_STEPS = {"\x1b[a": -1, "k": -1, "\x1b[b": 1, "j": 1, "\x1b[5~": -10, "\x1b[6~": 10, " ": 10}
"""Keys (lower case) and by how many rows they scroll: arrows, j, k, page up and down, space."""


@click.command()
@add_composition(required=False)
@click.option("--once", is_flag=True, help="Print one table and exit.")
@click.option(
    "--every", type=Number(min=0.2), default=_EVERY_S, help="Seconds between updates (2)."
)
@add_service_options
def top(composition: str | None, once: bool, every: float) -> None:
    """Show the rates of jobs every 2 seconds.

    q or Ctrl-C ends it, arrows and space scroll.

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
    skipped = 0
    with _watch_keys() as wait_for_key:
        while True:
            table, until = str(_table(service.rates(composition))), time.monotonic() + every
            while True:
                skipped, screen = fit(table, skipped)
                click.clear()
                click.echo(screen)
                key = wait_for_key(until - time.monotonic())
                if key == "q":
                    return
                if key is None:
                    break
                skipped += _STEPS[key]


def fit(text: str, skipped: int) -> tuple[int, str]:
    """Cut a table to the height of the terminal, without the first `skipped` rows: how many are
    left out in fact, and the text. The headings stay."""
    head, *rows = text.splitlines()
    height = shutil.get_terminal_size().lines
    if 1 + len(rows) < height:
        return 0, text
    visible = max(0, height - 3)  # the headings, the last line and the cursor need one each
    skipped = max(0, min(skipped, len(rows) - visible))
    above, below = skipped, len(rows) - visible - skipped
    footer = f"... and {below} more" if not above else f"... {above} above, {below} below"
    return skipped, "\n".join([head, *rows[skipped : skipped + visible], footer])


def _only_wait(seconds: float) -> str | None:
    time.sleep(max(0.0, seconds))
    return None


@contextmanager
def _watch_keys() -> Iterator[Callable[[float], str | None]]:
    """Yield a function that waits so many seconds, or until q or a key of `_STEPS` is pressed, and
    returns it."""
    if not sys.stdin.isatty():
        yield _only_wait
        return
    import select
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    tty.setcbreak(sys.stdin)

    def wait_for_key(seconds: float) -> str | None:
        until = time.monotonic() + seconds
        while (remaining := until - time.monotonic()) > 0:
            if not select.select([sys.stdin], [], [], remaining)[0]:
                continue
            typed = os.read(sys.stdin.fileno(), 64).decode(errors="replace").lower()
            if not typed or "q" in typed:  # an empty read means that the terminal was closed
                return "q"
            for key in _STEPS:
                if key in typed:
                    return key
        return None

    try:
        yield wait_for_key
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)


def _table(rates: list[JsonObject]) -> Grid:
    """The jobs as a table, busiest first; losses only if there are any."""
    from speck.cli.output import Grid

    headings = ["name", "composition", "site", "in/s", "out/s", "busy", "back-pressure", "lag"]
    headings += ["restarts", "left out", "lost", "lost sessions"]
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
            job["records_left_out"],
            job["records_lost"],
            job["sessions_lost"],
        )
        for job in sorted(rates, key=lambda job: (-(job["busy"] or 0.0), job["job_name"]))
    ]
    shown = [n for n in range(len(headings)) if n < 9 or any(row[n] for row in rows)]
    cells = [tuple(row[n] for n in shown) for row in rows]
    dispensable = ("composition", "restarts", "back-pressure", "site")
    return Grid([headings[n] for n in shown], cells, None, "no jobs", dispensable)


def _rate(value: float | None) -> str | None:
    if value is None:
        return None
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


def _share(value: float | None) -> str | None:
    return None if value is None else f"{value:.0%}"
