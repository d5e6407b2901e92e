"""`speck place`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from speck.cli.options import (
    add_connection_options,
    add_output_option,
    add_wait_options,
    add_yes_option,
    client,
    names_of,
    output,
)
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from speck.cli.output import Output
    from speck.client import Client

PATIENCE_S = 180.0
"""How long to wait for an answer: a policy may search for a minute."""

CHANGES = 2
"""The exit status for "there are changes"."""


@click.command()
@click.argument("composition", shell_complete=names_of("compositions"))
@click.option("--policy", default="milp", show_default=True, help="The placement policy.")
@click.option("--analysis", metavar="ID", help="Use this analysis instead of the newest.")
@click.option("--analyze", "anew", is_flag=True, help="First analyse the last ten minutes.")
@click.option(
    "--utilisation",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="Use at most this share of each site's capacity (0.7).",
)
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    help="File for the new composition (COMPOSITION.placed.yaml; `-`: stdout, without the table).",
)
@click.option("--apply", "carry", is_flag=True, help="Apply it, like `speck apply`.")
@click.option(
    "--detailed-exitcode", is_flag=True, help="Exit with 2 when something would move, 0 when not."
)
@add_yes_option
@add_wait_options
@add_connection_options
@add_output_option
def place(
    composition: str,
    policy: str,
    analysis: str | None,
    anew: bool,
    utilisation: float | None,
    file: str | None,
    carry: bool,
    detailed_exitcode: bool,
    yes: bool,
    wait: bool,
    timeout: float | None,
) -> None:
    """Propose where jobs should run.

    Uses measurements of COMPOSITION. Shows today's sites beside the proposed ones, with the traffic
    between sites, and writes the new composition as YAML. It changes nothing without --apply.
    """
    from speck.cli import placements
    from speck.cli.messages import say

    service, printer = client(answer_s=PATIENCE_S), output()
    limits = {"utilisation": utilisation} if utilisation else None
    if anew:
        if analysis is not None:
            raise click.UsageError("give --analysis or --analyze, not both")
        from speck.cli.commands.analyze import await_analysis

        analysis = await_analysis(service, service.analyse()["id"])["id"]
    placement = service.place(composition, policy, analysis, limits)
    has_changes = placements.changes_anything(placement)
    if file == "-":
        click.echo(placement["yaml"], nl=False)
    elif printer.table or not carry:
        printer.show(placement, *placements.render(placement))
    if file != "-" and (file or (has_changes and not carry and printer.table)):
        _write(file or f"{composition}.placed.yaml", placement["yaml"])
    elif not has_changes:
        say("nothing would move: no file was written")
    if carry and has_changes:
        _carry_out(service, printer, placement, yes=yes, wait=wait, timeout=timeout)
    elif carry and not printer.table:
        printer.show(placement)
    if detailed_exitcode and has_changes and not carry:
        click.get_current_context().exit(CHANGES)


def _carry_out(
    service: Client,
    printer: Output,
    placement: JsonObject,
    *,
    yes: bool,
    wait: bool,
    timeout: float | None,
) -> None:
    import secrets

    from speck.cli.carry_out import carry_out

    key = secrets.token_hex(16)
    carry_out(
        service,
        printer,
        service.apply_placement(placement["id"], dry_run=True),
        lambda: service.apply_placement(placement["id"], key=key),
        yes=yes,
        wait=wait,
        timeout_s=timeout,
    )


def _write(file: str, text: str) -> None:
    from pathlib import Path

    from speck.errors import PermanentError

    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise PermanentError(f"cannot write {file}: {error.strerror or error}") from error
    click.echo(f"the new composition is in {file}; `speck apply {file}` applies it", err=True)
