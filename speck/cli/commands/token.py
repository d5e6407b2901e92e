"""`speck token`: over HTTP, or directly in the store while no service runs.

A token must exist before the service listens past loopback, so the first one is created offline.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import click

from speck.cli.lazy import HelpfulGroup
from speck.cli.options import add_connection_options, add_service_options, client, names_of, output
from speck.model.values import LOCAL, JsonObject

if TYPE_CHECKING:
    from speck.client import Client
    from speck.service.tokens import Tokens

T = TypeVar("T")

_home = click.option(
    "--home",
    type=click.Path(file_okay=False),
    help="Open the store in this home directly; its service must not run.",
)


_expires = click.option(
    "--expires",
    metavar="DURATION",
    help="How long it is valid, like 90d: a whole number and s, m, h, d or w (default: for ever).",
)
_token_name = click.argument("name", shell_complete=names_of("tokens"))


@click.group(cls=HelpfulGroup)
def token() -> None:
    """Add, list, rotate and remove tokens.

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
@click.option("--site", shell_complete=names_of("sites"), help="The site of a token of role site.")
@click.option(
    "--compositions",
    multiple=True,
    metavar="GLOB",
    shell_complete=names_of("compositions"),
    help="Limit it to compositions and jobs posted alone, like 'traffic*'; may be repeated.",
)
@click.option(
    "--topics",
    multiple=True,
    metavar="PATTERN",
    help="Limit it to topics, like 'traffic/#' (+: one level, #: the rest); may be repeated.",
)
@click.option(
    "--sites",
    multiple=True,
    metavar="GLOB",
    shell_complete=names_of("sites"),
    help="Limit it to sites, like 'edge-*'; may be repeated.",
)
@_expires
@_home
@add_service_options
def add(
    name: str,
    role: str,
    site: str | None,
    compositions: tuple[str, ...],
    topics: tuple[str, ...],
    sites: tuple[str, ...],
    expires: str | None,
    home: str | None,
) -> None:
    """Create a token and print its secret, which is shown only once.

    A deployer or viewer may be limited: it sees and changes only what lies inside.
    """
    from speck.cli.messages import say
    from speck.model.scopes import Scopes
    from speck.model.shown import render

    scopes = Scopes(compositions or None, topics or None, sites or None)

    def ask(service: Client) -> JsonObject:
        return service.add_token(name, role, site, **scopes.to_json(), expires_in=expires)

    def write(tokens: Tokens) -> JsonObject:
        secret = tokens.add(name, role, site, scopes=scopes, expires_in=expires, by=LOCAL)
        return {**render(tokens.get(name)), "token": secret}

    made = _run(home, ask, write, f"add token {name}")
    say(f"token {name} ({role}); its secret is shown only once:")
    output().show(made, made["token"])


@token.command()
@_token_name
@_expires
@_home
@add_service_options
def rotate(name: str, expires: str | None, home: str | None) -> None:
    """Give a token a new secret and print it.

    The old secret is valid for ten more minutes.
    """
    from speck.cli.messages import say
    from speck.model.shown import render

    def write(tokens: Tokens) -> JsonObject:
        secret = tokens.rotate(name, expires, by=LOCAL)
        return {**render(tokens.get(name)), "token": secret}

    made = _run(
        home, lambda service: service.rotate_token(name, expires), write, f"rotate token {name}"
    )
    say(f"token {name}: the old secret is valid for ten more minutes; the new one:")
    output().show(made, made["token"])


@token.command("list")
@_home
@add_service_options
def list_tokens(home: str | None) -> None:
    """List tokens, without their secrets."""
    from speck.cli.output import Grid
    from speck.model.shown import render

    tokens = _run(
        home, lambda service: service.tokens(), lambda tokens: list(map(render, tokens.all()))
    )
    headings = ("name", "role", "site", "scopes", "at", "expires", "last used")
    output().show({"tokens": tokens}, Grid(headings, map(_row, tokens), None, "no tokens"))


@token.command("self")
@add_service_options
def show_self() -> None:
    """Show the token that this command uses: its role, scopes and time of expiry."""
    from speck.cli.output import fields

    own = client().own_token()
    names = ("name", "role", "site", "scopes", "at", "expires", "last used")
    output().show(own, fields(zip(names, _row(own), strict=True)))


def _row(one: JsonObject) -> tuple[object, ...]:
    from speck.cli.output import moment
    from speck.model.scopes import describe

    times = (moment(one[key]) if one[key] else None for key in ("at", "expires", "last_used"))
    return (one["name"], one["role"], one["site"], describe(one) or None, *times)


@token.command()
@_token_name
@click.option(
    "--open",
    "leave_open",
    is_flag=True,
    help="Remove the last token, too: everybody on the service's machine is administrator then.",
)
@_home
@add_connection_options
def remove(name: str, leave_open: bool, home: str | None) -> None:
    """Revoke a token."""
    from speck.cli.messages import say

    _run(
        home,
        lambda service: service.remove_token(name, leave_open=leave_open),
        lambda tokens: tokens.remove(name, leave_open=leave_open, by=LOCAL),
        f"remove token {name}",
    )
    say(f"token {name} is removed")


def _run(
    home: str | None,
    ask: Callable[[Client], T],
    write: Callable[[Tokens], T],
    what: str | None = None,
) -> T:
    """Use the service, or the store directly when --home is given or no service runs here. `what`
    names a change for the audit log."""
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
    with open_tokens(home, what) as tokens:
        return write(tokens)
