"""Options that many commands share; each may stand before or after the command's name."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from speck.errors import InvalidError

if TYPE_CHECKING:
    from speck.cli.output import Output
    from speck.client import Client

F = TypeVar("F", bound=Callable[..., Any])

_SERVER, _TOKEN_FILE, _FORMAT = "speck.api.server", "speck.token_file", "speck.format"


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            ctx.meta[name] = value

    return callback


def connected(command: F) -> F:
    """--server and --token-file, for `client()`."""
    for option in (
        click.option(
            "--token-file",
            type=click.Path(path_type=Path),
            expose_value=False,
            callback=_keep(_TOKEN_FILE),
            help="File that holds the token (else SPECK_TOKEN, SPECK_TOKEN_FILE).",
        ),
        click.option(
            "--server",
            metavar="URL",
            expose_value=False,
            callback=_keep(_SERVER),
            help="The service (else SPECK_SERVER, else http://127.0.0.1:8080).",
        ),
    ):
        command = option(command)
    return command


def formatted(command: F) -> F:
    """-o, for `output()`."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(["table", "json", "yaml"]),
        expose_value=False,
        callback=_keep(_FORMAT),
        help="How data is printed (table).",
    )(command)


def confirmed(command: F) -> F:
    """--yes, given as `yes`."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask.")(command)


def removing(command: F) -> F:
    """--drain and --force, given as `drain` and `force`: how jobs may leave."""
    for option in (
        click.option(
            "--force", is_flag=True, help="Remove more than half of the jobs if it comes to that."
        ),
        click.option(
            "--drain/--no-drain",
            default=True,
            help="Whether a link runs empty before its reader leaves it; without, what is queued"
            " there is abandoned.",
        ),
    ):
        command = option(command)
    return command


def followed(command: F) -> F:
    """--wait and --timeout, given as `wait` and `timeout` (seconds or None)."""
    for option in (
        click.option(
            "--timeout",
            type=click.FloatRange(min=0, min_open=True),
            metavar="SECONDS",
            help="End the command after so long; a change that has begun goes on.",
        ),
        click.option(
            "--wait/--no-wait", default=True, help="Whether to wait until the change is over."
        ),
    ):
        command = option(command)
    return command


def client(answer_s: float | None = None) -> Client:
    """The service that the options and the environment name, closed with the command."""
    import os

    from speck.client import ANSWER_S, DEFAULT_SERVER, Client

    ctx = click.get_current_context()
    server = ctx.meta.get(_SERVER) or os.environ.get("SPECK_SERVER") or DEFAULT_SERVER
    made = Client(server, _token(ctx, os.environ), answer_s or ANSWER_S)
    made.limit(ctx.params.get("timeout"))
    ctx.call_on_close(made.close)
    return made


def _token(ctx: click.Context, env: Any) -> str | None:
    """From the option, else the environment."""
    given = ctx.meta.get(_TOKEN_FILE)
    if given is None and env.get("SPECK_TOKEN"):
        return str(env["SPECK_TOKEN"]).strip()
    file = given or env.get("SPECK_TOKEN_FILE")
    if not file:
        return None
    try:
        return Path(file).read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(
            f"cannot read the token file {file}: {getattr(error, 'strerror', None) or error}"
        ) from error


def output() -> Output:
    """The form in which this command prints its data."""
    from speck.cli.output import Output

    return Output(output_form(click.get_current_context()))


def output_form(ctx: click.Context) -> str:
    """What -o asks for: table, json or yaml."""
    form: str = ctx.meta.get(_FORMAT, "table")
    return form


def names_of(noun: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """Completes the names of `sites`, `jobs` or `compositions`; offers none without a service."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        from speck.errors import SpeckError

        try:
            with ctx.scope(cleanup=False):
                items = getattr(client(answer_s=1.0), noun)()
        except SpeckError:
            return []
        key = "job_name" if noun == "jobs" else "name"
        return [item[key] for item in items if item[key].startswith(incomplete)]

    return complete
