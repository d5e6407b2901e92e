"""`speck jobs` and `speck job`"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from speck.cli.options import (
    add_fresh_option,
    add_service_options,
    client,
    names_of,
    output,
)
from speck.cli.subjects import add_name
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from speck.client import Client

_ENGINES = (
    "job_name",
    "composition",
    "revision",
    "site",
    "state",
    "polled_at",
    "engine_job_id",
    "attempt",
)


@click.command()
@click.option("--site", shell_complete=names_of("sites"), help="Only jobs of this site.")
@click.option("--state", help="Only jobs in this state; failed: those that keep failing, too.")
@add_fresh_option
@add_service_options
def jobs(site: str | None, state: str | None, fresh: bool) -> None:
    """List jobs."""
    from speck.cli import tables
    from speck.cli.names import check_known

    service = client()
    records = service.jobs(site=site, state=state, fresh=fresh)
    if not records:
        check_known(service, site=site)
    output().show({"jobs": records}, tables.jobs(records))


@click.command()
@add_name("job")
@add_fresh_option
@add_service_options
def job(name: str, fresh: bool) -> None:
    """Show a job and its exceptions.

    Prints where it runs, its description, and the exceptions that its engine reports.
    """
    from speck.cli.output import fields

    service = client()
    record = service.job(name, fresh=fresh)
    exceptions = _exceptions(service, name)
    description = {k: v for k, v in record.items() if k not in (*_ENGINES, "error")}
    output().show(
        {**record, "exceptions": exceptions},
        fields(
            [
                *((key, record[key]) for key in (*_ENGINES, "error")),
                *((key, _format_value(value)) for key, value in description.items()),
            ]
        ),
        *_render_exceptions(exceptions),
    )


def _exceptions(service: Client, name: str) -> list[JsonObject]:
    """The exceptions that the engine reports; none, with a warning, when it cannot be reached."""
    from speck.cli.messages import warn
    from speck.client import ClientError

    try:
        return service.exceptions(name)
    except ClientError as error:
        if error.status != 409:  # 409: the job never ran
            warn(str(error))
        return []


def _format_value(value: object) -> object:
    return " ".join(map(str, value)) if isinstance(value, list) else value


def _render_exceptions(exceptions: list[JsonObject]) -> list[str]:
    """Render each failure once, newest first: how often, when and where, with its trace."""
    from speck.cli.messages import clean
    from speck.cli.output import moment

    groups: dict[tuple[str, str], list[JsonObject]] = {}
    for one in exceptions:
        groups.setdefault((one["name"], one["trace"]), []).append(one)
    blocks = []
    for (name, trace), group in groups.items():
        times = f"{len(group)} times, last " if len(group) > 1 else ""
        where = f" in {group[0]['task']}" if group[0]["task"] else ""
        head = f"  {times}{moment(group[0]['at'])}{where}: {name}"
        blocks.append("\n".join([clean(head), *(f"    {clean(x)}" for x in trace.splitlines())]))
    return ["\nexceptions, newest first", *blocks] if blocks else []
