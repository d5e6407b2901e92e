"""`speck token`: over HTTP, or directly in the store while no service runs.

A token must exist before the service listens past loopback, so the first one is created offline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import add_connection_options, add_output_option, client, output

if TYPE_CHECKING:
    from speck.client import Client
    from speck.service.tokens import Tokens

T = TypeVar("T")

_home = click.option(
    "--home",
    type=click.Path(file_okay=False),
    help="Open the store in this home directly; its service must not run.",
)


@click.group(cls=HelpfulGroup)
def token() -> None:
    """Add, list and remove tokens.

    Calls the service; if none runs here, opens its store (SPECK_HOME or .speck).
    """


@token.command()
@click.argument("name")
@click.option(
    "--role",
    required=True,
    type=click.Choice(["admin", "deployer", "viewer", "site"]),
    help="The role of the token.",
)
@click.option("--site", help="The site of a token with role site.")
@_home
@add_connection_options
@add_output_option
def add(name: str, role: str, site: str | None, home: str | None) -> None:
    """Create a token and print its secret, which is shown only once."""
    from speck.cli.messages import say

    secret = _run(
        home,
        lambda service: str(service.add_token(name, role, site)["token"]),
        lambda tokens: tokens.add(name, role, site),
    )
    say(f"token {name} ({role}); its secret is shown only once:")
    output().show({"name": name, "role": role, "site": site, "token": secret}, secret)


@token.command("list")
@_home
@add_connection_options
@add_output_option
def list_tokens(home: str | None) -> None:
    """List tokens, without their secrets."""
    from speck.cli.output import Grid, moment

    tokens = _run(home, lambda service: service.tokens(), lambda tokens: tokens.all())
    rows = [(one["name"], one["role"], one["site"], moment(one["at"])) for one in tokens]
    output().show({"tokens": tokens}, Grid(("name", "role", "site", "at"), rows, None, "no tokens"))


@token.command()
@click.argument("name")
@_home
@add_connection_options
def remove(name: str, home: str | None) -> None:
    """Revoke a token."""
    from speck.cli.messages import say

    _run(home, lambda service: service.remove_token(name), lambda tokens: tokens.remove(name))
    say(f"token {name} is removed")


def _run(home: str | None, ask: Callable[[Client], T], write: Callable[[Tokens], T]) -> T:
    """Use the service, or the store directly when --home is given or no service runs here."""
    from speck.cli.messages import say
    from speck.cli.offline import config_at, open_tokens
    from speck.client import NoServerError

    if home is None:
        service = client()
        try:
            return ask(service)
        except NoServerError as error:
            if not service.local or not error.refused:
                raise
        say(f"no service runs at {service.server}; opening {config_at(home).store}")
    with open_tokens(home) as tokens:
        return write(tokens)
