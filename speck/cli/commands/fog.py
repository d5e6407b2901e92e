"""`speck fog`: real sites on this machine, for trying and testing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from speck.cli.commands import fog_links
from speck.cli.commands.fog_links import folder_option
from speck.cli.lazy import HelpfulGroup
from speck.cli.options import (
    add_connection_options,
    add_output_option,
    add_service_options,
    add_yes_option,
    client,
    output,
)
from speck.fog.site_record import KAFKA, MOSQUITTO, SPARK
from speck.model.site import DEFAULT_ENGINE

if TYPE_CHECKING:
    from collections.abc import Callable

    from speck.client import Client
    from speck.fog.sites import Fog, SiteStatus

_LOCK_TIMEOUT_S = 100.0  # as long as the supervisor may take to restart a site


@click.group(cls=HelpfulGroup)
def fog() -> None:
    """Run a fog of sites on this machine.

    Each site has a real broker (Mosquitto, or Kafka in a cloud) and a real Flink.
    """


for _command in (fog_links.links, fog_links.link, fog_links.shape, fog_links.execute):
    fog.add_command(_command)


@fog.command()
@click.option("--edges", type=click.IntRange(0, 200), default=3, show_default=True)
@click.option(
    "--slots", type=click.IntRange(1), default=8, show_default=True, help="Slots of an edge."
)
@click.option(
    "--cloud-slots",
    type=click.IntRange(1),
    default=24,
    show_default=True,
    help="Slots of a cloud.",
)
@click.option("--clouds", type=click.IntRange(0, 50), default=1, show_default=True)
@click.option(
    "--runtime",
    type=click.Choice(["single", "cluster"]),
    default="single",
    show_default=True,
    help="Run each engine in one JVM, or as a Flink cluster of two JVMs.",
)
@click.option(
    "--shared-state",
    is_flag=True,
    help="Keep the state of all sites in one folder; by default each has its own, and an agent.",
)
@click.option(
    "--speed",
    "speeds",
    metavar="SITE=CORES",
    multiple=True,
    help="Limit a site's engine to so many cores, e.g. edge-a=0.25 (root on Linux; may be"
    " repeated).",
)
@click.option(
    "--wan",
    "wan_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="YAML file with the bandwidths and latencies of the sites' uplinks (root on Linux).",
)
@click.option(
    "--wan-mode",
    type=click.Choice(["namespaces", "proxy"]),
    help="Network namespaces (the default), or a proxy between the sites, without root.",
)
@click.option(
    "--cloud-broker",
    type=click.Choice([MOSQUITTO, KAFKA]),
    default=MOSQUITTO,
    show_default=True,
    help="The kind of the clouds' brokers: Mosquitto or Kafka (`make kafka` downloads it).",
)
@click.option(
    "--tls",
    is_flag=True,
    help="Encrypt every leg and ask for client certificates, with the authority of `speck ca`"
    " (made if there is none).",
)
@click.option(
    "--programs",
    is_flag=True,
    help="Run jobs that are programs, too (`engine: process`): a runner beside each agent.",
)
@click.option(
    "--cloud-engine",
    type=click.Choice([DEFAULT_ENGINE, SPARK]),
    default=DEFAULT_ENGINE,
    show_default=True,
    help="With spark the clouds run jobs in PySpark, too, beside Flink (1 to 2 GB for each job).",
)
@click.option(
    "--restart/--no-restart",
    default=True,
    help="Whether to restart an engine, broker or agent 2 s after it dies.",
)
@click.option(
    "--register/--no-register", default=True, help="Whether to register the sites with the service."
)
@folder_option
@add_service_options
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
    cloud_broker: str,
    tls: bool,
    programs: bool,
    cloud_engine: str,
    restart: bool,
    register: bool,
    folder: Path | None,
) -> None:
    """Bring up sites edge-a, edge-b, ... and cloud, and register them.

    They continue to run after this command; `speck fog down` ends them.
    """
    import time

    from speck.cli.bars import count_bar
    from speck.cli.messages import say
    from speck.cli.offline import config_at
    from speck.fog.sites import Fog
    from speck.fog.wan import load_wan

    local_fog = Fog(folder, lock_timeout_s=_LOCK_TIMEOUT_S)
    is_new = not local_fog.sites()
    started = time.monotonic()
    ready: list[str] = []
    with count_bar("bringing up sites", edges + clouds) as done:

        def progress(name: str) -> None:
            ready.append(name)
            done(len(ready))

        local_fog.up(
            edges,
            slots,
            cloud_slots,
            clouds,
            runtime,
            shared_state=shared_state,
            speeds=_speeds(speeds),
            wan=load_wan(wan_file) if wan_file is not None else None,
            wan_mode=wan_mode,
            authority=config_at(None).home / "ca" if tls else None,
            cloud_broker=cloud_broker,
            programs=programs,
            spark=cloud_engine == SPARK,
            restart=restart,
            progress=progress,
        )
    local_fog.write_credentials(config_at(None).credentials)
    say(f"{edges + clouds} sites are up after {time.monotonic() - started:.1f} s")
    _show(local_fog)
    if register:
        _register(local_fog, must=False, is_new=is_new)
    else:
        local_fog.start_agents(client().server)


@fog.command()
@folder_option
@add_connection_options
def register(folder: Path | None) -> None:
    """Register the fog's sites with the service."""
    from speck.errors import NotFoundError
    from speck.fog.sites import Fog

    local_fog = Fog(folder)
    if not local_fog.sites():
        raise NotFoundError(f"cannot find a fog in {local_fog.folder}: bring one up (speck fog up)")
    _register(local_fog, must=True, is_new=False)


@fog.command()
@folder_option
@add_output_option
def status(folder: Path | None) -> None:
    """Show the fog's sites, their processes and memory."""
    from speck.fog.sites import Fog

    _show(Fog(folder))


@fog.command()
@click.option("--keep", is_flag=True, help="Keep the files: queues, checkpoints, logs.")
@folder_option
@add_yes_option
@add_connection_options
def down(keep: bool, folder: Path | None, yes: bool) -> None:
    """End every process of the fog and delete its files; works after a crash, too.

    Asks for confirmation when jobs are deployed on the fog: without --keep their state is lost.
    """
    from speck.cli.messages import ask, say
    from speck.fog.sites import Fog

    local_fog = Fog(folder, lock_timeout_s=_LOCK_TIMEOUT_S)
    if not keep and (deployments := _describe_deployments(local_fog)):
        ask(
            f"{deployments} run on this fog; their queued messages and checkpoints will be deleted"
            " (`speck destroy` removes a composition, --keep keeps the files). Continue?",
            yes,
        )
    ended = local_fog.down(keep=keep)
    say(f"{ended} processes ended")


_WHAT = click.Choice(["engine", "broker", "agent", "runner"])


@fog.command()
@click.argument("site")
@click.argument("what", type=_WHAT, default="engine", required=False)
@folder_option
def kill(site: str, what: str, folder: Path | None) -> None:
    """Kill the engine, broker, agent or runner of SITE (SIGKILL), as a crash would.

    A supervised fog restarts it after 2 s.
    """
    from speck.cli.messages import say
    from speck.fog.sites import Fog

    local_fog = Fog(folder, lock_timeout_s=_LOCK_TIMEOUT_S)
    local_fog.kill(site, what)
    then = (
        "it will be restarted in 2 s"
        if local_fog.supervised
        else f"restart it with `speck fog restart {site}`"
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


def _describe_deployments(local_fog: Fog) -> str:
    """The compositions and jobs that are deployed on the fog's sites, as text; empty when there
    are none, or when no service answers."""
    from speck.cli.messages import warn
    from speck.client import NoServerError
    from speck.errors import SpeckError

    engines = {site.engine_address.rstrip("/") for site in local_fog.sites()}
    if not engines:
        return ""
    service = client()
    try:
        names = {
            site["name"]
            for site in service.sites()
            if (site["spe"].get("address") or "").rstrip("/") in engines
        }
        jobs = [job for job in service.jobs() if job["site"] in names]
    except NoServerError:
        return ""
    except SpeckError as error:
        warn(f"cannot find out whether jobs are deployed on this fog: {error}")
        return ""
    if not jobs:
        return ""
    compositions = sorted({job["composition"] for job in jobs if job["composition"]})
    count = f"{len(jobs)} job{'' if len(jobs) == 1 else 's'}"
    return f"{count} of {', '.join(compositions)}" if compositions else count


def _speeds(options: tuple[str, ...]) -> dict[str, float]:
    """Parse `edge-a=0.25` to {"edge-a": 0.25}."""
    speeds = {}
    for text in options:
        site, _, cores = text.partition("=")
        try:
            speeds[site] = float(cores)
        except ValueError:
            raise click.UsageError(
                f"cannot use --speed {text}: write SITE=CORES, e.g. edge-a=0.25"
            ) from None
    return speeds


def _register(local_fog: Fog, *, must: bool, is_new: bool) -> None:
    """Register the sites, or change those of an earlier fog; without a service, print how to do
    it later. Of the brokers and folders of a fog before a new one nothing is left."""
    from speck.cli.messages import say
    from speck.client import NoServerError

    service = client()
    try:
        service.put_sites(local_fog.site_bodies(), new_broker=is_new, new_agent=is_new)
        local_fog.start_agents(service.server, _site_token(service))
    except NoServerError as error:
        if must:
            raise
        local_fog.start_agents(service.server)
        say(f"{error}; then register the sites with `speck fog register`")
        return
    say(f"{len(local_fog.sites())} sites are registered with {service.server}")


def _site_token(service: Client) -> Callable[[str], str] | None:
    """A function that creates the token of a site's agent; None if the service needs no tokens."""
    if not service.tokens():
        return None

    def make(site: str) -> str:
        name = f"agent-{site}"
        if any(token["name"] == name for token in service.tokens()):
            service.remove_token(name)
        return str(service.add_token(name, "site", site)["token"])

    return make


_RESTARTED = "dead processes are restarted after 2 s"
_NOT_RESTARTED = "dead processes stay down (`speck fog up` without --no-restart restarts them)"


def _show(local_fog: Fog) -> None:
    from speck.cli.output import Grid

    sites, links = local_fog.status(), local_fog.links()
    total = sum(site.rss_mb for site in sites)
    limited = any(site.speed is not None for site in sites)
    headings = (
        *("name", "tier", "state", "free", "slots", "memory MB"),
        *(["max cores"] if limited else []),
        *("engine", "broker", "pids"),
    )
    supervision = {"supervised": local_fog.supervised}
    data = {
        "folder": str(local_fog.folder),
        **supervision,
        "sites": list(map(_data, sites)),
        "rss_mb": round(total, 1),
    }
    output().show(
        {**data, **({"links": fog_links.links_data(links)} if links else {})},
        Grid(headings, [_row(site, limited=limited) for site in sites], None, "the fog is down"),
        *([fog_links.links_grid(links)] if links else []),
        *([f"total memory: {total:.0f} MB"] if sites else []),
        *([_RESTARTED if local_fog.supervised else _NOT_RESTARTED] if sites else []),
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
