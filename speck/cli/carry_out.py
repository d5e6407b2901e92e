"""Shows a plan, asks, has it carried out and follows it: what apply and rollback share."""

from __future__ import annotations

from collections.abc import Callable

import click

from speck.cli import plans
from speck.cli.follow import follow, note_warnings, require_done
from speck.cli.messages import ask
from speck.cli.output import Output
from speck.client import Client
from speck.model.values import JsonObject


def carry_out(
    client: Client,
    output: Output,
    preview: JsonObject,
    accept: Callable[[], JsonObject],
    *,
    yes: bool,
    wait: bool,
    timeout_s: float | None,
) -> None:
    """Raises CommandFailed when the change does not end well.

    A person reads the plan and the outcome on stdout; for a program stdout holds one object,
    what was accepted with the change as it ended, and the plan goes to stderr.
    """
    name, plan = preview["composition"], preview["plan"]
    click.echo(plans.render(plan), err=not output.table)
    note_warnings(preview)
    changing = plans.changes_anything(plan)
    if changing:
        ask(f"Carry this out on composition {name}?", yes)
        if not yes:
            client.limit(timeout_s)  # what the user took to answer does not count
    accepted = accept()
    about = f"{name} revision {accepted['revision']}"
    if accepted.get("state") == "done":  # there was nothing to do
        output.show({**accepted, "operations": []}, f"{about} is deployed")
        return
    if not wait:
        output.show(accepted, f"change {accepted['change']} of {name} is under way")
        return
    change = follow(client, accepted["change"])
    verdict = (f"{about} is deployed",) if change["state"] == "done" else ()
    output.show(
        {**accepted, "state": change["state"], "operations": change["operations"]}, *verdict
    )
    require_done(change, about)
