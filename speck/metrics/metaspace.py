"""Reports engines whose metaspace fills up, and those that have ended of it.

A JVM without metaspace cannot load the classes of a job any more and ends, with all its jobs. No
engine reports that it did: it is concluded if the metaspace was nearly full and is suddenly empty.
"""

from __future__ import annotations

import threading
from collections.abc import Collection

from speck.model.measurement import EngineMeasures
from speck.store.records import Records

FULL = 0.8
"""From this share on an engine is reported."""

CALM = 0.7
"""Below this share it may be reported again."""

RESTARTED = 0.5
"""A fall to less than this part of what was in use is a new process: classes are unloaded in small
numbers."""


class MetaspaceWatch:
    """Writes an event when the metaspace of a site's engine passes `FULL`, and when the engine has
    been restarted after that. Thread-safe."""

    def __init__(self, records: Records):
        self._records = records
        self._lock = threading.Lock()
        self._last: dict[str, int] = {}
        self._warned: set[str] = set()

    def record(self, site: str, measures: EngineMeasures) -> None:
        """Take the measures of a poll; those without a share change nothing."""
        share, used = measures.metaspace_share, measures.metaspace_used_bytes
        if share is None or used is None or measures.metaspace_max_bytes is None:
            return
        limit_mb = measures.metaspace_max_bytes >> 20
        with self._lock:
            before, self._last[site] = self._last.get(site, 0), used
            was_full = site in self._warned
            if share < CALM:
                self._warned.discard(site)
            elif share >= FULL:
                self._warned.add(site)
        if was_full and used < RESTARTED * before:
            self._report(
                site,
                f"the engine of {site} was restarted: its JVM ran out of metaspace, as far as can"
                f" be seen ({before >> 20} of {limit_mb} MiB were in use before); use thin jars, or"
                " give it more",
            )
        elif share >= FULL and not was_full:
            self._report(
                site,
                f"the metaspace of the engine of {site} is {share:.0%} full (of {limit_mb} MiB):"
                " it ends with all its jobs when no class fits in any more; restart it, use thin"
                " jars, or give it more (speck site check)",
            )

    def keep_only(self, sites: Collection[str]) -> None:
        """Forget the other sites."""
        with self._lock:
            self._warned &= set(sites)
            for site in self._last.keys() - set(sites):
                del self._last[site]

    def _report(self, site: str, message: str) -> None:
        self._records.write(self._records.events.make("site", message, site=site))
