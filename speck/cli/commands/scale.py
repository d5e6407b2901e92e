"""`speck scale`"""

from __future__ import annotations

import click

from speck.cli.options import (
    add_service_options,
    add_wait_options,
    add_yes_option,
    client,
    output,
)
from speck.cli.subjects import add_composition


@click.command()
@add_composition()
@click.option("--analysis", metavar="ID", help="Use this analysis instead of the newest.")
@click.option("--analyze", "anew", is_flag=True, help="First analyse the last ten minutes.")
@click.option(
    "--save",
    metavar="FILE",
    help="Write the proposed composition to FILE (`-`: to stdout, without the table).",
)
@click.option("--apply", "carry", is_flag=True, help="Apply it, like `speck apply`.")
@add_yes_option
@add_wait_options
@add_service_options
def scale(
    composition: str,
    analysis: str | None,
    anew: bool,
    save: str | None,
    carry: bool,
    yes: bool,
    wait: bool,
    timeout: float | None,
) -> None:
    """Propose how many subtasks jobs should have.

    Uses measurements of COMPOSITION and DS2's rule: as many subtasks as the records that arrive
    need, limited by the task slots and the memory of each job's site. Jobs stay at their sites;
    `speck place --scale` chooses both. It changes nothing without --apply.
    """
    from speck.cli import placements, proposals
    from speck.cli.names import check_known

    service, printer = client(answer_s=proposals.PATIENCE_S), output()
    check_known(service, composition=composition)
    analysis = proposals.choose_analysis(service, analysis, anew)
    placement = service.place(composition, "stay", analysis, scale=True)
    if save == "-":
        click.echo(placement["yaml"], nl=False)
    elif printer.table or not carry:
        exceeded = placements.list_violations(placement)
        printer.show(placement, *placements.render_scales(placement), *exceeded)
    proposals.finish(
        service, printer, placement, save, carry=carry, yes=yes, wait=wait, timeout_s=timeout
    )
