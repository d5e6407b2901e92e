"""`speck sub`: shows the records of a link."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from speck.cli.links import add_direct_options, open_direct, refuse_credentials_alone
from speck.cli.options import (
    Number,
    add_service_options,
    client,
    names_of,
    output,
)
from speck.model.values import JsonObject, cut

if TYPE_CHECKING:
    from speck.model.record import Record

_MOST, _SECONDS, _LONGEST_S = 1000, 10.0, 60.0
"""Records and seconds of one request by default, and the longest."""


@click.command()
@click.argument("site", shell_complete=names_of("sites"))
@click.argument("topic")
@click.option(
    "-n",
    "--max",
    "most",
    type=click.IntRange(min=1),
    help=f"End after so many records (default: {_MOST}, with --direct no limit).",
)
@click.option(
    "--seconds",
    type=Number(min=0, min_open=True),
    help=f"End after this time (default: {_SECONDS:g}, at most {_LONGEST_S:g}; with --direct until"
    " Ctrl-C).",
)
@click.option("--stamps", is_flag=True, help="Show each record's producer, epoch and number.")
@add_direct_options
@add_service_options
def sub(
    site: str,
    topic: str,
    most: int | None,
    seconds: float | None,
    stamps: bool,
    direct: bool,
    credentials: Path | None,
) -> None:
    """Show the records that are sent to a link from now on.

    TOPIC is the link's topic at the broker of SITE. Its readers notice nothing, and batches are
    shown record by record. Bytes that are no text are shown in base64.
    """
    refuse_credentials_alone(credentials, direct=direct)
    if direct:
        _follow(site, topic, most, seconds, credentials, stamps=stamps)
        return
    if seconds is not None and seconds > _LONGEST_S:
        raise click.UsageError(f"--seconds is {_LONGEST_S:g} at most; use --direct to follow")
    if most is not None and most > _MOST:
        raise click.UsageError(f"--max is {_MOST} at most; use --direct for more")
    answer = client().tap(site, topic, most or _MOST, seconds or _SECONDS)
    output().show(answer, *(_line(record, stamps=stamps) for record in answer["records"]))


def _follow(
    site: str,
    topic: str,
    most: int | None,
    seconds: float | None,
    credentials: Path | None,
    *,
    stamps: bool,
) -> None:
    """Print records as they come; with `-o json`, each is one line of JSON."""
    from speck.cli.messages import say, to_json
    from speck.model.record import render_record

    shown = 0
    until = None if seconds is None else time.monotonic() + seconds

    def go_on() -> bool:
        late = until is not None and time.monotonic() >= until
        return not late and (most is None or shown < most)

    def show(record: Record) -> None:
        nonlocal shown
        if go_on():
            shown += 1
            shape = render_record(record)
            click.echo(_line(shape, stamps=stamps) if output().table else to_json(shape))

    say(f"reading {site}/{cut(topic)}; Ctrl-C ends")
    open_direct(site, credentials).tap(topic, show, go_on)


def _line(record: JsonObject, *, stamps: bool) -> str:
    from speck.cli.messages import clean

    payload = clean(record.get("text", f"base64:{record.get('base64')}"))
    return f"{clean(record['stamp'] or '-')}  {payload}" if stamps else payload
