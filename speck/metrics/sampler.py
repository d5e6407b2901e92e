"""Polls the metrics of all sites periodically and appends them to the dataset.

If an engine or a broker has not answered when its next poll is due, that poll is skipped: a gap in
the dataset, which delays no other site.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from datetime import datetime, timedelta
from functools import partial
from urllib.parse import urlsplit

from speck.agent.host import HostLoad, cores
from speck.binding import BrokerPoll, EnginePoll
from speck.clock import Clock
from speck.errors import SpeckError, TransientError
from speck.metrics.dataset.schema import BROKERS, LINKS, PLANS, SITES, TASKS
from speck.metrics.latest import LatestSamples
from speck.metrics.metaspace import MetaspaceWatch
from speck.metrics.recorder import Recorder
from speck.metrics.rows import (
    Ends,
    Row,
    make_broker_row,
    make_link_rows,
    make_plan_rows,
    make_site_row,
    make_task_rows,
)
from speck.model.composition import visible_name
from speck.model.incarnation import Incarnation
from speck.model.job_rates import JobRates, RatedJob
from speck.model.measurement import EngineMeasures, Host, PlanNode
from speck.model.site import AgentReport, Site
from speck.periodic import PeriodicTask
from speck.sites.poll_scheduler import PollScheduler, Subject, Turn
from speck.sites.pollers.polling import Polling
from speck.store.desired_state import DesiredJobs, Marks
from speck.store.records import Records

LOG = logging.getLogger(__name__)

PLANS_EVERY_S = 3600.0
"""Interval at which a job's plan is written again, so that each day of the dataset has it."""

HEARTBEAT_VALID_S = 20.0
"""How long the CPU load in an agent's heartbeat is valid."""

BEGINNING_S = 30.0
"""A job is not polled while the change that starts it is running, for at most this long: engines
are busiest then, and the values would only describe the start."""

POLL_S = 10.0
"""The result of a poll that took longer is discarded: it does not describe the time it began."""

SPREAD = 0.7
"""Polls of many sites are spread over this part of the interval, so that they delay no request."""


_PARTS = _ENGINE, _BROKER = "engine", "broker"

_Poll = Callable[[datetime, float], None]
"""Polls one part of a site; gets the time when it begins, and that of the monotonic clock."""


class Sampler:
    """Polls all sites every `every_s` seconds (0: only on demand) and has rows recorded."""

    def __init__(
        self,
        records: Records,
        polling: Polling,
        scheduler: PollScheduler,
        clock: Clock,
        recorder: Recorder,
        every_s: float,
        beat: Callable[[str], tuple[AgentReport, datetime | None]],
        beginning: Callable[[float], Collection[str]],
        await_calm: Callable[[threading.Event], bool],
        on_first_job: Callable[[], None] = lambda: None,
    ):
        """`beat`: returns a site's last heartbeat and its time; `beginning`: returns the jobs that
        running changes start (see `Changes`); `await_calm`: see `Changes`; `on_first_job` is called
        once, with the first samples of a job."""
        self._records = records
        self._polling = polling
        self._scheduler = scheduler
        self._clock = clock
        self._every_s = every_s
        self._read_heartbeat = beat
        self._list_beginning_jobs = beginning
        self._await_calm = await_calm
        self._desired_jobs = DesiredJobs(records)
        self._host = HostLoad()
        self._own_host = Host()
        self._lock = threading.Lock()
        self.latest = LatestSamples()
        self._metaspace = MetaspaceWatch(records)
        self._plans: dict[str, dict[str, tuple[float, tuple[Marks, bool]]]] = {}
        """Site -> engine job id -> when (monotonic) its plan was written, and with which marks."""
        self._polls_under_way: set[Subject] = set()
        self._begun_at: dict[Subject, float] = {}
        self._recorder = recorder
        self._task = PeriodicTask("collect", self._run_round, self._pause_s, clock)
        self._due = float("-inf")
        self.polls = 0
        """Number of polls that were answered."""
        self.gaps = 0
        """Number of polls that failed or were skipped: the previous one was still running, or its
        turn did not come in time."""
        self._on_first_job = on_first_job

    @property
    def on(self) -> bool:
        """Whether the sampler polls periodically."""
        return self._every_s > 0

    def start(self) -> None:
        """Start polling, unless it is switched off."""
        if self.on:
            self._due = self._clock.monotonic()
            self._task.start()

    def close(self) -> None:
        """Stop polling and write the waiting rows."""
        self._task.stop()
        self._recorder.close()

    # -- results of the last polls --------------------------------------------------------

    def rate_job(self, incarnation: Incarnation) -> JobRates:
        """See `LatestSamples.rate_job`."""
        return self.latest.rate_job(incarnation)

    def rate_jobs(self) -> list[RatedJob]:
        """The rates of every incarnation that should be running."""
        return [
            RatedJob(name, visible_name(scope), incarnation.job.site, self.rate_job(incarnation))
            for (scope, name), incarnation in self._records.incarnations.all().items()
            if not incarnation.ended
        ]

    # -- one poll -------------------------------------------------------------------------

    def poll(self) -> None:
        """Start a poll of all sites; the polls end in the background.

        They take their turns, the longest-waiting sites first, until the next round is due.
        """
        begun = self._clock.monotonic()
        sites = self._records.sites.all()
        self._own_host = Host(self._host.cpu(), cores())
        self.latest.keep_only(sites.keys())
        self._metaspace.keep_only(sites.keys())
        with self._lock:
            for name in self._plans.keys() - sites.keys():
                del self._plans[name]
        due = [(part, name) for name in sites for part in _PARTS]
        self._begun_at = {key: self._begun_at.get(key, float("-inf")) for key in due}
        due.sort(key=self._begun_at.__getitem__)
        spread_s = SPREAD * self._every_s / max(1, len(due)) if self._polling.apart else 0.0
        polls = self._make_polls(sites)
        turns = [
            # another subject than the watch's: an engine may answer one of the two alone
            Turn(
                (f"measures of {part}", site),
                partial(self._run_poll, (part, site), polls[part, site]),
                begun + spread_s * number,
            )
            for number, (part, site) in enumerate(due)
        ]
        self._scheduler.queue(turns)
        until = begun + (self._every_s or POLL_S)
        self._scheduler.await_begun(turns, until, self._task.stopping.is_set)
        left = self._scheduler.withdraw(turns)
        with self._lock:
            self.gaps += left

    def _make_polls(self, sites: Mapping[str, Site]) -> dict[Subject, _Poll]:
        """The polls of the engine and the broker of each site."""
        incarnations = self._records.incarnations.all()
        sessions = self._records.sessions.all()
        ends = Ends(self._records.installation, incarnations, sessions)
        at_site: dict[str, dict[tuple[str, str], Incarnation]] = {}
        beginning_jobs = self._list_beginning_jobs(BEGINNING_S)
        for key, incarnation in incarnations.items():
            if not incarnation.ended and incarnation.engine_job_id not in beginning_jobs:
                at_site.setdefault(incarnation.job.site, {})[key] = incarnation
        polls: dict[Subject, _Poll] = {}
        for name, site in sites.items():
            polls[_ENGINE, name] = partial(self._poll_engine, at_site.get(name, {}), site)
            polls[_BROKER, name] = partial(self._poll_broker, ends, site)
        return polls

    def _run_poll(self, key: Subject, poll: _Poll) -> bool:
        """Poll, unless the previous poll has not ended; whether there was an answer."""
        at, begun = self._clock.now(), self._clock.monotonic()
        with self._lock:
            if key in self._polls_under_way:
                self.gaps += 1
                return False
            self._polls_under_way.add(key)
            self._begun_at[key] = begun
        has_answered = False
        try:
            poll(at, begun)
            has_answered = True
        except SpeckError as error:
            LOG.debug("no measures of the %s of %s: %s", *key, error)
        except Exception:
            LOG.exception("the poll of the %s of %s failed", *key)
        finally:
            with self._lock:
                self._polls_under_way.discard(key)
                self.polls += has_answered
                self.gaps += not has_answered
                if not has_answered:
                    self.latest.forget(*key)
        return has_answered

    def _poll_engine(
        self,
        incarnations: Mapping[tuple[str, str], Incarnation],
        site: Site,
        at: datetime,
        begun: float,
    ) -> None:
        job_ids = [incarnation.engine_job_id for incarnation in incarnations.values()]
        measures: EngineMeasures = self._polling.engine(site.name, EnginePoll.MEASURE, job_ids)
        self._refuse_late_answer(begun)
        self._metaspace.record(site.name, measures)
        host = self._host_of(site)
        samples = self.latest.put_engine(site.name, at, measures)
        tasks = make_task_rows(at, samples, incarnations, host)
        self._recorder.append(TASKS, tasks)
        if tasks:
            self._report_first_job()
        calibration = self._records.sites.calibration(site.name)
        self._recorder.append(SITES, [make_site_row(at, site, measures, host, calibration)])
        self._recorder.append(PLANS, self._make_plan_rows(site, at, incarnations, measures))

    def _report_first_job(self) -> None:
        with self._lock:
            report, self._on_first_job = self._on_first_job, lambda: None
        report()

    def _poll_broker(self, ends: Ends, site: Site, at: datetime, begun: float) -> None:
        measures, view = self._polling.broker(site.name, BrokerPoll.MEASURE)
        self._refuse_late_answer(begun)
        rows = make_link_rows(at, site.name, view, ends)
        links = self.latest.put_broker(site.name, measures, view, rows)
        self._recorder.append(BROKERS, [make_broker_row(at, site.name, measures)])
        self._recorder.append(LINKS, links)

    def _refuse_late_answer(self, begun: float) -> None:
        took = self._clock.monotonic() - begun
        if took > POLL_S:
            raise TransientError(f"cannot use a poll that took {took:.1f} s")

    def _make_plan_rows(
        self,
        site: Site,
        at: datetime,
        incarnations: Mapping[tuple[str, str], Incarnation],
        measures: EngineMeasures,
    ) -> list[Row]:
        """Rows for incarnations whose plan is new, changed, or was written long ago."""
        now = self._clock.monotonic()
        with self._lock:
            written_plans = self._plans.setdefault(site.name, {})
            for job_id in written_plans.keys() - {
                incarnation.engine_job_id for incarnation in incarnations.values()
            }:
                del written_plans[job_id]
        rows: list[Row] = []
        for (scope, name), incarnation in incarnations.items():
            job_id = incarnation.engine_job_id
            marks = self._desired_jobs.marks(scope).get(name, Marks())
            is_input = self._desired_jobs.is_input(scope, incarnation.job.source)
            declared = (marks, is_input)
            written_at, previously = written_plans.get(job_id, (float("-inf"), declared))
            is_due = now - written_at >= PLANS_EVERY_S or declared != previously
            if not is_due or job_id not in measures.jobs:
                continue
            nodes = self._fetch_plan(site.name, name, job_id)
            if nodes is not None:
                rows += make_plan_rows(
                    at,
                    scope,
                    incarnation,
                    nodes,
                    pinned=marks.pinned,
                    stateful=marks.stateful,
                    source_is_input=is_input,
                )
                written_plans[job_id] = now, declared
        return rows

    def _fetch_plan(self, site: str, name: str, job_id: str) -> tuple[PlanNode, ...] | None:
        try:
            nodes: tuple[PlanNode, ...] = self._polling.engine(site, EnginePoll.JOB_PLAN, [job_id])
            return nodes
        except SpeckError as error:
            LOG.info("no plan of %s: %s", name, error)
            return None

    def _host_of(self, site: Site) -> Host:
        """The load that the site's agent reports, or this machine's if the engine runs here."""
        heartbeat, received_at = self._read_heartbeat(site.name)
        is_fresh = received_at is not None and self._clock.now() - received_at <= timedelta(
            seconds=HEARTBEAT_VALID_S
        )
        if is_fresh and heartbeat.cpu is not None:
            return Host(heartbeat.cpu, heartbeat.cores)
        host = urlsplit(site.spe.address).hostname or ""
        if host in ("localhost", "::1") or host.startswith("127."):
            return self._own_host
        return Host()

    # -- a round --------------------------------------------------------------------------

    def _run_round(self) -> None:
        self._await_calm(self._task.stopping)
        if self._task.stopping.is_set():
            return
        self.poll()
        self._recorder.retry()
        self._recorder.start_maintenance()

    def _pause_s(self) -> float:
        """Seconds until the next round. Rounds start every `every_s` seconds, however long they
        take; a missed one is not made up for."""
        now = self._clock.monotonic()
        self._due = max(self._due + self._every_s, now)
        return self._due - now
