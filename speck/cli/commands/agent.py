"""`speck agent`"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from speck.model.site import DEFAULT_BROKER, DEFAULT_ENGINE

_file = click.Path(dir_okay=False, path_type=Path)
_folder = click.Path(file_okay=False, path_type=Path)


@click.command()
@click.option("--site", required=True, help="The site of this agent.")
@click.option(
    "--service",
    envvar="SPECK_SERVER",
    default="http://127.0.0.1:8080",
    show_default=True,
    help="The service (or SPECK_SERVER).",
)
@click.option(
    "--state-folder",
    required=True,
    type=_folder,
    help="The engine's folder for the states of its jobs, under the path that it uses.",
)
@click.option(
    "--token-file", envvar="SPECK_TOKEN_FILE", type=_file, help="File with the site's token."
)
@click.option(
    "--listen",
    metavar="HOST:PORT",
    help="Receive state from other sites here; without it, the service relays state.",
)
@click.option("--advertise", metavar="URL", help="The URL under which other agents reach --listen.")
@click.option("--tls-cert", type=_file, help="Certificate of --listen (PEM, with its chain).")
@click.option("--tls-key", type=_file, help="Its private key (PEM), if not in the same file.")
@click.option(
    "--client-ca", type=_file, help="Take state only from agents with a certificate of this CA."
)
@click.option("--ca", envvar="SPECK_CA", type=_file, help="CA of the service and the other agents.")
@click.option(
    "--cert", envvar="SPECK_CERT", type=_file, help="Certificate to present to them (PEM)."
)
@click.option("--key", envvar="SPECK_KEY", type=_file, help="Its private key (PEM).")
@click.option("--engine", metavar="URL", help="The engine; with --broker, to register the site.")
@click.option("--broker", metavar="URL", help="The broker, to register the site.")
@click.option("--tier", type=click.Choice(["edge", "cloud"]), default="edge", show_default=True)
@click.option("--engine-kind", metavar="KIND", help=f"Left out: {DEFAULT_ENGINE}.")
@click.option("--broker-kind", metavar="KIND", help=f"Left out: {DEFAULT_BROKER}.")
@click.option("--credentials", metavar="NAME", help="Name of the broker's credentials file.")
@click.option("--engine-credentials", metavar="NAME", help="Name of the engine's credentials file.")
def agent(listen: str | None, **options: Any) -> None:
    """Run a site's agent until SIGTERM or Ctrl-C.

    It reports the site's health, lists the state that its engine has stored, and sends state to
    other sites on the service's command.
    """
    import signal

    from speck.agent.agent import Agent, Settings

    site_agent = Agent(Settings(listen=_address(listen), **options))

    def end(*_: object) -> None:
        raise SystemExit(0)

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    site_agent.run()


def _address(listen: str | None) -> tuple[str, int] | None:
    if listen is None:
        return None
    host, _, port = listen.rpartition(":")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise click.UsageError("write --listen as HOST:PORT, e.g. 192.168.1.10:8090")
    return host.strip("[]"), int(port)
