"""`speck status`"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from speck.cli.options import (
    add_fresh_option,
    add_service_options,
    client,
    output,
)
from speck.cli.subjects import add_composition
from speck.errors import PermanentError
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from speck.client import Client


@click.command()
@add_composition(required=False)
@add_fresh_option
@add_service_options
def status(composition: str | None, fresh: bool) -> None:
    """Show sites, compositions and jobs.

    With COMPOSITION, show only that one, its jobs and their sites.
    """
    from speck.cli import tables

    service = client()
    if composition is None:
        heads, jobs = service.compositions(), service.jobs(fresh=fresh)
    else:
        record = service.composition(composition, fresh=fresh)
        jobs = record["jobs"]
        heads = [
            {
                "name": composition,
                "revision": record["desired"]["revision"],
                "deployed_revision": record["deployed"]["revision"],
                "jobs": len(record["desired"]["jobs"]),
            }
        ]
    sites, restored = service.sites(fresh=fresh), _read_restored(service)
    if composition is not None:
        used = {job["site"] for job in jobs}
        sites = [site for site in sites if site["name"] in used]
    output().show(
        {"sites": sites, "compositions": heads, "jobs": jobs, **restored},
        *tables.restored(restored.get("restored")),
        tables.sites(sites, title="Sites"),
        "",
        tables.compositions(heads, _states(jobs)),
        "",
        tables.jobs(jobs, title="Jobs"),
    )


def _read_restored(service: Client) -> JsonObject:
    """`{restored: ...}` while the service has not adopted what runs since its backup, else {}. A
    limited token is not shown it."""
    if service.readiness() != "restored":
        return {}
    with suppress(PermanentError):
        return {"restored": service.restored()}
    return {}


def _states(jobs: list[JsonObject]) -> dict[str, Counter[str]]:
    """Count the jobs of each composition by state."""
    counts: dict[str, Counter[str]] = {}
    for job in jobs:
        counts.setdefault(job["composition"] or "", Counter())[job["state"]] += 1
    return counts
