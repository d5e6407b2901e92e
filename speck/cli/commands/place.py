"""`speck place`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from speck.cli.options import client, confirmed, connected, followed, formatted, names_of, output
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from speck.cli.output import Output
    from speck.client import Client

PATIENCE_S = 180.0
"""A policy may search for a minute before it answers with the best that it has found."""

CHANGES = 2
"""The exit status that says "there are changes"."""


@click.command()
@click.argument("composition", shell_complete=names_of("compositions"))
@click.option("--policy", default="milp", show_default=True, help="How sites are chosen.")
@click.option("--analysis", metavar="ID", help="By this analysis; without, by the newest.")
@click.option("--analyze", "anew", is_flag=True, help="Analyse first: the last ten minutes.")
@click.option(
    "--utilisation",
    type=click.FloatRange(0, 1, min_open=True),
    metavar="SHARE",
    help="At most this share of each site's capacity (0.7).",
)
@click.option(
    "-f",
    "--file",
    metavar="FILE",
    help="Where the new composition goes (COMPOSITION.placed.yaml; -: stdout, and no table).",
)
@click.option("--apply", "carry", is_flag=True, help="Carry it out, as `speck apply` would.")
@click.option(
    "--detailed-exitcode", is_flag=True, help="Exit with 2 when something is to move, 0 when not."
)
@confirmed
@followed
@connected
@formatted
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

    By what was measured of COMPOSITION: shows today's sites beside the proposed ones with what
    crosses between sites, and writes the new composition as YAML. Nothing is changed without
    --apply.
    """
    from speck.cli import placements
    from speck.cli.messages import say

    service, shown = client(answer_s=PATIENCE_S), output()
    limits = {"utilisation": utilisation} if utilisation else None
    if anew:
        if analysis is not None:
            raise click.UsageError("give --analysis or --analyze, not both")
        from speck.cli.commands.analyze import awaited

        analysis = awaited(service, service.analyse()["id"])["id"]
    made = service.place(composition, policy, analysis, limits)
    changing = placements.changes_anything(made)
    if file == "-":
        click.echo(made["yaml"], nl=False)
    elif shown.table or not carry:
        shown.show(made, *placements.render(made))
    if file != "-" and (file or (changing and not carry and shown.table)):
        _write(file or f"{composition}.placed.yaml", made["yaml"])
    elif not changing:
        say("nothing is to move: no file was written")
    if carry and changing:
        _carry_out(service, shown, made, yes=yes, wait=wait, timeout=timeout)
    elif carry and not shown.table:
        shown.show(made)
    if detailed_exitcode and changing and not carry:
        click.get_current_context().exit(CHANGES)


def _carry_out(
    service: Client,
    shown: Output,
    made: JsonObject,
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
        shown,
        service.apply_placement(made["id"], dry_run=True),
        lambda: service.apply_placement(made["id"], key=key),
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
    click.echo(f"the new composition is in {file}; `speck apply {file}` carries it out", err=True)
