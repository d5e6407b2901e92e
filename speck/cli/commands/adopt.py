"""`speck adopt`"""

from __future__ import annotations

import click

from speck.cli.options import add_connection_options, add_output_option, client, output


@click.command()
@click.option("--cancel", is_flag=True, help="Cancel engine jobs that cannot be taken over.")
@click.option(
    "--older-state",
    is_flag=True,
    help="Let jobs that do not run start from state that may not be their newest.",
)
@add_connection_options
@add_output_option
def adopt(cancel: bool, older_state: bool) -> None:
    """Let a service restored from a backup take over what runs.

    A restored service starts nothing, since what was started, moved or removed after the backup is
    unknown to it; `speck status` shows what it finds. The latest incarnation of each of its jobs is
    taken over. A job that does not run may have left newer state than the service can know: it is
    started again only with `upgrade: stateless`, unless --older-state is given.
    """
    record = client().adopt(cancel=cancel, older_state=older_state)
    lines = [
        f"{verb} {job['job_name']} at {job['site']} ({job['engine_job_id']})"
        for verb, jobs in (("took over", record["adopted"]), ("cancelled", record["cancelled"]))
        for job in jobs
    ]
    lines += [
        f"newest state unknown: {job['job_name']}, last at {job['site']}"
        for job in record["uncertain"]
    ]
    output().show(record, *(lines or ["nothing has changed since the backup"]))
