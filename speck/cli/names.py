"""Checks names that the user gives; an unknown one is refused with a suggestion."""

from __future__ import annotations

from speck.client import Client
from speck.errors import NotFoundError, suggest


def check_known(
    client: Client,
    *,
    composition: str | None = None,
    site: str | None = None,
    job: str | None = None,
) -> None:
    """Raises NotFoundError for a name that the service does not know; None is ignored."""
    if composition is not None:
        _check("composition", composition, [item["name"] for item in client.compositions()])
    if site is not None:
        _check("site", site, [item["name"] for item in client.sites()])
    if job is not None:
        _check("job", job, [item["job_name"] for item in client.jobs()])


def _check(noun: str, name: str, known: list[str]) -> None:
    if name not in known:
        raise NotFoundError(f"cannot find {noun} {name!r}; {suggest(name, known)}")
