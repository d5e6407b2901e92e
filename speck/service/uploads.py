"""The artifacts that engines keep: what nothing names any more is deleted there, too."""

from __future__ import annotations

import logging
from concurrent.futures import ThreadPoolExecutor

from speck.errors import SpeckError
from speck.model.values import SPECK, JsonObject
from speck.sites.connections import Connections
from speck.store.artifacts import Artifacts
from speck.store.records import Records

LOG = logging.getLogger(__name__)

_AT_ONCE = 8


class Uploads:
    """Deletes artifacts at the engines of all sites by the rules of the service's own folder.

    An engine may serve another installation of speck, which uploads again what it misses.
    """

    def __init__(self, records: Records, connections: Connections, artifacts: Artifacts):
        self._records = records
        self._connections = connections
        self._artifacts = artifacts

    def collect(self, *, dry_run: bool = False, by: str = SPECK) -> list[JsonObject]:
        """Delete at each site what nothing names and what came longer ago than the grace period;
        returns `{site, sha256s, error}`: `error` says why a site was left as it is. Sites without
        anything to delete are left out. A restored service deletes nothing."""
        if self._records.restored is not None:
            return []
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="uploads") as pool:
            sites = list(
                pool.map(lambda site: self._collect(site, dry_run), sorted(self._records.sites()))
            )
        collected = [site for site in sites if site["sha256s"] or site["error"]]
        deleted = [site for site in collected if site["sha256s"]]
        if deleted and not dry_run:
            self._report(deleted, by)
        return collected

    def _collect(self, site: str, dry_run: bool) -> JsonObject:
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
        return {"site": site, "sha256s": deleted, "error": error}

    def _report(self, sites: list[JsonObject], by: str) -> None:
        count = sum(len(site["sha256s"]) for site in sites)
        names = ", ".join(site["site"] for site in sites)
        message = f"{count} artifacts that nothing uses deleted at the engines of {names}"
        self._records.write(self._records.event("artifact", message, by=by))
