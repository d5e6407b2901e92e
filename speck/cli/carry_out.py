"""Shows a plan, asks for confirmation, applies it and follows the change; for all commands that
apply."""

from __future__ import annotations

from collections.abc import Callable

import click

from speck.cli import plans
from speck.cli.follow import RESULT, follow, require_done, show_warnings
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
    drop_queues: bool = False,
    yes: bool,
    wait: bool,
    timeout_s: float | None,
) -> None:
    """Carry out what `preview` shows by calling `accept`. Raises CommandFailed when the change
    does not succeed, or when it would drop queues and `drop_queues` does not allow that.

    With the table format, the plan and the outcome go to stdout. Otherwise stdout holds one object,
    the response with the final state of the change, and the plan goes to stderr.
    """
    name, plan = preview["composition"], preview["plan"]
    click.echo(plans.render(plan), err=not output.table)
    show_warnings(preview)
    has_changes = plans.changes_anything(plan)
    plans.refuse_dropping(plan, f"apply this plan to composition {name}", allowed=drop_queues)
    if has_changes:
        ask(f"Apply this plan to composition {name}{plans.ask_to_drop(plan)}?", yes)
        if not yes:
            client.limit(timeout_s)  # the time to confirm does not count
    accepted = accept()
    subject = f"{name} revision {accepted['revision']}"
    if accepted.get("state") == "done":  # there was nothing to do
        output.show({**accepted, "operations": []}, f"{subject} is deployed")
        return
    if not wait:
        output.show(accepted, f"change {accepted['change']} of {name} is under way")
        return
    change = follow(client, accepted["change"])
    verdict = (f"{subject} is deployed",) if change["state"] == "done" else ()
    plans.show_dropped(change)
    output.show({**accepted, **{key: change[key] for key in RESULT}}, *verdict)
    require_done(change, subject)
