"""`speck destroy`"""

from __future__ import annotations

import click

from speck.cli.options import (
    add_dropping_options,
    add_service_options,
    add_wait_options,
    add_yes_option,
    client,
    output,
)
from speck.cli.subjects import add_composition


@click.command()
@add_composition()
@add_dropping_options
@add_yes_option
@add_wait_options
@add_service_options
def destroy(
    composition: str,
    drop_queues: bool,
    drain_limit: float | None,
    yes: bool,
    wait: bool,
    timeout: float | None,
) -> None:
    """Remove a composition and its jobs."""
    from functools import partial

    from speck.cli import plans
    from speck.cli.follow import RESULT, follow, require_done
    from speck.cli.messages import ask, clean, say

    service = client()
    record = service.composition(composition)
    for job in record["jobs"]:
        say(f"- remove  {job['job_name']}  {clean(job['site'] or '')}")
    remove = partial(
        service.destroy,
        composition,
        revision=record["desired"]["revision"],
        drop_queues=drop_queues,
        drain_limit=drain_limit,
    )
    preview = remove(dry_run=True)
    plan = preview["plan"]
    for line in plans.render_queues(plan):
        click.echo(line, err=True)
    plans.refuse_dropping(plan, f"remove composition {composition}", allowed=drop_queues)
    count = len(record["jobs"])
    jobs = f"{count} job{'' if count == 1 else 's'}"
    ask(f"Remove {jobs} of {composition}{plans.ask_to_drop(plan)}?", yes)
    if not yes:
        service.limit(timeout)  # the time to confirm does not count
    accepted = remove()
    outcome = f"composition {composition} is removed"
    if not accepted:
        output().show({"composition": composition, "state": "done"}, outcome)
        return
    if not wait:
        output().show(accepted, f"change {accepted['change']} of {composition} is under way")
        return
    change = follow(service, accepted["change"])
    verdict = (outcome,) if change["state"] == "done" else ()
    plans.show_dropped(change)
    output().show({**accepted, **{key: change[key] for key in RESULT}}, *verdict)
    require_done(change, composition)
