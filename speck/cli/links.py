"""What `speck pub` and `speck sub` share: the broker of a site, reached by the command itself."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from speck.cli.options import client

if TYPE_CHECKING:
    from speck.binding import MessageBroker

F = TypeVar("F", bound=Callable[..., Any])


def add_direct_options(command: F) -> F:
    """Add --direct and --credentials, passed as `direct` and `credentials`."""
    for option in (
        click.option(
            "--credentials",
            type=click.Path(dir_okay=False, path_type=Path),
            help="With --direct: file with your login for the broker (lines user=, password=, ca=,"
            " ...; mode 0600).",
        ),
        click.option(
            "--direct",
            is_flag=True,
            help="Connect to the broker from here instead of through the service, with your own"
            " credentials and without its limits.",
        ),
    ):
        command = option(command)
    return command


def open_direct(site: str, credentials: Path | None) -> MessageBroker:
    """The broker of a registered site. Raises SpeckError for an unknown site, and when the
    credentials cannot be used."""
    from speck.binding import Target, open_broker

    broker = client().site(site)["broker"]
    opened = open_broker(broker["kind"], Target(broker["address"], credentials))
    click.get_current_context().call_on_close(opened.close)
    return opened


def refuse_credentials_alone(credentials: Path | None, *, direct: bool) -> None:
    """Raises UsageError for --credentials without --direct."""
    if credentials is not None and not direct:
        raise click.UsageError("--credentials is for --direct: the service uses its own")
