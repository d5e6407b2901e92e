"""The loop that looks at the work of all sites and keeps what they tell in the dataset.

Every engine and every broker is looked at in a thread of its own, a few begun at a time. One that
has not answered when the next look is due misses that: a gap in the dataset, which holds up nobody
else.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from speck.agent.host import HostLoad, cores
from speck.clock import Clock
from speck.errors import SpeckError, TransientError
from speck.metrics.dataset.maintenance import tend
from speck.metrics.dataset.schema import BROKERS, LINKS, PLANS, SITES, TASKS, Table
from speck.metrics.dataset.writer import Writer
from speck.metrics.rates import Pair, job_metrics
from speck.metrics.rows import (
    Ends,
    Row,
    Samples,
    broker_row,
    link_rows,
    plan_nodes,
    plan_rows,
    samples_of,
    since_joining,
    site_row,
    task_rows,
)
from speck.model.composition import visible_name
from speck.model.incarnation import Incarnation
from speck.model.measurement import BrokerMeasures, EngineMeasures, Host, PlanNode
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.periodic import PeriodicTask
from speck.sites.concurrency import MANY, PERIOD_S, AdaptiveConcurrency
from speck.sites.connections import Connections
from speck.sites.poll_cache import PATIENCE_S
from speck.store.desired_state import DesiredJobs, Marks
from speck.store.records import Records

LOG = logging.getLogger(__name__)

PLANS_EVERY_S = 3600.0
"""A job's plan is written down again after so long, so that each day of the dataset has it."""

TEND_EVERY_S = 600.0
"""Small files are joined, and old days dropped, that often."""

TEND_AGAIN_S = 30.0
"""... and again so soon where an analysis or an export was reading."""

BEAT_S = 20.0
"""What a site's agent told of its machine counts for so long."""

BEGINNING_S = 30.0
"""For so long at most are jobs left out since the change that begins them goes on: it would cost
engines much at the moment when they have most to do, and tell of the start only."""

POLL_S = 10.0
"""A look that took longer says nothing of the time at which it began."""

_AT_ONCE = 512
"""Threads at most, two for each site: sites that do not answer hold theirs until the time limit."""


@dataclass(slots=True)
class _Site:
    """What the last looks at one site said."""

    samples: Samples = field(default_factory=dict)
    engine: EngineMeasures | None = None
    broker: BrokerMeasures | None = None
    links: list[Row] = field(default_factory=list)
    joined: dict[str, int] = field(default_factory=dict)
    """See `speck.metrics.rows.since_joining`."""
    plans: dict[str, tuple[float, Marks]] = field(default_factory=dict)
    """Engine job id -> when (monotonic) its plan was written down, and with what."""


class Sampler:
    """Looks every `every_s` seconds (0: never by itself) and appends to `writer`."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        clock: Clock,
        writer: Writer,
        every_s: float,
        days: int,
        beat: Callable[[str], tuple[JsonObject, datetime | None]],
        beginning: Callable[[float], Collection[str]],
        await_calm: Callable[[threading.Event], bool],
        at_once: Callable[[], int] | None = None,
    ):
        """`days`: for how long rows are kept (0: for ever); `beat` gives what a site's agent told
        last, and when; `beginning` the jobs that changes begin and `await_calm`, see `Changes`;
        `at_once` how many looks that began just now may be under way (by default as
        `AdaptiveConcurrency` says)."""
        self._records = records
        self._connections = connections
        self._clock = clock
        self._writer = writer
        self._every_s = every_s
        self._days = days
        self._beat = beat
        self._beginning = beginning
        self._await_calm = await_calm
        self._wanted = DesiredJobs(records)
        self._host = HostLoad()
        self._own = Host()
        self._lock = threading.Lock()
        self._ended = threading.Condition(self._lock)
        self._sites: dict[str, _Site] = {}
        self._under_way: dict[tuple[str, str], float] = {}
        self._begun: dict[tuple[str, str], float] = {}
        self._unanswered: set[tuple[str, str]] = set()
        self._cpu_s = 0.0
        self._at_once = at_once or AdaptiveConcurrency(lambda: self._cpu_s).at_once
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="collect")
        self._task = PeriodicTask("collect", self._look_around, self._pause_s, clock)
        self._due = float("-inf")
        self._failing: str | None = None
        self._tended = float("-inf")
        self._tending: Future[None] | None = None
        self.polls = 0
        """Looks that were answered."""
        self.gaps = 0
        """Looks that were not answered, or were not begun: the last one was under way still, or
        its turn did not come in time."""

    @property
    def on(self) -> bool:
        """Whether it looks by itself."""
        return self._every_s > 0

    def start(self) -> None:
        """Begin to look, unless that is switched off."""
        if self.on:
            self._due = self._clock.monotonic()
            self._task.start()

    def close(self) -> None:
        """Look no more, and write what is there."""
        self._task.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._tending is not None and not self._tending.cancelled():
            wait([self._tending])
        self.flush()

    def flush(self) -> None:
        """Write all rows that wait to files, so that an analysis finds them; that the disk takes
        none is told once, and the rows are kept."""
        try:
            self._writer.flush()
        except TransientError as error:
            self._tell(str(error))
        else:
            self._tell(None)

    # -- what the last looks said ---------------------------------------------------------

    def job(self, deployed: Incarnation) -> JsonObject:
        """Rates of an incarnation between the last two looks that told something new, and its
        reader's lag; None where nothing is known. See `speck.metrics.rates.job_metrics`."""
        with self._lock:
            at = self._sites.get(deployed.job.site, _Site())
            pairs: list[Pair] = [
                pair for key, pair in at.samples.items() if key[0] == deployed.engine_job_id
            ]
            newest = at.engine.jobs.get(deployed.engine_job_id) if at.engine else None
            links = self._sites.get(deployed.job.source_site, _Site()).links
            ends = [row for row in links if row["job_name"] == deployed.job.job_name]
        lag = next((row["lag"] for row in ends if row["role"] == "reader"), None)
        rates = job_metrics(pairs)
        if newest is not None and newest.restarts is not None:
            rates["restarts"] = newest.restarts  # of a crash loop the tasks tell nothing new
        return {**rates, "lag": lag}

    def jobs(self) -> list[JsonObject]:
        """`{job_name, composition, site, ...}` of every incarnation that ought to be there."""
        return [
            {
                "job_name": name,
                "composition": visible_name(scope),
                "site": deployed.job.site,
                **self.job(deployed),
            }
            for (scope, name), deployed in sorted(self._records.all_incarnations().items())
            if not deployed.ended
        ]

    def links(self) -> list[Row]:
        """The newest rows of the ends of all links."""
        with self._lock:
            return [row for _, site in sorted(self._sites.items()) for row in site.links]

    def engines(self) -> dict[str, EngineMeasures]:
        """By site, what engines said at the last look that they answered."""
        with self._lock:
            return {name: s.engine for name, s in sorted(self._sites.items()) if s.engine}

    def brokers(self) -> dict[str, BrokerMeasures]:
        """By site, what brokers said at the last look that they answered."""
        with self._lock:
            return {name: s.broker for name, s in sorted(self._sites.items()) if s.broker}

    # -- one look -------------------------------------------------------------------------

    def poll(self) -> None:
        """Begin a look at all sites; it ends by itself. Of many sites a few looks at a time are
        begun, the oldest first, until the next one is due."""
        until = self._clock.monotonic() + (self._every_s or POLL_S)
        sites = self._records.sites()
        deployed = self._records.all_incarnations()
        sessions = self._records.all_sessions()
        ends = Ends(self._records.installation, deployed, sessions)
        self._own = Host(self._host.cpu(), cores())
        with self._lock:
            for name in self._sites.keys() - sites.keys():
                del self._sites[name]
        at_site: dict[str, dict[tuple[str, str], Incarnation]] = {}
        beginning = self._beginning(BEGINNING_S)
        for key, each in deployed.items():
            if not each.ended and each.engine_job_id not in beginning:
                at_site.setdefault(each.job.site, {})[key] = each
        due = [(part, name) for name in sites for part in ("engine", "broker")]
        self._begun = {each: self._begun.get(each, float("-inf")) for each in due}
        with self._lock:
            self._unanswered &= self._begun.keys()
        for number, (part, name) in enumerate(sorted(due, key=self._begun.__getitem__)):
            if not self._await_turn(until):
                with self._lock:
                    self.gaps += len(due) - number
                return
            if part == "engine":
                take = partial(self._poll_engine, at_site.get(name, {}))
            else:
                take = partial(self._poll_broker, ends)
            self._begin(part, sites[name], take)

    def _await_turn(self, until: float) -> bool:
        """Wait while many looks are under way that began just now; False when that is so `until`
        then (monotonic)."""
        with self._ended:
            while not self._task.stopping.is_set():
                now = self._clock.monotonic()
                if self._has_room(now):
                    return True
                if now >= until:
                    return False
                self._ended.wait(min(until - now, PERIOD_S))
        return False

    def _has_room(self, now: float) -> bool:
        """With the lock. What was not answered the last time costs nothing but a thread."""
        young = answering = 0
        for key, begun in reversed(self._under_way.items()):  # the last begun first
            if now - begun >= PATIENCE_S or young >= MANY:
                break
            young += 1
            answering += key not in self._unanswered
        return young < MANY and answering < self._at_once()

    def _begin(self, part: str, site: Site, take: Callable[[datetime, float, Site], None]) -> None:
        key = (part, site.name)
        at, begun = self._clock.now(), self._clock.monotonic()
        with self._lock:
            if key in self._under_way:
                self.gaps += 1
                return
            self._under_way[key] = self._begun[key] = begun
        try:
            self._pool.submit(self._take, key, lambda: take(at, begun, site))
        except RuntimeError:  # it is closed
            with self._lock:
                self._under_way.pop(key, None)

    def _take(self, key: tuple[str, str], take: Callable[[], None]) -> None:
        answered, cpu_s = False, time.thread_time()
        try:
            take()
            answered = True
        except SpeckError as error:
            LOG.debug("no measures of the %s of %s: %s", *key, error)
        except Exception:
            LOG.exception("the look at the %s of %s failed", *key)
        finally:
            with self._ended:
                self._under_way.pop(key, None)
                self._ended.notify_all()
                self._cpu_s += time.thread_time() - cpu_s
                self.polls += answered
                self.gaps += not answered
                if answered:
                    self._unanswered.discard(key)
                else:
                    self._unanswered.add(key)
                    self._forget(*key)

    def _forget(self, part: str, site: str) -> None:
        """What was said before is not said of now."""
        state = self._sites.get(site)
        if state is not None and part == "engine":
            state.engine, state.samples = None, {}
        elif state is not None:
            state.broker, state.links = None, []

    def _poll_engine(
        self, here: Mapping[tuple[str, str], Incarnation], at: datetime, begun: float, site: Site
    ) -> None:
        engine = self._connections.engine(site.name)
        measures = engine.measure([each.engine_job_id for each in here.values()])
        self._refuse_late(begun)
        host = self._host_of(site)
        with self._lock:
            state = self._sites.setdefault(site.name, _Site())
            state.engine = measures
            state.samples = samples = samples_of(at, measures, state.samples)
        self._append(TASKS, task_rows(at, samples, here, host))
        calibration = self._records.calibrations.get(site.name)
        self._append(SITES, [site_row(at, site, measures, host, calibration)])
        self._append(PLANS, self._plans(site, at, here, measures))

    def _poll_broker(self, ends: Ends, at: datetime, begun: float, site: Site) -> None:
        measures, view = self._connections.broker(site.name).measure()
        self._refuse_late(begun)
        rows = link_rows(at, site.name, view, ends)
        with self._lock:
            state = self._sites.setdefault(site.name, _Site())
            links, state.joined = since_joining(rows, view, state.joined)
            state.broker, state.links = measures, links
        self._append(BROKERS, [broker_row(at, site.name, measures)])
        self._append(LINKS, links)

    def _refuse_late(self, begun: float) -> None:
        took = self._clock.monotonic() - begun
        if took > POLL_S:
            raise TransientError(f"cannot use a look that took {took:.1f} s")

    def _plans(
        self,
        site: Site,
        at: datetime,
        here: Mapping[tuple[str, str], Incarnation],
        measures: EngineMeasures,
    ) -> list[Row]:
        """Of incarnations whose plan was not written down of late."""
        now = self._clock.monotonic()
        with self._lock:
            told = self._sites[site.name].plans
            for gone in told.keys() - {each.engine_job_id for each in here.values()}:
                del told[gone]
        rows: list[Row] = []
        for (scope, name), each in here.items():
            job_id = each.engine_job_id
            marks = self._wanted.marks(scope).get(name, Marks())
            last, before = told.get(job_id, (float("-inf"), marks))
            due = now - last >= PLANS_EVERY_S or marks != before
            if not due or job_id not in measures.jobs:
                continue
            nodes = self._plan(site.name, name, job_id)
            if nodes is not None:
                rows += plan_rows(
                    at, scope, each, nodes, pinned=marks.pinned, stateful=marks.stateful
                )
                told[job_id] = now, marks
        return rows

    def _plan(self, site: str, name: str, job_id: str) -> tuple[PlanNode, ...] | None:
        try:
            return plan_nodes(self._connections.engine(site).job_plan(job_id))
        except (SpeckError, KeyError, TypeError, ValueError, AttributeError) as error:
            LOG.info("no plan of %s: %s", name, error)
            return None

    def _host_of(self, site: Site) -> Host:
        """By the site's agent; this machine itself when the engine is on it; else not known."""
        told, seen = self._beat(site.name)
        fresh = seen is not None and self._clock.now() - seen <= timedelta(seconds=BEAT_S)
        if fresh and isinstance(told.get("cpu"), int | float):
            return Host(float(told["cpu"]), _whole(told.get("cores")))
        host = urlsplit(site.spe.address).hostname or ""
        if host in ("localhost", "::1") or host.startswith("127."):
            return self._own
        return Host()

    # -- the dataset ----------------------------------------------------------------------

    def _append(self, table: Table, rows: list[Row]) -> None:
        if rows:
            try:
                self._writer.append(table, rows)
            except TransientError as error:  # the rows are kept
                self._tell(str(error))

    def _tell(self, failure: str | None) -> None:
        with self._lock:
            before, self._failing = self._failing, failure
        if (before is None) == (failure is None):
            return
        message = failure or "metrics are written again"
        LOG.warning("%s", message)
        try:
            self._records.write(self._records.event("metrics", message))
        except SpeckError as error:  # the same disk
            LOG.info("no event: %s", error)

    def _tend_now_and_then(self) -> None:
        now = self._clock.monotonic()
        under_way = self._tending is not None and not self._tending.done()
        if not under_way and now - self._tended >= TEND_EVERY_S:
            self._tended = now
            self._tending = self._pool.submit(self._tend)

    def _tend(self) -> None:
        try:
            done = tend(self._writer.root, self._clock.now(), self._days)
        except TransientError as error:
            LOG.warning("%s", error)
        except Exception:
            LOG.exception("cannot tend the metrics")
        else:
            if done.busy:
                self._tended = self._clock.monotonic() - TEND_EVERY_S + TEND_AGAIN_S
            for each in done.damaged:
                LOG.warning("%s", each)

    # -- a round --------------------------------------------------------------------------

    def _look_around(self) -> None:
        self._await_calm(self._task.stopping)
        if self._task.stopping.is_set():
            return
        self.poll()
        if self._failing is not None:
            self.flush()
        self._tend_now_and_then()

    def _pause_s(self) -> float:
        """Looks begin every `every_s` seconds, however long they take; one that comes late is
        not made up for."""
        now = self._clock.monotonic()
        self._due = max(self._due + self._every_s, now)
        return self._due - now


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
