"""`speck destroy`"""

from __future__ import annotations

import click

from speck.cli.options import client, confirmed, connected, followed, formatted, names_of, output


@click.command()
@click.argument("composition", shell_complete=names_of("compositions"))
@click.option(
    "--drain/--no-drain",
    default=True,
    help="Whether each link runs empty before its reader stops; without, what is queued between"
    " the jobs is abandoned.",
)
@confirmed
@followed
@connected
@formatted
def destroy(composition: str, drain: bool, yes: bool, wait: bool, timeout: float | None) -> None:
    """Remove a composition and its jobs."""
    from speck.cli.follow import follow, require_done
    from speck.cli.messages import ask, clean, say

    service = client()
    found = service.composition(composition)
    for job in found["jobs"]:
        say(f"- remove  {job['job_name']}  {clean(job['site'] or '')}")
    abandoned = "" if drain else " and abandon what is queued between them"
    count = len(found["jobs"])
    ask(f"Remove {count} job{'' if count == 1 else 's'} of {composition}{abandoned}?", yes)
    if not yes:
        service.limit(timeout)  # what the user took to answer does not count
    accepted = service.destroy(composition, revision=found["desired"]["revision"], drain=drain)
    gone = f"composition {composition} is gone"
    if not accepted:
        output().show({"composition": composition, "state": "done"}, gone)
        return
    if not wait:
        output().show(accepted, f"change {accepted['change']} of {composition} is under way")
        return
    change = follow(service, accepted["change"])
    verdict = (gone,) if change["state"] == "done" else ()
    output().show(
        {**accepted, "state": change["state"], "operations": change["operations"]}, *verdict
    )
    require_done(change, composition)
