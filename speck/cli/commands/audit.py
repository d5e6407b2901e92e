"""`speck audit`: over HTTP, or in the files of a home whether its service runs or not."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import add_service_options, client, output
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from pathlib import Path

_KNOWN = ("n", "at", "token", "address", "verb", "object", "outcome", "previous", "request", "code")

_home = click.option(
    "--home",
    type=click.Path(file_okay=False),
    help="Read the files of this home (default for `verify`: SPECK_HOME or .speck).",
)


@click.group(cls=HelpfulGroup)
def audit() -> None:
    """Read and verify the log of who asked for what."""


@audit.command()
@click.option(
    "-n", "--lines", type=click.IntRange(1, 10_000), default=20, help="Number of lines (20)."
)
@_home
@add_service_options
def tail(lines: int, home: str | None) -> None:
    """Print the newest lines, oldest first.

    Asks the service, which requires the role admin; with --home reads the files.
    """
    from speck.store.audit_log import read_newest

    entries = client().audit(lines) if home is None else read_newest(_folder(home), lines)
    output().show({"entries": entries}, *map(_line, entries))


@audit.command()
@click.option("--contains", metavar="HASH", help="A hash noted earlier: its line must be there.")
@_home
@add_service_options
def verify(contains: str | None, home: str | None) -> None:
    """Check that every line is there as the service wrote it, and print the last hash.

    Reads the files of a home and what its store knows of the newest line; a service that holds the
    store is asked, which requires the role admin. The exit status is 1 when anything is wrong.
    """
    from speck.cli.messages import clean
    from speck.cli.offline import verify_audit

    verdict = verify_audit(home, contains) or client().verify_audit(contains)
    head = f"{verdict['lines']} lines from number {verdict['first']} on;"
    head += f" last hash {verdict['last_hash']}"
    output().show(verdict, *map(clean, verdict["faults"]), clean(head))
    if not verdict["ok"]:
        click.get_current_context().exit(1)


def _folder(home: str | None) -> Path:
    from speck.cli.offline import config_at

    return config_at(home).audit


def _line(entry: JsonObject) -> str:
    from speck.cli.messages import clean
    from speck.cli.output import moment

    who = f"{entry['token'] or '-'}@{entry['address'] or '-'}"
    more = {key: value for key, value in entry.items() if key not in _KNOWN}
    text = f"{who}  {entry['verb']} {entry['object']}  {entry['outcome']}"
    text += f"  {json.dumps(more)}" if more else ""
    return f"{moment(entry['at'])}  {clean(text)}"
