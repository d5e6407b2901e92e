"""Sends again what brokers have forgotten of sinks that have ended.

A broker that is killed forgets what came since its last autosave. A sink that runs sends that
again; one that has left its link for good cannot. So it stays responsible after its end, until its
broker has run on for several autosaves: if the broker is restarted before, the sink alone is
started once more, from the state in which its job ended.
"""

from __future__ import annotations

import logging
import math
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

from speck.binding import EngineCapability
from speck.clock import Clock, Event
from speck.deploy.capabilities import forget_sinks
from speck.deploy.operations.resend_run import ResendRun, id_of
from speck.deploy.operations.successors import Successors
from speck.deploy.scheduler import THREADS, Scheduler
from speck.errors import SpeckError, StoreError, TransientError
from speck.model.composition import visible_name
from speck.model.incarnation import EndedSink, Incarnation
from speck.model.job import Delivery, Job
from speck.model.link import Link
from speck.model.observation import BrokerView
from speck.model.values import cut
from speck.sites.connections import Connections
from speck.spec.job_contract import reports_numbers
from speck.store.records import Records
from speck.store.tables import Batch

LOG = logging.getLogger(__name__)

SETTLED_S = 15.0
"""Three autosave intervals of the brokers that speck sets up: by then everything is saved. A job
with a longer `--resend-window` has a broker with longer intervals."""
_TRIES = 5
_LONGEST_PAUSE_S = 60.0
_MOST_KEPT = 10_000

_Key = tuple[str, str, str]
"""(scope, engine job id of the incarnation, client id): each link of a port is settled by itself,
since its sink may be let go of before the others."""


@dataclass(frozen=True, slots=True)
class _Times:
    """When a sink was asked to end, or to send again: what it published since may not be saved. And
    when it had ended at the latest. Monotonic: the wall clock may jump."""

    since: float
    ended: float


class Resends:
    """The sinks that have ended, and those that send again, each in a thread of its own."""

    def __init__(
        self,
        connections: Connections,
        records: Records,
        clock: Clock,
        run: ResendRun,
        scheduler: Scheduler = THREADS,
    ):
        self._connections = connections
        self._records = records
        self._clock = clock
        self._run = run
        self._successors = Successors(records)
        self._scheduler = scheduler
        self._asked: dict[str, float] = {}
        self._times: dict[_Key, _Times] = {}
        self._not_before: dict[_Key, float] = {}
        self._lock = scheduler.lock()
        self._under_way: dict[_Key, Event] = {}
        """What is to be set to end one early."""
        self._settling: set[str] = set()
        self._closed = False

    def close(self) -> None:
        """Begin nothing more. What is under way goes on at its engine, and is taken up later."""
        with self._lock:
            self._closed = True
            for end in self._under_way.values():
                end.set()

    # -- what operations report -------------------------------------------------------------

    def ask(self, engine_job_id: str) -> None:
        """An incarnation is asked to end."""
        if len(self._asked) >= _MOST_KEPT:
            self._asked.clear()
        self._asked.setdefault(engine_job_id, self._clock.monotonic())

    def find_asked(self, incarnation: Incarnation) -> float:
        """When (monotonic) it was asked to end: the wall clock may jump. If that was in an earlier
        life of the service, what its record says; minus infinity if that cannot be."""
        known = self._asked.get(incarnation.engine_job_id)
        return self._to_monotonic(incarnation.asked_ms or 0) if known is None else known

    def put_ended(self, scope: str, incarnation: Incarnation) -> Batch:
        """The writes for an incarnation that has ended, if its sink may have to send again. Where
        it is not known when it was asked to end, its broker may have been restarted since."""
        now, now_ms = self._clock.monotonic(), self._now_ms()
        since = self._asked.get(incarnation.engine_job_id, -math.inf)
        job = incarnation.job
        if not (incarnation.has_state and self._can_resend(job)):
            return {}
        own = replace(incarnation, left=(), stale=(), former_sinks=())
        since_ms = 0 if since == -math.inf else now_ms - round((now - since) * 1000)
        if len(self._times) >= _MOST_KEPT:
            self._times.clear()  # the records say it, too
        batch: Batch = {}
        for link in filter(self._records.sessions.has_reserved, job.port):
            sink = EndedSink(own, link, self._successors.sink_of(job, link), since_ms)
            for at, former in self._records.ended_sinks.on_link(link):
                if (at, former.client_id) == (scope, sink.client_id):  # its window is in this state
                    batch |= self._records.ended_sinks.drop(scope, former)
            self._times[_key(scope, sink)] = _Times(since, now)
            batch |= self._records.ended_sinks.put(scope, sink)
        return batch

    def end(self, job: Job) -> None:
        """Let nothing be sent again under the client ids of a job's sinks: the job is about to
        start, and sends again itself."""
        for link in job.port:
            for scope, sink in self._records.ended_sinks.on_link(link):
                if sink.client_id == self._successors.sink_of(job, link):
                    self._end(scope, sink)

    def leave(self, link: Link) -> Batch:
        """The writes for a link whose last session has been released."""
        there = self._records.ended_sinks.on_link(link)
        left = [
            each for each in there if not self._successors.use(*each)
        ]  # not those of jobs that go on
        try:
            self._clear(left)
        except SpeckError as error:
            LOG.info("%s; tried again", error)
            return {}
        return self.let_go(link, [sink.client_id for _, sink in left])

    def let_go(self, link: Link, client_ids: Collection[str]) -> Batch:
        """The writes for sinks that need not send again."""
        batch: Batch = {}
        for scope, sink in self._records.ended_sinks.on_link(link):
            if sink.client_id in client_ids:
                self._end(scope, sink)
                batch |= self._records.ended_sinks.drop(scope, sink)
        return batch

    # -- what views of brokers show -------------------------------------------------------

    def look(self, site: str, view: BrokerView, begun: float, busy: Callable[[str], bool]) -> None:
        """Begin what a view of a site's broker (`begun`: monotonic) shows to be needed, and let go
        of sinks whose messages are saved, or whose link nobody reads. Scopes that are `busy` with a
        change look after their own. Does no I/O in this thread."""
        settled: list[tuple[str, EndedSink]] = []
        for scope, sink in self._records.ended_sinks.all():
            if sink.site != site or _key(scope, sink) in self._under_way:
                continue
            newer = self._successors.find_newer(scope, sink)
            if newer is not None:
                is_over = newer.confirmed
            elif not self._records.sessions.has_reserved(sink.link):
                is_over = not busy(scope)
            elif self._has_forgotten(view, scope, sink):
                is_over = False
                if not busy(scope):
                    self._begin(scope, sink)
            else:
                ended = self._times_of(scope, sink).ended
                is_over = begun - ended >= _settling_time(sink.incarnation.job)
            if is_over:
                settled.append((scope, sink))
        if settled and site not in self._settling:
            self._settling.add(site)
            self._scheduler.start(partial(self._settle, site, settled), name=f"settle-{site}")

    def await_all(self, link: Link, view: BrokerView) -> bool:
        """Whether messages of a link have to be sent again before its readers have all; begins to
        send them."""
        forgotten = [
            (scope, sink)
            for scope, sink in self._records.ended_sinks.on_link(link)
            if self._has_forgotten(view, scope, sink)
            and self._successors.find_newer(scope, sink) is None
        ]
        for scope, sink in forgotten:
            self._begin(scope, sink)
        return bool(forgotten)

    def _has_forgotten(self, view: BrokerView, scope: str, sink: EndedSink) -> bool:
        """Whether the broker may have been restarted since the sink was asked to end."""
        return view.up_since is not None and view.up_since > self._times_of(scope, sink).since

    def _times_of(self, scope: str, sink: EndedSink) -> _Times:
        """Of a sink that has ended in an earlier life of the service, what its record says."""
        key = _key(scope, sink)
        if key not in self._times:
            self._times[key] = _Times(self._to_monotonic(sink.since_ms), self._clock.monotonic())
        return self._times[key]

    def _to_monotonic(self, past_ms: int) -> float:
        """The monotonic time of one in Unix milliseconds; minus infinity for 0 (not known), and for
        one to come: then the wall clock was set back."""
        passed_ms = self._now_ms() - past_ms
        return (
            self._clock.monotonic() - passed_ms / 1000 if past_ms and passed_ms >= 0 else -math.inf
        )

    def _can_resend(self, job: Job) -> bool:
        if job.delivery is Delivery.AT_MOST_ONCE or not reports_numbers(job):
            return False
        with suppress(SpeckError):
            capabilities = self._connections.engine_of(job.engine).capabilities
            return EngineCapability.RESEND in capabilities
        return False

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)

    def _clear(self, sinks: Iterable[tuple[str, EndedSink]]) -> None:
        """Clear the numbers that they have reported, which their jobs have left to them."""
        by_site: defaultdict[str, list[str]] = defaultdict(list)
        for scope, sink in sinks:
            if not self._successors.use(scope, sink):
                by_site[sink.site].append(sink.client_id)
        for site, client_ids in by_site.items():
            forget_sinks(self._connections, site, client_ids)

    def _end(self, scope: str, sink: EndedSink) -> None:
        with self._lock:
            end = self._under_way.get(_key(scope, sink))
        if end is not None:
            end.set()
        if sink.is_open:
            with suppress(SpeckError):
                engine = self._connections.engine_of(sink.incarnation.job.engine)
                engine.cancel(id_of(sink, self._records.generation))

    # -- in threads of their own ----------------------------------------------------------

    def _settle(self, site: str, settled: list[tuple[str, EndedSink]]) -> None:
        try:
            self._clear(settled)
            self._drop(settled)
        except SpeckError as error:
            LOG.info("%s; tried again", error)
        finally:
            self._settling.discard(site)

    def _drop(self, sinks: Sequence[tuple[str, EndedSink]], event: Batch | None = None) -> None:
        """Drop sinks that send nothing again, together with the event that tells so."""
        batch: Batch = dict(event or {})
        for scope, sink in sinks:
            batch |= self._records.ended_sinks.drop(scope, sink)
        self._records.write(batch)
        for scope, sink in sinks:
            self._times.pop(_key(scope, sink), None)
            self._not_before.pop(_key(scope, sink), None)

    def _begin(self, scope: str, sink: EndedSink) -> None:
        key = _key(scope, sink)
        if self._clock.monotonic() < self._not_before.get(key, -math.inf):
            return
        with self._lock:
            if self._closed or key in self._under_way:
                return
            end = self._under_way[key] = self._scheduler.event()
        name = f"resend-{sink.incarnation.job.job_name}"
        self._scheduler.start(partial(self._work, scope, sink, end), name)

    def _work(self, scope: str, sink: EndedSink, end: Event) -> None:
        try:
            self._resend(scope, sink, end)
        except (TransientError, StoreError) as error:
            self._pause(scope, sink)
            LOG.warning("%s; tried again", error)
        except SpeckError as error:
            self._count_failure(scope, sink, str(error))
        except Exception:
            self._pause(scope, sink)
            LOG.exception("cannot send again what %s has sent", sink.client_id)
        finally:
            with self._lock:
                del self._under_way[_key(scope, sink)]

    def _resend(self, scope: str, sink: EndedSink, end: Event) -> None:
        is_adopted = sink.is_open and self._run.is_under_way(sink)
        began = -math.inf if is_adopted else self._clock.monotonic()
        if not is_adopted:
            state = self._run.find_state(sink.incarnation)
            if state is None:
                self._give_up(scope, sink, "the state in which its job ended is gone")
                return
            sink = replace(sink, tries=sink.tries + 1, is_open=True)
            self._records.write(self._records.ended_sinks.put(scope, sink))
            self._run.begin(sink, state)
        is_done = self._run.await_end(sink, end)
        if is_done:
            now = self._clock.monotonic()
            self._times[_key(scope, sink)] = _Times(began, now)
            since_ms = 0 if is_adopted else self._now_ms() - round((now - began) * 1000)
            done = replace(sink, since_ms=since_ms, is_open=False, failed=0)
            event = self._make_event(scope, sink, "sent again")
            self._records.write(self._records.ended_sinks.put(scope, done), event)
        elif not end.is_set():
            self._count_failure(scope, sink, "it did not come to its end in time")

    def _count_failure(self, scope: str, sink: EndedSink, why: str) -> None:
        sink = replace(sink, is_open=False, failed=sink.failed + 1)
        if sink.failed >= _TRIES:
            self._give_up(scope, sink, f"tried {sink.failed} times: {why}")
            return
        self._records.write(self._records.ended_sinks.put(scope, sink))
        self._pause(scope, sink)
        LOG.warning("cannot send again what %s has sent: %s; tried again", sink.client_id, why)

    def _pause(self, scope: str, sink: EndedSink) -> None:
        pause_s = min(2.0**sink.failed, _LONGEST_PAUSE_S)
        self._not_before[_key(scope, sink)] = self._clock.monotonic() + pause_s

    def _give_up(self, scope: str, sink: EndedSink, why: str) -> None:
        with suppress(SpeckError):
            self._clear([(scope, sink)])
        self._drop([(scope, sink)], self._make_event(scope, sink, f"cannot be sent again: {why}"))

    def _make_event(self, scope: str, sink: EndedSink, what: str) -> Batch:
        job = sink.incarnation.job
        return self._records.events.make(
            "session",
            f"what the broker of {sink.site} may have forgotten of {job.job_name}'s last messages"
            f" on {cut(sink.link.topic)} when it was restarted: {what}",
            site=sink.site,
            job_name=job.job_name,
            composition=visible_name(scope),
        )


def _key(scope: str, sink: EndedSink) -> _Key:
    return scope, sink.incarnation.engine_job_id, sink.client_id


def _settling_time(job: Job) -> float:
    """Seconds after which the broker of a job's sink has saved everything."""
    window = dict(pairwise(job.args)).get("--resend-window", "")
    match = re.fullmatch(r"(\d+) ?(ms|s|min|m|h)", window.strip())
    if match is None:
        return SETTLED_S
    units = {"ms": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
    return max(SETTLED_S, int(match[1]) * units[match[2]])
