"""Checkpoints on request while what has just started fills its links.

Under `exactly_once` a job publishes what it has taken once a checkpoint is complete. A chain of n
jobs that begin together is silent for up to n checkpoint intervals, long after all of them run.
Checkpoints that follow one another during the first seconds make that n times what one takes.
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
"""Jobs of a site, and sites, beyond which no more are hastened: they would slow down the rest."""
PERIOD_S = 0.1


@dataclass(slots=True)
class _Started:
    """An incarnation until `until` (monotonic). `completed` is the checkpoint that was complete
    when one was asked for last; None: none was asked for yet."""

    until: float
    completed: int | None = None


class Refills:
    """Asks jobs for checkpoints, one after another, for `lasts_s` seconds after their start.

    Best effort: what an engine refuses is not asked for again, as its own checkpoints come, too.
    Each site has a thread while there is something to ask for.
    """

    def __init__(self, connections: Connections, clock: Clock, lasts_s: float) -> None:
        self._connections = connections
        self._clock = clock
        self._lasts_s = lasts_s
        self._lock = threading.Lock()
        self._sites: dict[str, dict[str, _Started]] = {}
        self._closed = threading.Event()

    def begin(self, deployed: Incarnation) -> None:
        """Begin with an incarnation that runs now, if it publishes at checkpoints."""
        job, site = deployed.job, deployed.job.site
        if job.delivery is not Delivery.EXACTLY_ONCE or not self._lasts_s:
            return
        started = _Started(self._clock.monotonic() + self._lasts_s)
        with self._lock:
            if site in self._sites:
                if len(self._sites[site]) < AT_ONCE:
                    self._sites[site][deployed.engine_job_id] = started
                return
            if len(self._sites) >= AT_ONCE:
                return
            self._sites[site] = {deployed.engine_job_id: started}
        name = f"refill-{site}"
        threading.Thread(target=self._work, args=(site,), name=name, daemon=True).start()

    def close(self) -> None:
        """Ask for no more."""
        self._closed.set()

    def _work(self, site: str) -> None:
        try:
            while jobs := self._left(site):
                for job_id, started in jobs.items():
                    try:
                        self._ask(site, job_id, started)
                    except SpeckError:
                        started.until = 0.0
                if self._closed.wait(PERIOD_S):
                    return
        except BaseException:
            with self._lock:
                self._sites.pop(site, None)  # or the site would be left out for good
            raise

    def _left(self, site: str) -> dict[str, _Started]:
        now = self._clock.monotonic()
        with self._lock:
            jobs = {key: job for key, job in self._sites[site].items() if job.until > now}
            self._sites[site] = jobs
            if not jobs:
                del self._sites[site]
            return dict(jobs)

    def _ask(self, site: str, job_id: str, started: _Started) -> None:
        """Ask for the next checkpoint once the last one is complete."""
        engine = self._connections.engine(site)
        found = engine.checkpointing(job_id)
        if found is None:
            started.until = 0.0
            return
        completed = found.completed_id or 0
        if started.completed != completed:
            started.completed = completed
            engine.checkpoint(job_id)
