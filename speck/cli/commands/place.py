"""`speck place`"""

from __future__ import annotations

import click

from speck.cli.durations import Duration
from speck.cli.options import (
    Number,
    add_service_options,
    add_wait_options,
    add_yes_option,
    client,
    output,
)
from speck.cli.policies import EPILOG, add_policy_option
from speck.cli.subjects import add_composition

CHANGES = 2
"""The exit status for "there are changes"."""


@click.command(epilog=EPILOG)
@add_composition()
@add_policy_option
@click.option("--analysis", metavar="ID", help="Use this analysis instead of the newest.")
@click.option("--analyze", "anew", is_flag=True, help="First analyse the last ten minutes.")
@click.option(
    "--utilisation",
    type=Number(0, 1, min_open=True),
    metavar="SHARE",
    help="Use at most this share of each site's capacity (0.7).",
)
@click.option(
    "--horizon",
    type=Duration(),
    help="Time in which a move has to pay for itself (default: the service's, 1h).",
)
@click.option(
    "--all-moves", is_flag=True, help="Propose moves that do not pay for themselves, too."
)
@click.option(
    "--save",
    metavar="FILE",
    help="Write the proposed composition to FILE (`-`: to stdout, without the table).",
)
@click.option("--scale", is_flag=True, help="Choose the parallelism of jobs, too.")
@click.option("--apply", "carry", is_flag=True, help="Apply it, like `speck apply`.")
@click.option(
    "--detailed-exitcode", is_flag=True, help="Exit with 2 when something would move, 0 when not."
)
@add_yes_option
@add_wait_options
@add_service_options
def place(
    composition: str,
    policy: str,
    analysis: str | None,
    anew: bool,
    utilisation: float | None,
    horizon: float | None,
    all_moves: bool,
    save: str | None,
    scale: bool,
    carry: bool,
    detailed_exitcode: bool,
    yes: bool,
    wait: bool,
    timeout: float | None,
) -> None:
    """Propose where jobs should run.

    Uses the newest analysis of COMPOSITION (`speck advise` makes one first). Shows today's sites
    beside the proposed ones, with the reasons, the traffic between sites and the cost of the moves.
    It changes nothing without --apply.
    """
    from speck.cli import placements, proposals
    from speck.cli.names import check_known

    service, printer = client(answer_s=proposals.PATIENCE_S), output()
    wanted = {"utilisation": utilisation, "horizon_s": horizon}
    limits = {name: value for name, value in wanted.items() if value is not None}
    check_known(service, composition=composition)
    analysis = proposals.choose_analysis(service, analysis, anew)
    placement = service.place(
        composition, policy, analysis, limits, scale=scale, all_moves=all_moves
    )
    has_changes = placements.changes_anything(placement)
    if save == "-":
        click.echo(placement["yaml"], nl=False)
    elif printer.table or not carry:
        scales = ["", *placements.render_scales(placement)] if scale else []
        printer.show(placement, *placements.render(placement), *scales)
    proposals.finish(
        service, printer, placement, save, carry=carry, yes=yes, wait=wait, timeout_s=timeout
    )
    if detailed_exitcode and has_changes and not carry:
        click.get_current_context().exit(CHANGES)
