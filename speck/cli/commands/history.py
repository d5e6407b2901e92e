"""`speck history`"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from speck.cli.options import add_service_options, client, output
from speck.cli.subjects import add_name
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from speck.client import Client

_CHANGE = re.compile(r"[0-9a-f]{20}")


@click.command()
@add_name("composition", "subject", metavar="COMPOSITION|CHANGE")
@add_service_options
def history(subject: str) -> None:
    """List revisions and changes, or what one change did.

    With COMPOSITION, lists its revisions and changes, newest first. With CHANGE, lists its
    operations: when each started and ended, how often it was tried, and why it failed, was skipped
    or waited; then the change's events.
    """
    service = client()
    if _CHANGE.fullmatch(subject):
        _timeline(service, subject)
    else:
        _changes(service, subject)


def _changes(service: Client, composition: str) -> None:
    from speck.cli.output import Grid, moment

    revisions = list(reversed(service.revisions(composition)))
    changes = service.changes(composition)
    output().show(
        {"revisions": revisions, "changes": changes},
        Grid(
            ("revision", "at", "by"),
            [(r["revision"], moment(r["at"]), r["by"]) for r in revisions],
            "Revisions",
        ),
        "",
        Grid(
            ("change", "cause", "revision", "state", "started", "ended", "error"),
            [
                (
                    change["id"],
                    change["cause"],
                    change["revision"],
                    change["state"],
                    moment(change["started"]),
                    moment(change["ended"]),
                    change["error"],
                )
                for change in changes
            ],
            "Changes",
        ),
    )


def _timeline(service: Client, change_id: str) -> None:
    from speck.cli.output import Grid, fields

    change = service.change(change_id)
    events = service.events(change=change_id)
    names = ("id", "composition", "job_name", "revision", "cause", "by", "state", "started")
    output().show(
        {**change, "events": events},
        fields((name, change[name]) for name in (*names, "ended", "error", "superseded_by")),
        "",
        Grid(
            ("step", "operation", "after", "state", "tries", "started", "ended", "why"),
            [_row(operation) for operation in change["operations"]],
            "Operations",
        ),
        "",
        Grid(
            ("at", "kind", "what"),
            [(_time(e["at"]), e["kind"], e["message"]) for e in events],
            "Events",
        ),
    )


def _row(operation: JsonObject) -> tuple[object, ...]:
    from speck.cli.follow import name_of

    return (
        operation["id"],
        name_of(operation),
        ",".join(map(str, operation["after"])),
        operation["state"],
        operation["attempts"],
        _time(operation["started"]),
        _time(operation["ended"]),
        operation["error"] or operation["reason"],
    )


def _time(moment: str | None) -> str | None:
    """The time of day with milliseconds, since the operations of a change are close together."""
    return moment[11:23] if moment else None
