"""`speck advise`"""

from __future__ import annotations

import click

from speck.cli.durations import Duration
from speck.cli.options import (
    add_service_options,
    add_wait_options,
    add_yes_option,
    client,
    output,
)
from speck.cli.policies import EPILOG, add_policy_option
from speck.cli.subjects import add_composition


@click.command(epilog=EPILOG)
@add_composition()
@add_policy_option
@click.option("--analysis", metavar="ID", help="Use this analysis instead of a new one.")
@click.option(
    "--window",
    type=Duration("1s", "31d"),
    default="10m",
    show_default=True,
    help="How far a new analysis looks back.",
)
@click.option(
    "--horizon",
    type=Duration(),
    help="Time in which a move has to pay for itself (default: the service's, 1h).",
)
@click.option("--scale", is_flag=True, help="Choose the parallelism of jobs, too.")
@click.option("--save", metavar="FILE", help="Write the proposed composition to FILE.")
@click.option("--apply", "carry", is_flag=True, help="Apply it, like `speck apply`.")
@add_yes_option
@add_wait_options
@add_service_options
def advise(
    composition: str,
    policy: str,
    analysis: str | None,
    window: float,
    horizon: float | None,
    scale: bool,
    save: str | None,
    carry: bool,
    yes: bool,
    wait: bool,
    timeout: float | None,
) -> None:
    """Analyse COMPOSITION and say where its jobs should run.

    Shows the ranking of the jobs, the proposed placement with its reasons, what it would change,
    and what the moves cost. It changes nothing without --apply.
    """
    from speck.cli import analyses, placements, proposals
    from speck.cli.names import check_known
    from speck.cli.waiting import await_analysis

    service, printer = client(answer_s=proposals.PATIENCE_S), output()
    check_known(service, composition=composition)
    if analysis is None:
        analysis = await_analysis(service, service.analyse(window_s=window)["id"])["id"]
    limits = {"horizon_s": horizon} if horizon else None
    advice = service.advise(
        composition, policy=policy, analysis=analysis, limits=limits, scale=scale
    )
    placement = advice["placement"]
    if printer.table or not carry:
        scales = ["", *placements.render_scales(placement)] if scale else []
        ranking = analyses.render_ranking(advice["ranking"])
        printer.show(advice, *ranking, "", *placements.render(placement), *scales)
    proposals.finish(
        service, printer, placement, save, carry=carry, yes=yes, wait=wait, timeout_s=timeout
    )
