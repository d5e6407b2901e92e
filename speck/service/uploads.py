"""The artifacts that engines keep: what nothing names any more is deleted there, too."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated

from speck.errors import SpeckError
from speck.model.shown import Shown
from speck.model.values import SPECK
from speck.sites.connections import Connections
from speck.store.artifacts import Artifacts
from speck.store.records import Records

LOG = logging.getLogger(__name__)

_AT_ONCE = 8


@dataclass(frozen=True, slots=True)
class CollectedUploads:
    """The artifacts that were deleted at the engine of a site; `error` says why no more were."""

    site: str
    sha256s: tuple[str, ...]
    error: Annotated[str | None, Shown("why nothing more was deleted at this site")]


class Uploads:
    """Deletes artifacts at the engines of all sites by the rules of the service's own folder.

    An engine may serve another installation of speck, which uploads again what it misses.
    """

    def __init__(self, records: Records, connections: Connections, artifacts: Artifacts):
        self._records = records
        self._connections = connections
        self._artifacts = artifacts

    def collect(self, *, dry_run: bool = False, by: str = SPECK) -> list[CollectedUploads]:
        """Delete at each site what nothing names and what came longer ago than the grace period;
        returns what was deleted. Sites without anything to delete are left out. A restored service
        deletes nothing."""
        if self._records.restored is not None:
            return []
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="uploads") as pool:
            sites = list(
                pool.map(
                    lambda site: self._collect(site, dry_run), sorted(self._records.sites.all())
                )
            )
        collected = [site for site in sites if site.sha256s or site.error]
        deleted = [site for site in collected if site.sha256s]
        if deleted and not dry_run:
            self._report(deleted, by)
        return collected

    def _collect(self, site: str, dry_run: bool) -> CollectedUploads:
        deleted: list[str] = []
        error = None
        try:
            engine = self._connections.engine(site)
            sent_ms = {each.sha256: each.at_ms for each in engine.uploads()}
            for sha256 in self._artifacts.find_unneeded(sent_ms):
                if not dry_run:
                    engine.delete_upload(sha256)
                deleted.append(sha256)
        except SpeckError as reason:
            error = str(reason)
            LOG.info("cannot delete artifacts at %s: %s", site, error)
        return CollectedUploads(site, tuple(deleted), error)

    def _report(self, sites: list[CollectedUploads], by: str) -> None:
        count = sum(len(each.sha256s) for each in sites)
        names = ", ".join(each.site for each in sites)
        message = f"{count} artifacts that nothing uses deleted at the engines of {names}"
        self._records.write(self._records.events.make("artifact", message, by=by))
