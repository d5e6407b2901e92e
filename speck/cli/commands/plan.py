"""`speck plan`"""

from __future__ import annotations

import click

from speck.cli.options import (
    add_dropping_options,
    add_service_options,
    client,
    names_of,
    output,
)
from speck.cli.subjects import add_document

CHANGES = 2
"""The exit status for "there are changes"."""


@click.command()
@add_document
@click.option(
    "--composition",
    metavar="NAME",
    shell_complete=names_of("compositions"),
    help="Plan from the observed state to the newest revision instead of a FILE.",
)
@click.option("--operations", is_flag=True, help="Also print every operation and their order.")
@click.option("--adopt", is_flag=True, help="Take over jobs that were posted alone.")
@click.option(
    "--detailed-exitcode", is_flag=True, help="Exit with 2 when there are changes, 0 when not."
)
@add_dropping_options
@add_service_options
def plan(
    file: str | None,
    composition: str | None,
    operations: bool,
    adopt: bool,
    detailed_exitcode: bool,
    drop_queues: bool,
    drain_limit: float | None,
) -> None:
    """Show what apply would do, without doing it.

    FILE is a composition (`-`: stdin).
    """
    from speck.cli import documents, plans
    from speck.cli.follow import show_warnings

    if (file is None) == (composition is None):
        raise click.UsageError("give a FILE or --composition NAME")
    if file is not None:
        text = documents.read(file)
        answer = client().preview(
            text.content,
            text.content_type,
            adopt=adopt,
            drop_queues=drop_queues,
            drain_limit=drain_limit,
        )
        changes = answer["plan"]
        show_warnings(answer)
    else:
        answer = changes = client().plan(composition or "")
    output().show(answer, plans.render(changes, operations=operations))
    if detailed_exitcode and plans.changes_anything(changes):
        click.get_current_context().exit(CHANGES)
