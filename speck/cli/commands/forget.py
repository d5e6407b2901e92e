"""`speck forget`"""

from __future__ import annotations

from typing import Any

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import (
    add_service_options,
    client,
    names_of,
    output,
)
from speck.model.values import cut


@click.group(cls=HelpfulGroup)
def forget() -> None:
    """Remove a job, a composition or a site from the store alone.

    For what cannot be removed otherwise: no engine and no broker is called, whatever runs there
    goes on, and the answer names it. Try `speck destroy` and `speck site remove` first.
    """


def _add_command(noun: str) -> None:
    @forget.command(noun, help=f"Forget a {noun}.")
    @click.argument("name", shell_complete=names_of(f"{noun}s"))
    @click.option("--force", is_flag=True, help="Forget it; otherwise only name what is left.")
    @add_service_options
    def command(name: str, force: bool) -> None:
        record = client().forget(f"{noun}s", name, force=force)
        output().show(record, *_describe(record))


for _noun in ("job", "composition", "site"):
    _add_command(_noun)


def _describe(record: dict[str, Any]) -> list[str]:
    """What was forgotten, and what is left."""
    from speck.cli.messages import clean

    left = record["left"]
    lines = [f"{record['kind']} {record['name']} is forgotten"]
    lines += [f"ended: change {change}" for change in record["changes"]]
    lines += [
        f"left: engine job {job['engine_job_id']} ({job['job_name']}) at {job['site']}"
        for job in left["engine_jobs"]
    ]
    lines += [
        f"left: session {session['client_id']} on {clean(cut(session['topic']))}"
        f" at {session['site']}"
        for session in left["sessions"]
    ]
    lines += [f"left: artifact {sha256}" for sha256 in left["artifacts"]]
    if left["engine_jobs"]:
        lines.append("end these engine jobs before their names are used again")
    return lines
