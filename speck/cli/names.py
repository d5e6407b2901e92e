"""Names that a user gives: an unknown one is refused, with what may have been meant."""

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
    """Raises NotFoundError for a name that the service does not know; None is not looked at."""
    if composition is not None:
        _check("composition", composition, [found["name"] for found in client.compositions()])
    if site is not None:
        _check("site", site, [found["name"] for found in client.sites()])
    if job is not None:
        _check("job", job, [found["job_name"] for found in client.jobs()])


def _check(noun: str, name: str, known: list[str]) -> None:
    if name not in known:
        raise NotFoundError(f"cannot find {noun} {name!r}; {suggest(name, known)}")
