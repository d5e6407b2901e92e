"""`speck offload`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from speck.cli.durations import Duration
from speck.cli.options import (
    add_service_options,
    add_yes_option,
    client,
    output,
)
from speck.cli.policies import EPILOG, add_policy_option
from speck.cli.subjects import add_composition

if TYPE_CHECKING:
    from speck.cli.output import Output
    from speck.client import Client
    from speck.model.values import JsonObject


@click.command(epilog=EPILOG)
@add_composition()
@add_policy_option
@click.option(
    "--window",
    type=Duration(),
    default="60s",
    show_default=True,
    help="How long to measure with everything in the cloud, and after the offload.",
)
@click.option(
    "--settle",
    type=Duration(),
    default="5m",
    show_default=True,
    help="How long to wait for steady rates after each change.",
)
@add_yes_option
@add_service_options
def offload(composition: str, policy: str, window: float, settle: float, yes: bool) -> None:
    """Offload jobs to edges, after measuring all in the cloud.

    Moves every job that is not pinned to the cloud (the brokers of the inputs stay), waits until
    its rates are steady, analyses, places by --policy, and applies that. Shows what crosses between
    sites and what the engines use before and after.
    """
    from speck.cli import offloading, proposals
    from speck.cli.names import check_known

    service, printer = client(answer_s=proposals.PATIENCE_S), output()
    check_known(service, composition=composition)
    in_cloud = _move(service, printer, composition, "all-cloud", yes)
    before = offloading.measure(service, composition, window, settle)
    placement = _move(service, printer, composition, policy, yes, before["id"])
    after = offloading.measure(service, composition, window, settle)
    rows = offloading.compare(composition, before, after, placement)
    document = {
        "composition": composition,
        "in_cloud": in_cloud["id"],
        "placement": placement["id"],
        "analyses": {"before": before["id"], "after": after["id"]},
        "figures": rows,
    }
    printer.show(document, offloading.render(composition, rows))


def _move(
    service: Client,
    printer: Output,
    composition: str,
    policy: str,
    yes: bool,
    analysis: str | None = None,
) -> JsonObject:
    """Place by a policy and apply it if it changes anything; returns the placement."""
    from speck.cli import offloading, placements, proposals
    from speck.cli.messages import say

    # the first move needs no evidence: it makes measurements comparable
    placement = service.place(composition, policy, analysis, move_unmeasured=analysis is None)
    if printer.table and analysis is not None:
        printer.show(placement, *placements.render(placement))
    if placements.changes_anything(placement):
        steps = printer if printer.table else offloading.Quiet(printer.form)
        proposals.carry_out_placement(service, steps, placement, yes=yes)
    else:
        say(f"{composition} is already where the policy {policy} wants it")
    return placement
