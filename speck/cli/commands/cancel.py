"""`speck cancel`"""

from __future__ import annotations

import click

from speck.cli.options import add_service_options, client, output


@click.command()
@click.argument("change")
@add_service_options
def cancel(change: str) -> None:
    """Cancel a change.

    No further operation of CHANGE starts (`speck history` lists changes). Running jobs continue;
    the next plan starts from the state observed then.
    """
    record = client().cancel(change)
    running = [o for o in record["operations"] if o["state"] == "running"]
    if record["state"] == "running":
        count = len(running)
        rest = f"; {count} running operation{'' if count == 1 else 's'} must end first"
        output().show(record, f"cancelling change {change}{rest if running else ''}")
        return
    output().show(record, f"change {change} is {record['state']}")
