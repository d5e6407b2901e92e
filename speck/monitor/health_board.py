"""The findings of the watch as plain data, for the views that show them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from speck.model.incarnation import Incarnation
from speck.monitor.health import Health, Key


@dataclass(frozen=True, slots=True)
class JobHealth:
    """The health of an incarnation, the reason, and how often it has failed if it is in a crash
    loop."""

    engine_job_id: str
    health: Health
    reason: str | None
    failures: int = 0

    def explain(self, problem: str, *, stalls: bool) -> JobHealth:
        """With a problem of its links as the reason; `stalls`: a job that seems to run does not."""
        stalled = stalls and self.health is Health.RUNNING
        health = Health.STALLED if stalled else self.health
        reason = f"{self.reason}: {problem}" if self.reason else problem
        return replace(self, health=health, reason=reason)


@dataclass(frozen=True, slots=True)
class Losses:
    """What a job has lost since the service started, as its settings allow: records left out since
    no broker would take them, other records lost, and sessions."""

    records_left_out: int = 0
    records_lost: int = 0
    sessions_lost: int = 0


class HealthBoard:
    """The newest findings: the watch replaces them as a whole, any thread reads them."""

    def __init__(self) -> None:
        self._jobs: Mapping[Key, JobHealth] = {}
        self._messages_lost: Mapping[str, int] = {}
        self._losses: Mapping[str, Losses] = {}
        self._problems: Mapping[Key, str] = {}

    def publish(
        self,
        jobs: Mapping[Key, JobHealth],
        messages_lost: Mapping[str, int],
        losses: Mapping[str, Losses],
        problems: Mapping[Key, str],
    ) -> None:
        """Replace the findings: jobs by (scope, name), messages lost at brokers by site, losses
        by the name of their job, and why jobs cannot read or write their links."""
        self._jobs, self._messages_lost = jobs, messages_lost
        self._losses, self._problems = losses, problems

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

    def losses(self, job_name: str) -> Losses:
        """What a job has lost since the service started."""
        return self._losses.get(job_name, Losses())

    def all_losses(self) -> Mapping[str, Losses]:
        """The losses of all jobs that have any, by name."""
        return self._losses

    def link_problem(self, scope: str, job_name: str) -> str | None:
        """Why a job cannot read or write its links now, as its connector reports."""
        return self._problems.get((scope, job_name))

    def link_problems(self) -> Mapping[Key, str]:
        """The problems of all jobs that have one, by (scope, name)."""
        return self._problems
