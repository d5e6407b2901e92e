"""Finds the jobs whose arguments name an address that their broker no longer has.

An incarnation gets the addresses of its brokers when it is started. When a site's broker has
another one, the jobs at its links are started anew, with their state and under the same ids.
"""

from __future__ import annotations

from collections.abc import Iterable

from speck.monitor.health import Watched
from speck.store.records import Records

_AGAIN_S = 30.0
"""So long after a job was to be restarted, it is to be restarted again if it was not."""


class MovedBrokers:
    """Remembers when jobs were to be restarted: a plan that cannot be made now is not tried again
    with every poll."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._begun: dict[str, float] = {}

    def find(self, now: float, jobs: Iterable[Watched]) -> dict[str, frozenset[str]]:
        """Scope -> names of the jobs to restart now."""
        sites = self._records.sites.all()
        moved: dict[str, set[str]] = {}
        for job in jobs:
            incarnation = self._records.incarnations.get(job.scope, job.job_name)
            if job.busy or not job.may_restart or incarnation is None:
                continue
            if incarnation.job.at_addresses_of(sites) is not incarnation.job:
                moved.setdefault(job.scope, set()).add(job.job_name)
        self._begun = {scope: at for scope, at in self._begun.items() if scope in moved}
        due = {
            scope: frozenset(names)
            for scope, names in moved.items()
            if now - self._begun.get(scope, float("-inf")) >= _AGAIN_S
        }
        self._begun |= dict.fromkeys(due, now)
        return due
