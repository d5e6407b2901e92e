"""Triggers extra checkpoints of jobs that have just started.

Under `exactly_once` a job publishes its results when a checkpoint completes. A chain of n jobs that
start together is silent for up to n checkpoint intervals. Checkpoints in quick succession during
the first seconds reduce that to n times the duration of one checkpoint.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass

from speck.clock import Clock
from speck.errors import SpeckError
from speck.model.incarnation import Incarnation
from speck.model.job import Delivery
from speck.sites.connections import Connections

AT_ONCE = 8
"""Limit of jobs for each site, and of sites: more extra checkpoints would slow down the rest."""
PERIOD_S = 0.1


@dataclass(slots=True)
class _RecentStart:
    """Extra checkpoints of an incarnation until `until` (monotonic). `checkpoint_id` is the newest
    complete checkpoint when the last one was triggered; None before the first."""

    until: float
    checkpoint_id: int | None = None


class Refills:
    """Triggers checkpoints of jobs, one after another, for `lasts_s` seconds after their start.

    Best effort: a refused request is not repeated, since the engine takes its own checkpoints, too.
    Each site has a thread while one of its jobs needs checkpoints.
    """

    def __init__(self, connections: Connections, clock: Clock, lasts_s: float) -> None:
        self._connections = connections
        self._clock = clock
        self._lasts_s = lasts_s
        self._lock = threading.Lock()
        self._sites: dict[str, dict[str, _RecentStart]] = {}
        self._closed = threading.Event()

    def begin(self, incarnation: Incarnation) -> None:
        """Begin with an incarnation that runs now, if it publishes at checkpoints."""
        job, site = incarnation.job, incarnation.job.site
        if job.delivery is not Delivery.EXACTLY_ONCE or not self._lasts_s:
            return
        recent_start = _RecentStart(self._clock.monotonic() + self._lasts_s)
        with self._lock:
            if site in self._sites:
                if len(self._sites[site]) < AT_ONCE:
                    self._sites[site][incarnation.engine_job_id] = recent_start
                return
            if len(self._sites) >= AT_ONCE:
                return
            self._sites[site] = {incarnation.engine_job_id: recent_start}
        name = f"refill-{site}"
        threading.Thread(target=self._work, args=(site,), name=name, daemon=True).start()

    def close(self) -> None:
        """Trigger no more checkpoints."""
        self._closed.set()

    def _work(self, site: str) -> None:
        try:
            while jobs := self._list_pending(site):
                for job_id, recent_start in jobs.items():
                    try:
                        self._ask(site, job_id, recent_start)
                    except SpeckError:
                        recent_start.until = 0.0
                if self._closed.wait(PERIOD_S):
                    return
        except BaseException:
            with self._lock:
                self._sites.pop(site, None)  # otherwise the site would never get a thread again
            raise

    def _list_pending(self, site: str) -> dict[str, _RecentStart]:
        now = self._clock.monotonic()
        with self._lock:
            jobs = {key: job for key, job in self._sites[site].items() if job.until > now}
            self._sites[site] = jobs
            if not jobs:
                del self._sites[site]
            return dict(jobs)

    def _ask(self, site: str, job_id: str, recent_start: _RecentStart) -> None:
        """Trigger the next checkpoint if the last one is complete."""
        engine = self._connections.engine(site)
        checkpointing = engine.checkpointing(job_id)
        if checkpointing is None:
            recent_start.until = 0.0
            return
        newest_id = checkpointing.completed_id or 0
        if recent_start.checkpoint_id != newest_id:
            recent_start.checkpoint_id = newest_id
            engine.checkpoint(job_id)
