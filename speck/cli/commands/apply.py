"""`speck apply`"""

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
from speck.cli.subjects import add_document


@click.command()
@add_document
@click.option("--adopt", is_flag=True, help="Take over jobs that were posted alone.")
@add_removal_options
@add_yes_option
@add_wait_options
@add_service_options
def apply(
    file: str | None,
    adopt: bool,
    drop_queues: bool,
    drain_limit: float | None,
    force: bool,
    yes: bool,
    wait: bool,
    timeout: float | None,
) -> None:
    """Make a composition the desired state.

    Shows the plan for FILE (`-`: stdin) and asks for confirmation. Unchanged jobs continue to run
    untouched.
    """
    import secrets

    from speck.cli import documents
    from speck.cli.carry_out import carry_out

    if file is None:
        raise click.UsageError("give the FILE with the composition (`-`: stdin)")
    text = documents.read(file)
    service = client()
    preview = service.preview(
        text.content,
        text.content_type,
        adopt=adopt,
        drop_queues=drop_queues,
        drain_limit=drain_limit,
        force=force,
    )
    key = secrets.token_hex(16)
    carry_out(
        service,
        output(),
        preview,
        lambda: service.apply(
            text.content,
            text.content_type,
            revision=preview["revision"] or 0,
            key=key,
            adopt=adopt,
            drop_queues=drop_queues,
            drain_limit=drain_limit,
            force=force,
        ),
        drop_queues=drop_queues,
        yes=yes,
        wait=wait,
        timeout_s=timeout,
    )
