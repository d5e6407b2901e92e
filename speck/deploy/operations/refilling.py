"""Triggers extra checkpoints of jobs around a change.

Under `exactly_once` a job publishes its results when a checkpoint completes. A chain of n jobs that
start together is silent for up to n checkpoint intervals, and a job that moves falls silent with up
to an interval of unpublished results at each of its neighbours. Checkpoints in quick succession
reduce that to n times the duration of one checkpoint.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial

from speck.clock import Clock
from speck.deploy.scheduler import THREADS, Scheduler
from speck.errors import SpeckError
from speck.model.engines import EngineAt
from speck.model.incarnation import Incarnation
from speck.model.job import Delivery, Job
from speck.model.link import Link
from speck.sites.connections import Connections

AT_ONCE = 8
"""Limit of jobs for each site, and of sites: more extra checkpoints would slow down the rest."""
NEIGHBOURS = 8
"""Limit of jobs that are asked because they are near a job that changes."""
PERIOD_S = 0.2


def publishes_at_checkpoints(job: Job) -> bool:
    """Whether results wait for a checkpoint."""
    return job.delivery is Delivery.EXACTLY_ONCE


def find_neighbours(changed: Iterable[str], running: Iterable[Incarnation]) -> list[Incarnation]:
    """The jobs named in `changed`, and those whose results pass through them or come from them,
    the nearest first, at most `NEIGHBOURS`. `changed` are names of jobs."""
    incarnations = list(running)
    on: defaultdict[Link, list[Incarnation]] = defaultdict(list)
    for each in incarnations:
        on[each.job.source].append(each)
        for link in each.job.port:
            on[link].append(each)
    names = set(changed)
    nearest = [each for each in incarnations if each.job.job_name in names]
    seen = {each.job.job_name for each in nearest}
    for each in nearest:  # grows: breadth first
        for near in (near for link in (each.job.source, *each.job.port) for near in on[link]):
            if near.job.job_name not in seen:
                seen.add(near.job.job_name)
                nearest.append(near)
    return nearest[:NEIGHBOURS]


@dataclass(slots=True)
class _Request:
    """Extra checkpoints of an incarnation until `until` (monotonic). `trigger_id` is that of the
    last one; None before the first."""

    until: float
    trigger_id: str | None = None


class Refills:
    """Triggers checkpoints of jobs, one after another, for `lasts_s` seconds.

    Best effort: a refused request is not repeated, since the engine takes its own checkpoints, too.
    Each engine has a thread while one of its jobs needs checkpoints.
    """

    def __init__(
        self,
        connections: Connections,
        clock: Clock,
        lasts_s: float,
        scheduler: Scheduler = THREADS,
    ) -> None:
        self._connections = connections
        self._clock = clock
        self._lasts_s = lasts_s
        self._scheduler = scheduler
        self._lock = scheduler.lock()
        self._engines: dict[EngineAt, dict[str, _Request]] = {}
        self._closed = scheduler.event()

    def begin(self, incarnation: Incarnation) -> None:
        """Begin with an incarnation that runs now, if it publishes at checkpoints."""
        engine = incarnation.job.engine
        if not publishes_at_checkpoints(incarnation.job) or not self._lasts_s:
            return
        request = _Request(self._clock.monotonic() + self._lasts_s)
        with self._lock:
            if engine in self._engines:
                if len(self._engines[engine]) < AT_ONCE:
                    self._engines[engine][incarnation.engine_job_id] = request
                return
            if len(self._engines) >= AT_ONCE:
                return
            requests = self._engines[engine] = {incarnation.engine_job_id: request}
        self._scheduler.start(partial(self._work, engine, requests), name=f"refill-{engine.site}")

    def end(self, incarnation: Incarnation) -> None:
        """End with an incarnation that is about to stop: its savepoint publishes everything."""
        with self._lock:
            self._engines.get(incarnation.job.engine, {}).pop(incarnation.engine_job_id, None)

    def close(self) -> None:
        """Trigger no more checkpoints."""
        self._closed.set()

    def _work(self, engine: EngineAt, requests: dict[str, _Request]) -> None:
        """Carry out these requests, and those that are added to them, until there are none."""
        try:
            while jobs := self._list_pending(engine, requests):
                for job_id, request in jobs.items():
                    if not self._is_pending(engine, job_id):
                        continue
                    try:
                        self._ask(engine, job_id, request)
                    except SpeckError:
                        request.until = 0.0
                if self._closed.wait(PERIOD_S):
                    return
        except BaseException:
            with self._lock:
                self._leave(engine, requests)  # else it would never get a thread again
            raise

    def _list_pending(self, engine: EngineAt, requests: dict[str, _Request]) -> dict[str, _Request]:
        now = self._clock.monotonic()
        with self._lock:
            for job_id in [key for key, request in requests.items() if request.until <= now]:
                del requests[job_id]
            if not requests:
                self._leave(engine, requests)
            return dict(requests)

    def _leave(self, engine: EngineAt, requests: dict[str, _Request]) -> None:
        """Nobody carries these requests out any more. The engine may have others by now, with a
        thread of their own: one that fails after it has left must not take theirs away."""
        if self._engines.get(engine) is requests:
            del self._engines[engine]

    def _is_pending(self, engine: EngineAt, job_id: str) -> bool:
        """Whether a job has not been ended since the list was made."""
        with self._lock:
            return job_id in self._engines.get(engine, {})

    def _ask(self, engine: EngineAt, job_id: str, request: _Request) -> None:
        """Trigger the next checkpoint if the last one is complete."""
        asked = self._connections.engine_of(engine)
        if request.trigger_id is not None:
            progress = asked.checkpoint_progress(job_id, request.trigger_id)
            if not progress.done:
                return
            if progress.failure is not None:  # it is stopping, or gone
                request.until = 0.0
                return
        request.trigger_id = self._clock.new_id()
        asked.checkpoint(job_id, request.trigger_id)
