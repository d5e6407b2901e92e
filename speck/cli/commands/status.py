"""`speck status`"""

from __future__ import annotations

from collections import Counter

import click

from speck.cli.options import client, connected, formatted, names_of, output
from speck.model.values import JsonObject


@click.command()
@click.argument("composition", required=False, shell_complete=names_of("compositions"))
@connected
@formatted
def status(composition: str | None) -> None:
    """Show sites, compositions and jobs.

    With COMPOSITION: that one, its jobs and their sites.
    """
    from speck.cli import tables

    service = client()
    if composition is None:
        heads, jobs = service.compositions(), service.jobs()
    else:
        found = service.composition(composition)
        jobs = found["jobs"]
        heads = [
            {
                "name": composition,
                "revision": found["desired"]["revision"],
                "deployed_revision": found["deployed"]["revision"],
                "jobs": len(found["desired"]["jobs"]),
            }
        ]
    sites = service.sites()
    if composition is not None:
        used = {job["site"] for job in jobs}
        sites = [site for site in sites if site["name"] in used]
    output().show(
        {"sites": sites, "compositions": heads, "jobs": jobs},
        tables.sites(sites, title="Sites"),
        "",
        tables.compositions(heads, _states(jobs)),
        "",
        tables.jobs(jobs, title="Jobs"),
    )


def _states(jobs: list[JsonObject]) -> dict[str, Counter[str]]:
    """Composition -> how many of its jobs are in each state."""
    counts: dict[str, Counter[str]] = {}
    for job in jobs:
        counts.setdefault(job["composition"] or "", Counter())[job["state"]] += 1
    return counts
