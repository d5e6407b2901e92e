"""`speck adopt`"""

from __future__ import annotations

import click

from speck.cli.options import add_service_options, client, output


@click.command()
@click.option("--cancel", is_flag=True, help="Cancel engine jobs that cannot be taken over.")
@click.option(
    "--older-state",
    is_flag=True,
    help="Let jobs that do not run start from state that may not be their newest.",
)
@click.option(
    "--discard-messages",
    is_flag=True,
    help="Release sessions that no job reads then, with the messages that wait in them.",
)
@add_service_options
def adopt(cancel: bool, older_state: bool, discard_messages: bool) -> None:
    """Let a restored or copied service take over what runs.

    A service starts nothing after its store was restored from a backup, or its home copied, since
    what was started, moved or removed elsewhere is unknown to it; `speck status` shows what it
    finds. The latest incarnation of each of its jobs is taken over. A job that does not run may
    have left newer state than the service can know: it is started again only with `upgrade:
    stateless`, unless --older-state is given. Sessions that no job reads then are kept with their
    messages: the next job of the same name that reads the same topic takes them.
    """
    from speck.cli.tables import count_messages

    record = client().adopt(
        cancel=cancel, older_state=older_state, discard_messages=discard_messages
    )
    lines = [
        f"{verb} {job['job_name']} at {job['site']} ({job['engine_job_id']})"
        for verb, jobs in (("took over", record["adopted"]), ("cancelled", record["cancelled"]))
        for job in jobs
    ]
    lines += [
        f"newest state unknown: {job['job_name']}, last at {job['site']}"
        for job in record["uncertain"]
    ]
    lines += [
        f"{verb} the session of {each['job_name']} at {each['site']} ({each['client_id']}):"
        f" {count_messages(each)}"
        for verb, sessions in (
            ("kept", record["kept_sessions"]),
            ("released", record["released_sessions"]),
        )
        for each in sessions
    ]
    output().show(record, *(lines or ["nothing has changed since the backup"]))
