"""Reads the progress of running jobs: checkpoints at engines, and numbers at brokers."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from speck.binding import Checkpointing, EnginePoll
from speck.clock import Clock
from speck.model.ids import source_client_id
from speck.model.job import Job
from speck.model.observation import BrokerView
from speck.monitor.health import Key, Watched
from speck.monitor.stalls import Progress
from speck.sites.poll_cache import Poll, PollCache
from speck.sites.site_polls import SitePolls
from speck.store.records import Records

T = TypeVar("T")


class ProgressPolls:
    """Polls checkpoints and brokers. Each poll is used once: using it twice would count it as
    two."""

    def __init__(
        self,
        records: Records,
        polls: SitePolls,
        clock: Clock,
        within_s: float,
    ):
        """`within_s`: how long to wait for all sites together."""
        self._records = records
        self._polls = polls
        self._within_s = within_s
        self._job_ids: dict[str, set[str]] = {}
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="numbers")
        self._newest_used: dict[tuple[str, str], float] = {}
        self.checkpoints: PollCache[Mapping[str, Checkpointing]] = PollCache(
            self._poll_checkpoints,
            clock,
            lambda: float("-inf"),
            "checkpoints",
            polls.scheduler,
        )

    def close(self) -> None:
        """Stop polling."""
        self.checkpoints.close()
        self._polls.broker_numbers.close()

    def end(self) -> None:
        """After the last call: let the thread end."""
        self._aside.shutdown()

    def keep_only(self, sites: Container[str]) -> None:
        """Forget what was polled of other sites."""
        self.checkpoints.keep_only(sites)
        used = self._newest_used
        self._newest_used = {key: begun for key, begun in used.items() if key[1] in sites}

    def numbers(self) -> dict[str, Poll[BrokerView]]:
        """The polls of brokers since the last call."""
        polls = self._polls.broker_numbers.poll(
            self._records.sites.all(), within_s=self._within_s, urgent=False
        )
        return self._select_new("numbers", polls)

    def begin_numbers(self) -> Future[dict[str, Poll[BrokerView]]]:
        """Begin `numbers` beside the caller."""
        return self._aside.submit(self.numbers)

    def of(
        self, jobs: Iterable[Watched], numbers: Mapping[str, Poll[BrokerView]]
    ) -> dict[Key, Progress]:
        """The progress of `jobs`, as far as their engines report it."""
        jobs_by_site: dict[str, list[Watched]] = {}
        for job in jobs:
            jobs_by_site.setdefault(job.site, []).append(job)
        self._job_ids = {
            site: {j.engine_job_id for j in some} for site, some in jobs_by_site.items()
        }
        checkpoints = self._select_new(
            "checkpoints",
            self.checkpoints.poll(jobs_by_site, within_s=self._within_s, urgent=False),
        )
        incarnations = self._records.incarnations.all()
        sinks = self._records.incarnations.sinks()
        views = {site: poll.answer for site, poll in numbers.items() if poll.answer is not None}
        progress = {}
        for site, some in jobs_by_site.items():
            poll = checkpoints.get(site)
            for job in some:
                checkpointing = (poll.answer or {}).get(job.engine_job_id) if poll else None
                if checkpointing is not None and job.key in incarnations:
                    stored_job = incarnations[job.key].job
                    feeding = sinks.get(stored_job.source, [])
                    progress[job.key] = self._progress_of(stored_job, checkpointing, feeding, views)
        return progress

    def _progress_of(
        self,
        job: Job,
        checkpointing: Checkpointing,
        sinks: Sequence[str],
        views: Mapping[str, BrokerView],
    ) -> Progress:
        view = views.get(job.source_site)
        if view is None:
            return Progress(
                checkpointing.interval_s,
                checkpointing.completed_id,
                folder=checkpointing.folder,
            )
        reader = source_client_id(self._records.installation, job.job_name, job.source)
        reporting = view.sinks_of(job.source.topic, sinks)
        last = view.find_last(job.source.topic, reporting)
        taken = view.taken.get(reader)
        return Progress(
            checkpointing.interval_s,
            checkpointing.completed_id,
            taken.messages if taken else None,
            sum(last.values()) if last else None,
            view.lag(reader, job.source.topic, reporting),
            checkpointing.folder,
        )

    def _select_new(self, kind: str, polls: Mapping[str, Poll[T]]) -> dict[str, Poll[T]]:
        """The polls made since the last call."""
        new_polls = {}
        for site, poll in polls.items():
            if poll.begun > self._newest_used.get((kind, site), float("-inf")):
                self._newest_used[kind, site] = poll.begun
                new_polls[site] = poll
        return new_polls

    def _poll_checkpoints(self, site: str) -> dict[str, Checkpointing]:
        job_ids = sorted(self._job_ids.get(site, ()))
        answers: dict[str, Checkpointing] = self._polls.polling.engine(
            site, EnginePoll.CHECKPOINTING, job_ids
        )
        return answers
