"""`speck token`: over HTTP, or straight in the store while no service runs.

A token must exist before the service listens past loopback, so the first one is made without it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import client, connected, formatted, output

if TYPE_CHECKING:
    from speck.client import Client
    from speck.service.tokens import Tokens

T = TypeVar("T")

_home = click.option(
    "--home",
    type=click.Path(file_okay=False),
    help="Open this home's store, not the service, which must not run.",
)


@click.group(cls=HelpfulGroup)
def token() -> None:
    """Add, list and remove tokens.

    Asks the service; while none runs here, opens its store (SPECK_HOME, else .speck).
    """


@token.command()
@click.argument("name")
@click.option(
    "--role",
    required=True,
    type=click.Choice(["admin", "deployer", "viewer", "site"]),
    help="What it may do.",
)
@click.option("--site", help="The site that a token of role site is for.")
@_home
@connected
@formatted
def add(name: str, role: str, site: str | None, home: str | None) -> None:
    """Make a token and print it, this once."""
    from speck.cli.messages import say

    secret = _done(
        home,
        lambda service: str(service.add_token(name, role, site)["token"]),
        lambda tokens: tokens.add(name, role, site),
    )
    say(f"token {name} ({role}); it is shown this once:")
    output().show({"name": name, "role": role, "site": site, "token": secret}, secret)


@token.command("list")
@_home
@connected
@formatted
def list_tokens(home: str | None) -> None:
    """List tokens; their secrets are not kept."""
    from speck.cli.output import Grid, moment

    found = _done(home, lambda service: service.tokens(), lambda tokens: tokens.all())
    rows = [(one["name"], one["role"], one["site"], moment(one["at"])) for one in found]
    output().show({"tokens": found}, Grid(("name", "role", "site", "at"), rows, None, "no tokens"))


@token.command()
@click.argument("name")
@_home
@connected
def remove(name: str, home: str | None) -> None:
    """Refuse a token from now on."""
    from speck.cli.messages import say

    _done(home, lambda service: service.remove_token(name), lambda tokens: tokens.remove(name))
    say(f"token {name} is removed")


def _done(home: str | None, ask: Callable[[Client], T], write: Callable[[Tokens], T]) -> T:
    """By the service, or in the store when the user says so or no service runs here."""
    from speck.cli.messages import say
    from speck.cli.offline import config_at, stored_tokens
    from speck.client import NoServerError

    if home is None:
        service = client()
        try:
            return ask(service)
        except NoServerError as error:
            if not service.local or not error.refused:
                raise
        say(f"no service runs at {service.server}; opening {config_at(home).store}")
    with stored_tokens(home) as tokens:
        return write(tokens)
