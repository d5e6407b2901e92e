"""`speck history`"""

from __future__ import annotations

import click

from speck.cli.options import client, connected, formatted, names_of, output


@click.command()
@click.argument("composition", shell_complete=names_of("compositions"))
@connected
@formatted
def history(composition: str) -> None:
    """List revisions and changes.

    Those of COMPOSITION, newest first.
    """
    from speck.cli.output import Grid, moment

    service = client()
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
            ("change", "revision", "state", "started", "ended", "error"),
            [
                (
                    change["id"],
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
