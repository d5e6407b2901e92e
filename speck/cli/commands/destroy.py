"""`speck destroy`"""

from __future__ import annotations

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


@click.command()
@click.argument("composition", shell_complete=names_of("compositions"))
@click.option(
    "--drain/--no-drain",
    default=True,
    help="Whether to drain each link before its reader stops; with --no-drain, messages queued"
    " between the jobs are abandoned.",
)
@add_yes_option
@add_wait_options
@add_connection_options
@add_output_option
def destroy(composition: str, drain: bool, yes: bool, wait: bool, timeout: float | None) -> None:
    """Remove a composition and its jobs."""
    from speck.cli.follow import follow, require_done
    from speck.cli.messages import ask, clean, say

    service = client()
    record = service.composition(composition)
    for job in record["jobs"]:
        say(f"- remove  {job['job_name']}  {clean(job['site'] or '')}")
    abandoned = "" if drain else " and abandon the messages queued between them"
    count = len(record["jobs"])
    ask(f"Remove {count} job{'' if count == 1 else 's'} of {composition}{abandoned}?", yes)
    if not yes:
        service.limit(timeout)  # the time to confirm does not count
    accepted = service.destroy(composition, revision=record["desired"]["revision"], drain=drain)
    outcome = f"composition {composition} is removed"
    if not accepted:
        output().show({"composition": composition, "state": "done"}, outcome)
        return
    if not wait:
        output().show(accepted, f"change {accepted['change']} of {composition} is under way")
        return
    change = follow(service, accepted["change"])
    verdict = (outcome,) if change["state"] == "done" else ()
    output().show(
        {**accepted, "state": change["state"], "operations": change["operations"]}, *verdict
    )
    require_done(change, composition)
