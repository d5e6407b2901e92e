"""The findings of the watch as plain data, for the views that show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speck.model.incarnation import Incarnation
from speck.monitor.health import Health, Key


@dataclass(frozen=True, slots=True)
class JobHealth:
    """The health of an incarnation, and the reason."""

    engine_job_id: str
    health: Health
    reason: str | None


class HealthBoard:
    """The newest findings: the watch replaces them as a whole, any thread reads them."""

    def __init__(self) -> None:
        self._jobs: Mapping[Key, JobHealth] = {}
        self._messages_lost: Mapping[str, int] = {}
        self._sessions_lost: Mapping[str, int] = {}

    def publish(
        self,
        jobs: Mapping[Key, JobHealth],
        messages_lost: Mapping[str, int],
        sessions_lost: Mapping[str, int],
    ) -> None:
        """Replace the findings: jobs by (scope, name), messages lost at brokers by site, and how
        many sessions brokers have lost, by the name of their job."""
        self._jobs, self._messages_lost = jobs, messages_lost
        self._sessions_lost = sessions_lost

    def job(self, scope: str, incarnation: Incarnation) -> JobHealth | None:
        """The health of an incarnation; None if unknown."""
        health = self._jobs.get((scope, incarnation.job.job_name))
        if health is None or health.engine_job_id != incarnation.engine_job_id:
            return None
        return health

    def is_stuck(self, scope: str, incarnation: Incarnation) -> bool:
        """Whether an incarnation takes nothing: it is stalled, or its engine keeps restarting
        it."""
        job = self.job(scope, incarnation)
        return job is not None and job.health in (Health.STALLED, Health.RESTARTING)

    def messages_lost(self, site: str) -> int:
        """Messages lost at the site's broker since the service started, as far as is known."""
        return self._messages_lost.get(site, 0)

    def sessions_lost(self, job_name: str) -> int:
        """How many sessions of a job brokers have lost since the service started."""
        return self._sessions_lost.get(job_name, 0)

    def count_stalled(self) -> int:
        """How many jobs are stalled."""
        return sum(job.health is Health.STALLED for job in self._jobs.values())
