"""`speck fog links|link|shape|exec`: the WAN between the sites of a fog."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from speck.cli.options import Number, add_output_option, output

if TYPE_CHECKING:
    from speck.cli.output import Grid
    from speck.fog.wan import LinkStatus

folder_option = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    help="The fog's folder (default: $SPECK_HOME/fog or .speck/fog).",
)


@click.command()
@folder_option
@add_output_option
def links(folder: Path | None) -> None:
    """Show each site's uplink: its state, rates, latency and traffic so far."""
    from speck.fog.sites import Fog

    statuses = Fog(folder).links()
    output().show({"links": links_data(statuses)}, links_grid(statuses))


@click.command()
@click.argument("site")
@click.argument("state", type=click.Choice(["up", "down"]))
@folder_option
def link(site: str, state: str, folder: Path | None) -> None:
    """Take the uplink of SITE down, or up again.

    While it is down, packets in both directions are dropped silently, as on a WAN.
    """
    from speck.cli.messages import say
    from speck.fog.sites import Fog

    Fog(folder).set_link(site, state == "up")
    say(f"the link of {site} is {state}")


@click.command()
@click.argument("site")
@click.option("--up", "up_mbps", type=Number(min=0), help="Mb/s from the site; 0: unlimited.")
@click.option("--down", "down_mbps", type=Number(min=0), help="Mb/s to the site; 0: unlimited.")
@click.option("--latency", "latency_ms", type=Number(min=0), help="ms to the core, one way.")
@folder_option
def shape(
    site: str,
    up_mbps: float | None,
    down_mbps: float | None,
    latency_ms: float | None,
    folder: Path | None,
) -> None:
    """Change the uplink of SITE while it is in use; options not given keep their values."""
    from speck.cli.messages import say
    from speck.errors import NotFoundError
    from speck.fog.sites import Fog
    from speck.fog.wan import Uplink

    if (up_mbps, down_mbps, latency_ms) == (None, None, None):
        raise click.UsageError("give --up, --down or --latency")
    local_fog = Fog(folder)
    current = next((status for status in local_fog.links() if status.site == site), None)
    if current is None:
        raise NotFoundError(
            f"cannot find an uplink of {site} in {local_fog.folder} (speck fog links)"
        )
    uplink = Uplink(
        current.up_mbps if up_mbps is None else up_mbps or None,
        current.down_mbps if down_mbps is None else down_mbps or None,
        current.latency_ms if latency_ms is None else latency_ms,
    )
    local_fog.shape(site, uplink)
    say(f"the link of {site}: {_rates(uplink.up_mbps, uplink.down_mbps)}, {uplink.latency_ms:g} ms")


@click.command("exec", context_settings={"ignore_unknown_options": True})
@click.argument("site")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
@folder_option
def execute(site: str, command: tuple[str, ...], folder: Path | None) -> None:
    """Run COMMAND in the network namespace of SITE: `speck fog exec edge-a -- ip address`."""
    import os

    from speck.errors import PermanentError
    from speck.fog.sites import Fog

    argv = [*Fog(folder).enter(site), *command]
    try:
        os.execvp(argv[0], argv)
    except OSError as error:
        raise PermanentError(f"cannot run {argv[0]}: {error.strerror}") from error


def links_data(statuses: list[LinkStatus]) -> list[dict[str, Any]]:
    """The links as JSON data."""
    from dataclasses import asdict

    return [asdict(link) for link in statuses]


def links_grid(statuses: list[LinkStatus]) -> Grid:
    """The links as a table."""
    from speck.cli.output import Grid

    headings = ("site", "link", "Mbit/s up", "down", "ms", "bytes up", "down", "packets", "dropped")
    rows = [
        (
            link.site,
            "up" if link.up else "down",
            _rate(link.up_mbps),
            _rate(link.down_mbps),
            f"{link.latency_ms:g}",
            link.up_bytes,
            link.down_bytes,
            link.packets,
            link.dropped,
        )
        for link in statuses
    ]
    return Grid(headings, rows, None, "the fog has no WAN")


def _rate(mbps: float | None) -> str:
    return "any" if mbps is None else f"{mbps:g}"


def _rates(up: float | None, down: float | None) -> str:
    return f"{_rate(up)} Mb/s up, {_rate(down)} Mb/s down"
