"""Options that many commands share; each may be given before or after the command's name."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from speck.errors import InvalidError

if TYPE_CHECKING:
    from speck.cli.output import Output
    from speck.client import Client
    from speck.tls.contexts import ClientTls

F = TypeVar("F", bound=Callable[..., Any])

_LONGEST_TOKEN_FILE = 4096


class Number(click.FloatRange):
    """A number within limits. Python reads `nan` and `inf` as numbers, too, and no limit holds for
    the first: both are wrong usage."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value!r} is not a finite number.", param, ctx)
        return number


_SERVER, _TOKEN_FILE, _FORMAT = "speck.api.server", "speck.token_file", "speck.format"
_TLS = {name: f"speck.tls.{name}" for name in ("ca", "cert", "key")}


def _keep(name: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def callback(ctx: click.Context, _: click.Parameter, value: Any) -> None:
        if value is not None:
            ctx.meta[name] = value

    return callback


def add_connection_options(command: F) -> F:
    """Add --server, --token-file, --ca, --cert and --key, for `client()`."""
    for option in (
        *(
            click.option(
                f"--{name}",
                type=click.Path(dir_okay=False, path_type=Path),
                expose_value=False,
                callback=_keep(_TLS[name]),
                help=f"{what} (PEM; default: SPECK_{name.upper()}).",
            )
            for name, what in (
                ("key", "Private key of --cert"),
                ("cert", "Certificate to present to the service and its brokers"),
                ("ca", "Authority that signed the certificates of an https:// service"),
            )
        ),
        click.option(
            "--token-file",
            type=click.Path(path_type=Path),
            expose_value=False,
            callback=_keep(_TOKEN_FILE),
            help="File that holds the token (default: SPECK_TOKEN or SPECK_TOKEN_FILE).",
        ),
        click.option(
            "--server",
            metavar="URL",
            expose_value=False,
            callback=_keep(_SERVER),
            help="The service (default: SPECK_SERVER or http://127.0.0.1:8080).",
        ),
    ):
        command = option(command)
    return command


def add_output_option(command: F) -> F:
    """Add -o, for `output()`."""
    return click.option(
        "-o",
        "--output",
        "form",
        type=click.Choice(["table", "json", "yaml"]),
        expose_value=False,
        callback=_keep(_FORMAT),
        help="Output format (default: table).",
    )(command)


def add_service_options(command: F) -> F:
    """Add the options of a command that asks the service, and prints what it gets."""
    return add_connection_options(add_output_option(command))


def add_fresh_option(command: F) -> F:
    """Add --fresh, passed as `fresh`."""
    return click.option(
        "--fresh", is_flag=True, help="Poll the sites first; else show states as last polled."
    )(command)


def add_yes_option(command: F) -> F:
    """Add --yes, passed as `yes`."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(command)


def _check_drain_limit(
    context: click.Context, _: click.Parameter, limit_s: float | None
) -> float | None:
    if limit_s is not None and not context.params.get("drop_queues"):
        raise click.UsageError(
            "give --drain-limit together with --drop-queues: without it, jobs take all"
        )
    return limit_s


def add_dropping_options(command: F) -> F:
    """Add --drop-queues and --drain-limit, passed as `drop_queues` and `drain_limit` (seconds or
    None): which messages may be lost."""
    for option in (
        click.option(
            "--drain-limit",
            type=Number(min=0, max=86400),
            metavar="SECONDS",
            callback=_check_drain_limit,
            help="With --drop-queues: how long each job that leaves its link may take what waits"
            " for it; 0: it leaves at once (default: 300, or what the service is set up with).",
        ),
        click.option(
            "--drop-queues",
            is_flag=True,
            is_eager=True,  # --drain-limit looks at it
            help="Drop what nobody takes: what waits for readers outside speck, for jobs that do"
            " not run or cannot be reached, and what other jobs do not take in --drain-limit.",
        ),
    ):
        command = option(command)
    return command


def add_removal_options(command: F) -> F:
    """Add --drop-queues, --drain-limit and --force, passed as `drop_queues`, `drain_limit` and
    `force`: what may be lost."""
    force = click.option(
        "--force", is_flag=True, help="Allow a change that removes more than half of the jobs."
    )
    return add_dropping_options(force(command))


def add_wait_options(command: F) -> F:
    """Add --wait and --timeout, passed as `wait` and `timeout` (seconds or None)."""
    for option in (
        click.option(
            "--timeout",
            type=Number(min=0, min_open=True),
            metavar="SECONDS",
            help="Stop waiting after this time; a change that has started continues.",
        ),
        click.option(
            "--wait/--no-wait", default=True, help="Whether to wait until the change has ended."
        ),
    ):
        command = option(command)
    return command


def client(answer_s: float | None = None) -> Client:
    """A client for the service given by the options and the environment; it is closed with the
    command."""
    import os

    from speck.cli import messages
    from speck.client import ANSWER_S, DEFAULT_SERVER, Client

    ctx = click.get_current_context()
    server = ctx.meta.get(_SERVER) or os.environ.get("SPECK_SERVER") or DEFAULT_SERVER
    # other forms keep texts as they are, and write what is not printable as escapes
    clean = messages.clean if output_form(ctx) == "table" else None
    token, tls = _token(ctx, os.environ), _usable_tls(server)
    service = Client(server, token, answer_s or ANSWER_S, tls, clean)
    service.limit(ctx.params.get("timeout"))
    ctx.call_on_close(service.close)
    return service


def tls_files() -> ClientTls:
    """The files of --ca, --cert and --key, else of the environment."""
    import os

    from speck.tls.contexts import ClientTls

    meta = click.get_current_context().meta
    files = {name: meta.get(_TLS[name]) or os.environ.get(f"SPECK_{name.upper()}") for name in _TLS}
    return ClientTls(**{name: Path(file) for name, file in files.items() if file})


def _usable_tls(server: str) -> ClientTls | None:
    """The files for the service; those of the environment alone are no error with plain HTTP."""
    meta = click.get_current_context().meta
    if server.startswith("https:") or any(meta.get(key) for key in _TLS.values()):
        return tls_files()
    return None


def _token(ctx: click.Context, env: Any) -> str | None:
    """The token from the option, else from the environment."""
    option = ctx.meta.get(_TOKEN_FILE)
    if option is None and env.get("SPECK_TOKEN"):
        return str(env["SPECK_TOKEN"]).strip()
    file = option or env.get("SPECK_TOKEN_FILE")
    if not file:
        return None
    try:
        with open(file, encoding="utf-8") as stream:
            text = stream.read(_LONGEST_TOKEN_FILE + 1)
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidError(
            f"cannot read the token file {file}: {getattr(error, 'strerror', None) or error}"
        ) from error
    if len(text) > _LONGEST_TOKEN_FILE:
        raise InvalidError(f"cannot read the token file {file}: it holds more than a token")
    return text.strip()


def output() -> Output:
    """The printer for this command's data."""
    from speck.cli.output import Output

    return Output(output_form(click.get_current_context()))


def output_form(ctx: click.Context) -> str:
    """The format given with -o: table, json or yaml."""
    form: str = ctx.meta.get(_FORMAT, "table")
    return form


def names_of(noun: str) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    """A shell completion for the names of `sites`, `jobs`, `compositions` or `artifacts`; without
    a service it offers none."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[str]:
        from speck.errors import SpeckError

        try:
            with ctx.scope(cleanup=False):
                items = getattr(client(answer_s=1.0), noun)()
        except SpeckError:
            return []
        key = {"jobs": "job_name", "artifacts": "sha256"}.get(noun, "name")
        return [item[key] for item in items if item[key].startswith(incomplete)]

    return complete
