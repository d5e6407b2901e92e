"""How far running jobs have got: by the checkpoints of engines and the numbers at brokers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from speck.binding import Checkpointing
from speck.clock import Clock
from speck.model.ids import source_client_id
from speck.model.job import Job
from speck.model.observation import BrokerView
from speck.monitor.health import Key, Progress, Watched
from speck.monitor.sessions import sinks_of
from speck.sites.connections import Connections
from speck.sites.poll_cache import Poll, PollCache
from speck.sites.site_polls import SitePolls
from speck.store.records import Records

T = TypeVar("T")


class ProgressPolls:
    """Looks at checkpoints and brokers; every look is used once: the same one twice would count as
    two."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        polls: SitePolls,
        clock: Clock,
        within_s: float,
    ):
        """`within_s`: to wait for all sites together."""
        self._records = records
        self._connections = connections
        self._polls = polls
        self._within_s = within_s
        self._asked: dict[str, set[str]] = {}
        self._used: dict[tuple[str, str], float] = {}
        self.checkpoints: PollCache[Mapping[str, Checkpointing]] = PollCache(
            self._poll_checkpoints, clock, lambda: float("-inf"), "checkpoints"
        )

    def close(self) -> None:
        """Look no more."""
        self.checkpoints.close()
        self._polls.broker_numbers.close()

    def numbers(self, at_once: Callable[[], int]) -> dict[str, Poll[BrokerView]]:
        """What the brokers said since the last time."""
        polls = self._polls.broker_numbers.poll(
            self._records.sites(), within_s=self._within_s, at_once=at_once
        )
        return self._new("numbers", polls)

    def of(
        self,
        jobs: Iterable[Watched],
        numbers: Mapping[str, Poll[BrokerView]],
        at_once: Callable[[], int],
    ) -> dict[Key, Progress]:
        """How far `jobs` have got, where their engines say so."""
        asked: dict[str, list[Watched]] = {}
        for job in jobs:
            asked.setdefault(job.site, []).append(job)
        self._asked = {site: {j.engine_job_id for j in some} for site, some in asked.items()}
        checkpoints = self._new(
            "checkpoints",
            self.checkpoints.poll(asked, within_s=self._within_s, at_once=at_once),
        )
        deployed = self._records.all_incarnations()
        sinks = sinks_of(deployed.values(), self._records.installation)
        views = {site: poll.answer for site, poll in numbers.items() if poll.answer is not None}
        found = {}
        for site, some in asked.items():
            poll = checkpoints.get(site)
            for job in some:
                checkpointing = (poll.answer or {}).get(job.engine_job_id) if poll else None
                if checkpointing is not None and job.key in deployed:
                    known = deployed[job.key].job
                    feeding = sinks.get(known.source, [])
                    found[job.key] = self._progress_of(known, checkpointing, feeding, views)
        return found

    def _progress_of(
        self,
        job: Job,
        checkpointing: Checkpointing,
        sinks: list[str],
        views: Mapping[str, BrokerView],
    ) -> Progress:
        view = views.get(job.source_site)
        if view is None:
            return Progress(checkpointing.interval_s, checkpointing.completed_id)
        reader = source_client_id(self._records.installation, job.job_name, job.source)
        sinks = view.sinks_of(job.source.topic, sinks)
        taken = view.taken.get(reader)
        return Progress(
            checkpointing.interval_s,
            checkpointing.completed_id,
            taken.messages if taken else None,
            sum(view.sent[sink].number for sink in sinks) if sinks else None,
            view.lag(reader, sinks),
        )

    def _new(self, kind: str, polls: Mapping[str, Poll[T]]) -> dict[str, Poll[T]]:
        """The looks made since the last time."""
        found = {}
        for site, poll in polls.items():
            if poll.begun > self._used.get((kind, site), float("-inf")):
                self._used[kind, site] = poll.begun
                found[site] = poll
        return found

    def _poll_checkpoints(self, site: str) -> dict[str, Checkpointing]:
        engine, found = self._connections.engine(site), {}
        for engine_job_id in sorted(self._asked.get(site, ())):
            checkpointing = engine.checkpointing(engine_job_id)
            if checkpointing is not None:
                found[engine_job_id] = checkpointing
        return found
