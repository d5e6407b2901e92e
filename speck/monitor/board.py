"""The board: what is known now of sites and jobs beside the store.

The watch publishes on it what it has found, polls of sites leave their results on it, and changes
report on it what their operations have brought about. Whoever shows or counts states reads the
board, and asks no site.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Set
from dataclasses import dataclass, replace

from speck.model.incarnation import Incarnation
from speck.model.observation import RunState
from speck.monitor.health import Key
from speck.monitor.judge import NO_FINDING, JobFinding, Observed, Sight, observe
from speck.sites.site_polls import SitePolls


@dataclass(frozen=True, slots=True)
class Losses:
    """What a job has lost since the service started, as its settings allow: records left out since
    no broker would take them, other records lost, and sessions."""

    records_left_out: int = 0
    records_lost: int = 0
    sessions_lost: int = 0


_NO_LOSSES = Losses()


@dataclass(frozen=True, slots=True)
class _Outcome:
    """What a change did about an incarnation, and when (monotonic); `observed` is None if that does
    not say what its engine does now. A poll that began before says less."""

    engine_job_id: str
    at: float
    observed: RunState | None


class Board:
    """Read and written by any thread. The findings of the watch are replaced as a whole."""

    def __init__(self, polls: SitePolls) -> None:
        self._polls = polls
        self._findings: Mapping[Key, JobFinding] = {}
        self._messages_lost: Mapping[str, int] = {}
        self._losses: Mapping[str, Losses] = {}
        self._outcomes: dict[Key, _Outcome] = {}

    # -- written ----------------------------------------------------------------------------

    def publish(
        self,
        findings: Mapping[Key, JobFinding],
        messages_lost: Mapping[str, int],
        losses: Mapping[str, Losses],
    ) -> None:
        """Replace the findings of the watch: about jobs by (scope, name), messages lost at brokers
        by site, losses by the name of their job."""
        self._findings = findings
        self._messages_lost, self._losses = messages_lost, losses

    def report_running(self, key: Key, engine_job_id: str, at: float) -> None:
        """All tasks of an incarnation ran at a time (monotonic)."""
        self._outcomes[key] = _Outcome(engine_job_id, at, RunState.RUNNING)

    def doubt(self, key: Key, engine_job_id: str, at: float) -> None:
        """A change had to do with an incarnation until `at`, and did not see what became of it."""
        outcome = self._outcomes.get(key)
        if outcome is None or outcome.engine_job_id != engine_job_id or outcome.observed is None:
            self._outcomes[key] = _Outcome(engine_job_id, at, None)

    def forget(self, key: Key) -> None:
        """Drop what changes reported about a job that is gone."""
        self._outcomes.pop(key, None)

    def keep_only(self, list_jobs: Callable[[], Container[Key]]) -> None:
        """Drop what changes reported about jobs that are not stored any more. They are listed by
        `list_jobs`, after what was reported: a job is stored before a change reports about it."""
        for key, outcome in list(self._outcomes.items()):
            if key not in list_jobs() and self._outcomes.get(key) is outcome:
                self.forget(key)

    # -- read -------------------------------------------------------------------------------

    @property
    def reported(self) -> Set[Key]:
        """The jobs of which a change has reported something that the board still needs."""
        return frozenset(self._outcomes)

    def observed(self, key: Key, incarnation: Incarnation) -> Observed:
        """What is known last of an incarnation at its engine.

        A poll from before the end of its start cannot say that the engine does not know it.
        """
        outcome = self._outcomes.get(key)
        if outcome is not None and outcome.engine_job_id != incarnation.engine_job_id:
            outcome = None
        poll = self._polls.engines.last(incarnation.job.site)
        if poll is not None and (outcome is None or poll.begun >= outcome.at):
            return observe(poll.answer, incarnation.engine_job_id, incarnation.job.artifact_kind)
        if outcome is None:
            return Sight.UNSEEN
        if outcome.observed is not None:
            return outcome.observed
        before = (
            observe(poll.answer, incarnation.engine_job_id, incarnation.job.artifact_kind)
            if poll
            else Sight.UNSEEN
        )
        return Sight.UNSEEN if before is Sight.ABSENT else before

    def finding(self, key: Key, incarnation: Incarnation) -> JobFinding:
        """What the watch has found about an incarnation."""
        finding = self._findings.get(key)
        if finding is None or finding.engine_job_id != incarnation.engine_job_id:
            return NO_FINDING
        return finding

    def messages_lost(self, site: str) -> int:
        """Messages lost at the site's broker since the service started, as far as is known."""
        return self._messages_lost.get(site, 0)

    def losses(self, job_name: str) -> Losses:
        """What a job has lost since the service started."""
        return self._losses.get(job_name, _NO_LOSSES)

    def all_losses(self) -> Mapping[str, Losses]:
        """The losses of all jobs that have any, by name."""
        return self._losses

    def find_link_problems(self) -> list[str]:
        """The names of the jobs that cannot read or write a link now."""
        return [name for (_, name), finding in self._findings.items() if finding.link_problem]


def explain_link(finding: JobFinding, problem: str | None, *, stalls: bool) -> JobFinding:
    """The finding with what the job's connector reports of its links."""
    return replace(finding, link_problem=problem, link_stalls=stalls) if problem else finding
