"""`speck rollback`"""

from __future__ import annotations

import click

from speck.cli.options import (
    add_removal_options,
    add_service_options,
    add_wait_options,
    add_yes_option,
    client,
    output,
)
from speck.cli.subjects import add_name


@click.command()
@add_name("composition", "composition")
@click.argument("revision", type=click.IntRange(min=1))
@add_removal_options
@add_yes_option
@add_wait_options
@add_service_options
def rollback(
    composition: str,
    revision: int,
    drop_queues: bool,
    drain_limit: float | None,
    force: bool,
    yes: bool,
    wait: bool,
    timeout: float | None,
) -> None:
    """Apply an earlier revision as a new one.

    `speck history` lists the revisions. Code and wiring are rolled back; the jobs' state is not.
    """
    import secrets

    from speck.cli.carry_out import carry_out

    service = client()
    preview = service.rollback(
        composition,
        revision,
        dry_run=True,
        drop_queues=drop_queues,
        drain_limit=drain_limit,
        force=force,
    )
    key = secrets.token_hex(16)
    carry_out(
        service,
        output(),
        preview,
        lambda: service.rollback(
            composition,
            revision,
            revision=preview["revision"] or 0,
            key=key,
            drop_queues=drop_queues,
            drain_limit=drain_limit,
            force=force,
        ),
        drop_queues=drop_queues,
        yes=yes,
        wait=wait,
        timeout_s=timeout,
    )
