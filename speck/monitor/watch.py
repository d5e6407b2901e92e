"""The watch: polls all sites, reports changes, and starts repairs.

The decisions are made in `speck.monitor.health`, by what `speck.monitor.judge` says of each job;
here they meet the sites. Polls take their turns (`speck.sites.poll_scheduler`): a slow or
unreachable site delays no other. What is found is published on the board.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from speck.clock import Clock
from speck.deploy.changes import Changes
from speck.deploy.operations import Resends
from speck.model.engines import EngineAt
from speck.model.observation import BrokerView, EngineView, Observation
from speck.monitor.board import Board, Losses, explain_link
from speck.monitor.broker_identities import BrokerIdentities
from speck.monitor.change_errors import ChangeErrors
from speck.monitor.checkpoint_folders import CheckpointFolders
from speck.monitor.finished import FinishedJobs
from speck.monitor.health import Key, Memory, Watched, decide, wants_progress
from speck.monitor.health_events import HealthEvents
from speck.monitor.judge import JobFinding
from speck.monitor.link_reports import NOTHING
from speck.monitor.link_watch import LinkWatch, Measured
from speck.monitor.moved_brokers import MovedBrokers
from speck.monitor.progress import ProgressPolls
from speck.monitor.repairs import Repairer, Repairs
from speck.monitor.sessions import Sessions
from speck.monitor.stalls import Progress
from speck.monitor.watched_jobs import WatchedJobs
from speck.periodic import PeriodicTask
from speck.sites.connections import Connections
from speck.sites.poll_cache import Poll
from speck.sites.poll_scheduler import PATIENCE_S
from speck.sites.site_polls import SitePolls
from speck.store.desired_state import DesiredJobs
from speck.store.records import Records

_INTERVALS_OF_MANY = 2.0
"""With many sites jobs are asked for their checkpoints in every second interval: one request for
each job is most of what the polls cost. A job is stalled after three intervals without a
checkpoint, so it has to be polled before."""

_NO_LOSSES = Losses()


class Watch:
    """Polls every `every_s` seconds, and sooner when something is due. With 0 it never polls by
    itself."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        changes: Changes,
        polls: SitePolls,
        board: Board,
        errors: ChangeErrors,
        clock: Clock,
        repairer: Repairer,
        every_s: float,
        measured: Measured = lambda _: None,
        state_folder: Callable[[str], str | None] = lambda _: None,
        resends: Resends | None = None,
    ):
        """`measured`: returns what engines reported last of an incarnation's connector.
        `state_folder`: the URI below which a site's engine keeps state, if it is known."""
        self._records = records
        self._changes = changes
        self._polls = polls
        self._board = board
        self._clock = clock
        self._every_s = every_s
        self._patience_s = max(PATIENCE_S, every_s)
        """For all sites together; sites that were not reached in time come first in the next
        round."""
        self._memory = Memory()
        desired = DesiredJobs(records)
        self.repairs = Repairs(records, desired, repairer)
        self.sessions = Sessions(records, connections, changes)
        self.links = LinkWatch(records, measured)
        self.identities = BrokerIdentities(records, connections, clock)
        self._jobs = WatchedJobs(records, desired, changes, self.repairs, errors)
        self._finished = FinishedJobs(records, connections, changes)
        self._moved_brokers = MovedBrokers(records)
        self._resends = resends
        self._folders = CheckpointFolders(records, changes, state_folder)
        self._progress = ProgressPolls(records, polls, clock, self._patience_s)
        self._events = HealthEvents(records, connections, clock)
        self._task = PeriodicTask("watch", self._run_round, self._pause_s, clock)
        self._due: float | None = None
        self._begun = clock.monotonic()
        self._gives_way = False  # at the start nothing is known

    def start(self) -> None:
        """Begin to poll, unless that is switched off."""
        if self._every_s > 0:
            self._task.start()

    def close(self) -> None:
        """Stop polling, and begin no further repair."""
        self._task.ask_to_stop()
        self._progress.close()  # a running round does not wait for polls any more
        self._task.stop()
        self._progress.end()
        self.repairs.close()
        self.sessions.close()
        self.identities.close()
        self._events.close()

    @property
    def polls(self) -> dict[str, int]:
        """Completed polls of single sites since the start, by kind."""
        return {
            "engine": self._polls.engines.ended,
            "checkpoints": self._progress.checkpoints.ended,
            "numbers": self._polls.broker_numbers.ended,
        }

    # -- one poll -------------------------------------------------------------------------

    def poll(self) -> float | None:
        """Poll everything once, act on it, and return when (monotonic) the next poll is due at the
        latest; None: at the regular interval."""
        begun = self._clock.monotonic()
        self._jobs.settle(begun)
        self._forget_others()
        # of many sites engines and brokers are polled at the same time: other processes do it
        early = self._progress.begin_numbers() if self._polls.polling.apart else None
        engines = self._polls.engines.poll(
            self._records.sites.all(), within_s=self._patience_s, urgent=False
        )
        now = self._clock.monotonic()
        sites = {site: poll.answer for site, poll in engines.items()}
        jobs = self._finished.take_out(self._jobs.list_at(engines), sites)
        numbers = early.result() if early is not None else self._progress.numbers()
        progress = self._progress_of(jobs, sites, numbers, now)
        before = self._memory
        decision = decide(now, sites, jobs, progress, before)
        self._memory = decision.memory
        self._events.report_sites(before, decision.memory, engines, now)
        self._events.report_jobs(jobs, before, decision)
        if self._records.restored is not None:  # nothing is done until its state is adopted
            self._publish(now)
            return decision.due
        self._folders.store(progress, {job.key: job.engine_job_id for job in jobs})
        self.identities.poll(numbers)
        own = {s: poll for s, poll in numbers.items() if s not in self.identities.strangers}
        self.sessions.poll(now, own, self._find_silent(sites))
        self.links.poll(now, own)
        self._look_after_ended_sinks(own)
        self._publish(now)
        moved = self._moved_brokers.find(now, jobs)
        for scope in moved.keys() | decision.repair.keys():
            names = moved.get(scope, frozenset()) | decision.repair.get(scope, frozenset())
            self.repairs.begin(scope, names)
        return decision.due

    def _find_silent(self, sites: Mapping[str, EngineView | None]) -> set[EngineAt]:
        """The engines of jobs that have not answered. Of two at one site, one may have."""
        answers = {site: view for site, view in sites.items() if view is not None}
        observation = Observation(answers)
        engines = {each.job.engine for each in self._records.incarnations.all().values()}
        return {engine for engine in engines if not observation.has_answer(engine)}

    def _forget_others(self) -> None:
        """Forget what is gone."""
        sites = self._records.sites.all()
        self._polls.keep_only(sites)
        self._progress.keep_only(sites)
        self._board.keep_only(self._records.incarnations.all)

    def _look_after_ended_sinks(self, polls: Mapping[str, Poll[BrokerView]]) -> None:
        for site, poll in polls.items():
            if poll.answer is not None and self._resends is not None:
                self._resends.look(
                    site,
                    poll.answer,
                    poll.begun,
                    lambda scope: self._changes.under_way(scope) is not None,
                )

    def _progress_of(
        self,
        jobs: list[Watched],
        sites: Mapping[str, EngineView | None],
        numbers: Mapping[str, Poll[BrokerView]],
        now: float,
    ) -> dict[Key, Progress]:
        """The progress of the running jobs that are worth asking for."""
        running = [
            job
            for job in jobs
            if not job.busy
            and (view := sites.get(job.site)) is not None
            and job.engine_job_id in view.jobs
        ]
        intervals = _INTERVALS_OF_MANY if self._polls.polling.apart else 1.0
        worth = [job for job in running if wants_progress(self._memory, job.key, now, intervals)]
        return self._progress.of(worth, numbers)

    def _publish(self, now: float) -> None:
        """Put what this poll has shown on the board."""
        findings = {
            key: self._events.find(key, memory) for key, memory in self._memory.jobs.items()
        }
        for key, links in (self.links.memory.jobs or {}).items():
            if links.problem is not None:
                finding = findings.get(key)
                if finding is None or finding.engine_job_id != links.engine_job_id:
                    finding = JobFinding(links.engine_job_id)
                stalls = self.links.stalls(now, key)
                findings[key] = explain_link(finding, links.problem, stalls=stalls)
        lost = {site: self.sessions.lost_at(site) for site in self._records.sites.all()}
        self._board.publish(findings, lost, self._count_losses())

    def _count_losses(self) -> dict[str, Losses]:
        """By the names of the jobs that have lost anything."""
        sessions, missing = self.sessions.lost_sessions.count_by_job(), self.sessions.missing
        of_links = {
            name: links.losses
            for (_, name), links in (self.links.memory.jobs or {}).items()
            if links.losses is not NOTHING
        }
        losses = {}
        for name in sessions.keys() | missing.keys() | of_links.keys():
            links = of_links.get(name, NOTHING)
            # what a source has dropped is missing, too, if its producer numbers messages
            lost = links.lost + max(links.dropped, missing.get(name, 0))
            each = Losses(links.left_out, lost, sessions.get(name, 0))
            if each != _NO_LOSSES:
                losses[name] = each
        return losses

    # -- a round --------------------------------------------------------------------------

    def _run_round(self) -> None:
        """Poll, after waiting for a change that has just begun. It does not wait twice in a row,
        when changes follow each other, nor when something is due."""
        may_wait = self._gives_way and self._due is None
        gave_way = may_wait and self._changes.await_calm(self._task.stopping)
        if self._task.stopping.is_set() or self._changes.closing:
            return
        self._gives_way = not gave_way
        self._due, self._begun = None, self._clock.monotonic()
        self._due = self.poll()

    def _pause_s(self) -> float:
        now = self._clock.monotonic()
        due_s = None if self._due is None else self._due - now
        took_s = now - self._begun
        return pause_s(self._every_s, took_s, due_s, apart=self._polls.polling.apart)


def pause_s(every_s: float, took_s: float, due_s: float | None, *, apart: bool = False) -> float:
    """Seconds from the end of a poll of all sites, which took `took_s`, to the next: `every_s`, or
    less when something is due in `due_s`. With many sites the pause is about as long as the poll
    took, so that polls leave half of the service's time to other work; what a few unreachable sites
    take is only waiting. Polls that are made `apart`, in other processes, begin every `every_s`
    seconds, and leave a tenth of the time when they cannot keep up."""
    wait_s = max(every_s - took_s, 0.0) if apart else every_s
    if due_s is not None:
        wait_s = min(wait_s, max(0.1, due_s))
    return max(wait_s, took_s / 10 if apart else took_s - 3 * PATIENCE_S)
