"""`speck rollback`"""

from __future__ import annotations

import click

from speck.cli.options import (
    client,
    confirmed,
    connected,
    followed,
    formatted,
    names_of,
    output,
    removing,
)


@click.command()
@click.argument("composition", shell_complete=names_of("compositions"))
@click.argument("revision", type=click.IntRange(min=1))
@removing
@confirmed
@followed
@connected
@formatted
def rollback(
    composition: str,
    revision: int,
    drain: bool,
    force: bool,
    yes: bool,
    wait: bool,
    timeout: float | None,
) -> None:
    """Apply an earlier revision as a new one.

    `speck history` lists them. Code and wiring go back; the jobs' state does not.
    """
    import secrets

    from speck.cli.carry_out import carry_out

    service = client()
    preview = service.rollback(composition, revision, dry_run=True, drain=drain, force=force)
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
            drain=drain,
            force=force,
        ),
        yes=yes,
        wait=wait,
        timeout_s=timeout,
    )
