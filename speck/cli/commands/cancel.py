"""`speck cancel`"""

from __future__ import annotations

import click

from speck.cli.options import client, connected, formatted, output


@click.command()
@click.argument("change")
@connected
@formatted
def cancel(change: str) -> None:
    """End a change early.

    No further operation of CHANGE starts (`speck history` lists changes). What runs
    keeps running; the next plan starts from what is there then.
    """
    found = client().cancel(change)
    running = [o for o in found["operations"] if o["state"] == "running"]
    if found["state"] == "running":
        count = len(running)
        rest = f"; {count} operation{'' if count == 1 else 's'} under way must end first"
        output().show(found, f"cancelling change {change}{rest if running else ''}")
        return
    output().show(found, f"change {change} is {found['state']}")
