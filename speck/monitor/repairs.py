"""Repairs jobs in the background: planning a repair observes every site of the scope."""

from __future__ import annotations

import logging
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Protocol

from speck.deploy.changes import Running
from speck.errors import SpeckError
from speck.model.composition import visible_name
from speck.store.desired_state import DesiredJobs
from speck.store.records import Records

LOG = logging.getLogger(__name__)

_AT_ONCE = 8


class Repairer(Protocol):
    """Restores the accepted desired state of scopes."""

    def repair(self, scope: str, leave: frozenset[str], /) -> Running | None:
        """The change that repairs all jobs of a scope except those in `leave`; None if there is
        nothing to do, or if another change is under way. Raises SpeckError."""


class Repairs:
    """The repairs requested by the watch; at most one at a time for each scope."""

    def __init__(self, records: Records, desired: DesiredJobs, repairer: Repairer):
        self._records = records
        self._desired_jobs = desired
        self._repairer = repairer
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="repair")
        self._under_way: dict[str, Future[None]] = {}
        self.count = 0
        """How many jobs were repaired."""

    def close(self) -> None:
        """Begin no further repair."""
        self._pool.shutdown(cancel_futures=True)

    @property
    def scopes(self) -> set[str]:
        """The scopes for which a repair is being planned."""
        return {scope for scope, future in self._under_way.items() if not future.done()}

    def begin(self, scope: str, names: frozenset[str]) -> None:
        """Repair these jobs of a scope, and no others."""
        all_names = (
            self._desired_jobs.jobs(scope).keys() | self._records.inventory(scope).jobs.keys()
        )
        leave = frozenset(all_names) - names
        self._under_way[scope] = self._pool.submit(self._repair, scope, names, leave)

    def _repair(self, scope: str, names: frozenset[str], leave: frozenset[str]) -> None:
        try:
            running = self._repairer.repair(scope, leave)
        except SpeckError as error:
            self._report_failure(scope, names, str(error))
        except Exception as error:
            LOG.exception("cannot repair %s", scope)
            self._report_failure(scope, names, repr(error))
        else:
            if running is not None:
                self.count += len(names)

    def _report_failure(self, scope: str, names: frozenset[str], why: str) -> None:
        composition = visible_name(scope)
        for name in sorted(names):
            message = f"cannot repair {name} now: {why}"
            event = self._records.events.make(
                "job", message, job_name=name, composition=composition
            )
            self._records.write(event)
