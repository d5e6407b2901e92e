"""Asks engines why jobs have failed or are lost, beside the watch.

An engine that answers polls may still take long for this: how it ended stands in dozens of files.
The watch waits for all these answers together, and not for long; a late one comes with a later
round.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass

from speck.errors import SpeckError
from speck.monitor.health import Key, Watched
from speck.sites.connections import Connections
from speck.sites.engine_ends import EngineEnds

LOG = logging.getLogger(__name__)

WITHIN_S = 2.0
"""For so long a round of the watch waits for the causes, in real time."""
_THREADS = 8


@dataclass(frozen=True, slots=True)
class Cause:
    """The number of failures that the engine lists for an incarnation (it keeps a limited number),
    and the newest reason."""

    engine_job_id: str
    failures: int
    reason: str

    def __str__(self) -> str:
        if not self.loops:
            return self.reason
        return f"it fails again and again ({self.failures} failures are listed): {self.reason}"

    @property
    def loops(self) -> bool:
        return self.failures > 1


class FailureCauses:
    """Finds causes in threads of its own; of one job it looks for one at a time."""

    def __init__(self, connections: Connections):
        self._connections = connections
        self._pool = ThreadPoolExecutor(_THREADS, thread_name_prefix="causes")
        self._under_way: dict[Key, Future[Cause | None]] = {}

    def close(self) -> None:
        """Begin nothing more, and wait for nothing."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def ask(self, lost: Iterable[Watched], failed: Iterable[Watched]) -> set[Key]:
        """Begin to look for the causes of these jobs, except for those under way, and wait for them
        for a moment. Returns for which it has begun."""
        ends = EngineEnds(self._connections)
        finding = [(job, self._find_end) for job in lost]
        finding += [(job, self._find_failure) for job in failed]
        begun = {
            job.key: self._pool.submit(find, job, ends)
            for job, find in finding
            if job.key not in self._under_way
        }
        self._under_way |= begun
        wait(begun.values(), WITHIN_S)
        return set(begun)

    def take(self) -> dict[Key, Cause]:
        """The causes that have been found since the last call."""
        causes: dict[Key, Cause] = {}
        for key, future in list(self._under_way.items()):
            if future.done():
                del self._under_way[key]
                cause = _find_result(key, future)
                if cause is not None:
                    causes[key] = cause
        return causes

    def _find_end(self, job: Watched, ends: EngineEnds) -> Cause | None:
        """Why the engine has forgotten a job: how its process ended."""
        reason = ends.explain(job.engine)
        return Cause(job.engine_job_id, 1, reason) if reason is not None else None

    def _find_failure(self, job: Watched, ends: EngineEnds) -> Cause | None:
        try:
            failures = self._connections.engine_of(job.engine).exceptions(job.engine_job_id)
        except SpeckError as error:
            LOG.info("cannot read the exceptions of %s: %s", job.job_name, error)
            return None
        if not failures:
            return None
        reason = failures[0].reason or failures[0].name
        if failures[0].transient and (end := ends.explain(job.engine, failures[0].at_ms)):
            reason = f"{reason}; {end}"
        return Cause(job.engine_job_id, len(failures), reason)


def _find_result(key: Key, future: Future[Cause | None]) -> Cause | None:
    """What has been found. A fault of a binder is logged: the watch reports the failure all the
    same, and those of other jobs."""
    try:
        return None if future.cancelled() else future.result()
    except Exception:
        LOG.exception("cannot find out why %s failed", key)
        return None
