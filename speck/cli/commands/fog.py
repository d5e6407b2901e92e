"""`speck fog`: real sites on this machine, for trying and testing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from speck.cli.commands import fog_links
from speck.cli.commands.fog_links import folder_option
from speck.cli.lazy import HelpfulGroup
from speck.cli.options import client, confirmed, connected, formatted, output

if TYPE_CHECKING:
    from collections.abc import Callable

    from speck.client import Client
    from speck.fog.sites import Fog, SiteStatus

_LOCK_TIMEOUT_S = 100.0  # as long as the supervisor may take to restart a site


@click.group(cls=HelpfulGroup)
def fog() -> None:
    """Run a fog of sites on this machine.

    Each site is a real Mosquitto and a real Flink.
    """


for _command in (fog_links.links, fog_links.link, fog_links.shape, fog_links.execute):
    fog.add_command(_command)


@fog.command()
@click.option("--edges", type=click.IntRange(0, 200), default=3, show_default=True)
@click.option("--slots", type=click.IntRange(1), default=8, show_default=True, help="Of an edge.")
@click.option(
    "--cloud-slots", type=click.IntRange(1), default=24, show_default=True, help="Of a cloud."
)
@click.option("--clouds", type=click.IntRange(0, 50), default=1, show_default=True)
@click.option(
    "--runtime",
    type=click.Choice(["single", "cluster"]),
    default="single",
    show_default=True,
    help="One JVM for each engine, or a Flink cluster of two.",
)
@click.option(
    "--shared-state",
    is_flag=True,
    help="All sites keep state in one folder; else each has its own, and an agent.",
)
@click.option(
    "--speed",
    "speeds",
    metavar="SITE=CORES",
    multiple=True,
    help="Let a site's engine use so many cores only, e.g. edge-a=0.25 (root on Linux; may be"
    " repeated).",
)
@click.option(
    "--wan",
    "wan_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="A YAML file of the sites' uplinks: bandwidths, latencies (root on Linux).",
)
@click.option(
    "--wan-mode",
    type=click.Choice(["namespaces", "proxy"]),
    help="Network namespaces (the default), or a proxy between the sites, without root.",
)
@click.option(
    "--restart/--no-restart",
    default=True,
    help="Whether an engine, broker or agent that dies is started again after 2 s.",
)
@click.option(
    "--register/--no-register", default=True, help="Whether to register the sites at the service."
)
@folder_option
@connected
@formatted
def up(
    edges: int,
    slots: int,
    cloud_slots: int,
    clouds: int,
    runtime: Literal["single", "cluster"],
    shared_state: bool,
    speeds: tuple[str, ...],
    wan_file: Path | None,
    wan_mode: Literal["namespaces", "proxy"] | None,
    restart: bool,
    register: bool,
    folder: Path | None,
) -> None:
    """Bring up sites edge-a, edge-b, ... and cloud, and register them.

    They outlive this command; `speck fog down` ends them.
    """
    import time

    from speck.cli.bars import count_bar
    from speck.cli.messages import say
    from speck.fog.sites import Fog
    from speck.fog.wan import load_wan

    made = Fog(folder, lock_timeout_s=_LOCK_TIMEOUT_S)
    started = time.monotonic()
    ready: list[str] = []
    with count_bar("bringing up sites", edges + clouds) as done:

        def progress(name: str) -> None:
            ready.append(name)
            done(len(ready))

        made.up(
            edges,
            slots,
            cloud_slots,
            clouds,
            runtime,
            shared_state=shared_state,
            speeds=_speeds(speeds),
            wan=load_wan(wan_file) if wan_file is not None else None,
            wan_mode=wan_mode,
            restart=restart,
            progress=progress,
        )
    say(f"{edges + clouds} sites are up after {time.monotonic() - started:.1f} s")
    _show(made)
    if register:
        _register(made, must=False)
    else:
        made.start_agents(client().server)


@fog.command()
@folder_option
@connected
def register(folder: Path | None) -> None:
    """Register the fog's sites at the service."""
    from speck.errors import NotFoundError
    from speck.fog.sites import Fog

    made = Fog(folder)
    if not made.sites():
        raise NotFoundError(f"cannot find a fog in {made.folder}: bring one up (speck fog up)")
    _register(made, must=True)


@fog.command()
@folder_option
@formatted
def status(folder: Path | None) -> None:
    """Show the fog's sites, their processes and memory."""
    from speck.fog.sites import Fog

    _show(Fog(folder))


@fog.command()
@click.option("--keep", is_flag=True, help="Keep the files: queues, checkpoints, logs.")
@folder_option
@confirmed
@connected
def down(keep: bool, folder: Path | None, yes: bool) -> None:
    """End every process of the fog, also after a crash, and delete its files.

    Asks first when jobs are deployed on the fog: without --keep their state is lost.
    """
    from speck.cli.messages import ask, say
    from speck.fog.sites import Fog

    made = Fog(folder, lock_timeout_s=_LOCK_TIMEOUT_S)
    if not keep and (deployed := _deployed_on(made)):
        ask(
            f"{deployed} run on this fog; their queued messages and checkpoints will be deleted"
            " (`speck destroy` ends a composition, --keep leaves the files). Go on?",
            yes,
        )
    ended = made.down(keep=keep)
    say(f"{ended} processes ended")


_WHAT = click.Choice(["engine", "broker", "agent"])


@fog.command()
@click.argument("site")
@click.argument("what", type=_WHAT, default="engine", required=False)
@folder_option
def kill(site: str, what: str, folder: Path | None) -> None:
    """Kill the engine, broker or agent of SITE (SIGKILL), as a crash would.

    A supervised fog starts it again after 2 s.
    """
    from speck.cli.messages import say
    from speck.fog.sites import Fog

    made = Fog(folder, lock_timeout_s=_LOCK_TIMEOUT_S)
    made.kill(site, what)
    then = (
        "it will be started again in 2 s"
        if made.supervised
        else f"start it again with `speck fog restart {site}`"
    )
    say(f"the {what} of {site} was killed; {then}")


@fog.command()
@click.argument("site")
@click.argument("what", type=_WHAT, required=False)
@folder_option
def restart(site: str, what: str | None, folder: Path | None) -> None:
    """Restart SITE, or its engine, broker or agent only; returns when it is up again."""
    from speck.cli.messages import say
    from speck.fog.sites import Fog

    Fog(folder, lock_timeout_s=_LOCK_TIMEOUT_S).restart(site, what)
    say(f"the {what} of {site} is up again" if what else f"{site} is up again")


def _deployed_on(made: Fog) -> str:
    """The compositions and jobs that the service has on the fog's sites, as text; empty when
    there are none, or no service answers."""
    from speck.cli.messages import warn
    from speck.client import NoServerError
    from speck.errors import SpeckError

    engines = {site.engine_address.rstrip("/") for site in made.sites()}
    if not engines:
        return ""
    service = client()
    try:
        names = {
            site["name"]
            for site in service.sites()
            if site["spe"]["address"].rstrip("/") in engines
        }
        jobs = [job for job in service.jobs() if job["site"] in names]
    except NoServerError:
        return ""
    except SpeckError as error:
        warn(f"whether jobs are deployed on this fog is unknown: {error}")
        return ""
    if not jobs:
        return ""
    compositions = sorted({job["composition"] for job in jobs if job["composition"]})
    count = f"{len(jobs)} job{'' if len(jobs) == 1 else 's'}"
    return f"{count} of {', '.join(compositions)}" if compositions else count


def _speeds(given: tuple[str, ...]) -> dict[str, float]:
    """`edge-a=0.25` -> {"edge-a": 0.25}"""
    found = {}
    for text in given:
        site, _, cores = text.partition("=")
        try:
            found[site] = float(cores)
        except ValueError:
            raise click.UsageError(
                f"cannot use --speed {text}: write SITE=CORES, e.g. edge-a=0.25"
            ) from None
    return found


def _register(made: Fog, *, must: bool) -> None:
    """Register, or change what an earlier fog registered; without a service say how, later."""
    from speck.cli.messages import say
    from speck.client import NoServerError

    service = client()
    try:
        for body in made.site_bodies():
            service.put_site(body["name"], body)
        made.start_agents(service.server, _site_token(service))
    except NoServerError as error:
        if must:
            raise
        made.start_agents(service.server)
        say(f"{error}; then register the sites with `speck fog register`")
        return
    say(f"{len(made.sites())} sites are registered at {service.server}")


def _site_token(service: Client) -> Callable[[str], str] | None:
    """Makes the token of a site's agent; None while the service wants none."""
    if not service.tokens():
        return None

    def make(site: str) -> str:
        name = f"agent-{site}"
        if any(token["name"] == name for token in service.tokens()):
            service.remove_token(name)
        return str(service.add_token(name, "site", site)["token"])

    return make


_RESTARTED = "what dies is started again after 2 s"
_NOT_RESTARTED = "what dies stays down (`speck fog up` without --no-restart restarts it)"


def _show(made: Fog) -> None:
    from speck.cli.output import Grid

    found, links = made.status(), made.links()
    total = sum(site.rss_mb for site in found)
    limited = any(site.speed is not None for site in found)
    headings = (
        *("name", "tier", "state", "free", "slots", "memory MB"),
        *(["cores at most"] if limited else []),
        *("engine", "broker", "pids"),
    )
    restarted = {"supervised": made.supervised}
    data = {
        "folder": str(made.folder),
        **restarted,
        "sites": list(map(_data, found)),
        "rss_mb": round(total, 1),
    }
    output().show(
        {**data, **({"links": fog_links.links_data(links)} if links else {})},
        Grid(headings, [_row(site, limited=limited) for site in found], None, "the fog is down"),
        *([fog_links.links_grid(links)] if links else []),
        *([f"memory in all: {total:.0f} MB"] if found else []),
        *([_RESTARTED if made.supervised else _NOT_RESTARTED] if found else []),
    )


def _state(site: SiteStatus) -> str:
    if site.up:
        return "up"
    return "degraded" if any(process.running for process in site.processes) else "down"


def _row(site: SiteStatus, *, limited: bool) -> tuple[object, ...]:
    return (
        site.name,
        site.tier,
        _state(site),
        site.slots_free,
        site.slots_total,
        f"{site.rss_mb:.0f}",
        *([site.speed] if limited else []),
        site.engine,
        site.broker,
        " ".join(f"{p.what}:{p.pid}" for p in site.processes if p.running),
    )


def _data(site: SiteStatus) -> dict[str, Any]:
    from dataclasses import asdict

    return {**asdict(site), "state": _state(site), "rss_mb": round(site.rss_mb, 1)}
