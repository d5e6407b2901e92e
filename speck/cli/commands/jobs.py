"""`speck jobs` and `speck job`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from speck.cli.options import client, connected, formatted, names_of, output
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from speck.client import Client

_ENGINES = ("job_name", "composition", "revision", "site", "state", "engine_job_id", "attempt")


@click.command()
@click.option("--site", shell_complete=names_of("sites"), help="Only jobs of this site.")
@click.option("--state", help="Only jobs in this state, e.g. running or failed.")
@connected
@formatted
def jobs(site: str | None, state: str | None) -> None:
    """List jobs."""
    from speck.cli import tables
    from speck.cli.names import check_known

    service = client()
    found = service.jobs(site=site, state=state)
    if not found:
        check_known(service, site=site)
    output().show({"jobs": found}, tables.jobs(found))


@click.command()
@click.argument("name", shell_complete=names_of("jobs"))
@connected
@formatted
def job(name: str) -> None:
    """Show a job and its exceptions.

    Where it is, how it was described, and what its engine complains of.
    """
    from speck.cli.output import fields

    service = client()
    found = service.job(name)
    exceptions = _exceptions(service, name)
    described = {k: v for k, v in found.items() if k not in (*_ENGINES, "error")}
    output().show(
        {**found, "exceptions": exceptions},
        fields(
            [
                *((key, found[key]) for key in (*_ENGINES, "error")),
                *((key, _shown(value)) for key, value in described.items()),
            ]
        ),
        *_told(exceptions),
    )


def _exceptions(service: Client, name: str) -> list[JsonObject]:
    """What the engine says; nothing when it cannot be asked (told on stderr)."""
    from speck.cli.messages import warn
    from speck.client import ClientError

    try:
        return service.exceptions(name)
    except ClientError as error:
        if error.status != 409:  # 409: it never ran, so there is nothing to ask
            warn(str(error))
        return []


def _shown(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _told(exceptions: list[JsonObject]) -> list[str]:
    """Each failure once, newest first: how often, when, where, and its trace."""
    from speck.cli.messages import clean
    from speck.cli.output import moment

    alike: dict[tuple[str, str], list[JsonObject]] = {}
    for one in exceptions:
        alike.setdefault((one["name"], one["trace"]), []).append(one)
    blocks = []
    for (name, trace), same in alike.items():
        times = f"{len(same)} times, last " if len(same) > 1 else ""
        where = f" in {same[0]['task']}" if same[0]["task"] else ""
        head = f"  {times}{moment(same[0]['at'])}{where}: {name}"
        blocks.append("\n".join([clean(head), *(f"    {clean(x)}" for x in trace.splitlines())]))
    return ["\nexceptions, newest first", *blocks] if blocks else []
