"""What the commands that propose a new placement share: the analysis, the file, and the change."""

from __future__ import annotations

import secrets
from pathlib import Path

import click

from speck.cli.carry_out import carry_out
from speck.cli.messages import say
from speck.cli.output import Output
from speck.cli.placements import changes_anything
from speck.cli.writing import write_whole
from speck.client import Client
from speck.model.values import JsonObject

PATIENCE_S = 180.0
"""How long to wait for an answer: a policy may search for a minute."""


def choose_analysis(service: Client, analysis: str | None, anew: bool) -> str | None:
    """The id of the analysis to use; None: the newest one. `anew`: analyse the last minutes."""
    if not anew:
        return analysis
    if analysis is not None:
        raise click.UsageError("give --analysis or --analyze, not both")
    from speck.cli.waiting import await_analysis

    return str(await_analysis(service, service.analyse()["id"])["id"])


def finish(
    service: Client,
    printer: Output,
    placement: JsonObject,
    save: str | None,
    *,
    carry: bool,
    yes: bool,
    wait: bool,
    timeout_s: float | None,
) -> None:
    """Write the proposed composition to the file that --save names; with `carry`, apply it."""
    if not changes_anything(placement):
        say("nothing would change" + (": no file was written" if save not in (None, "-") else ""))
        if carry and not printer.table:
            printer.show(placement)
        return
    if save not in (None, "-"):
        _write(str(save), placement["yaml"])
    if carry:
        carry_out_placement(service, printer, placement, yes=yes, wait=wait, timeout_s=timeout_s)
    elif save is None and printer.table:
        say("nothing was changed: --apply applies the proposal, --save FILE writes it to a file")


def carry_out_placement(
    service: Client,
    printer: Output,
    placement: JsonObject,
    *,
    yes: bool,
    wait: bool = True,
    timeout_s: float | None = None,
) -> None:
    """Show the plan of a placement, ask, apply it, and follow the change."""
    key = secrets.token_hex(16)
    carry_out(
        service,
        printer,
        service.apply_placement(placement["id"], dry_run=True),
        lambda: service.apply_placement(placement["id"], key=key),
        yes=yes,
        wait=wait,
        timeout_s=timeout_s,
    )


def _write(file: str, text: str) -> None:
    content = text.encode()
    write_whole(Path(file), [content], len(content))
    click.echo(f"the new composition is in {file}; `speck apply {file}` applies it", err=True)
