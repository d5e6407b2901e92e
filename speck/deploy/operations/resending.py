"""Sends again what brokers have forgotten of sinks that have ended.

A broker that is killed forgets what came since its last autosave. A sink that runs sends that
again; one that has left its link for good cannot. So it stays responsible after its end, until its
broker has run on for several autosaves: if the broker is restarted before, the sink alone is
started once more, from the state in which its job ended.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from speck.binding import EngineCapability, StateKeeper, Submission
from speck.clock import Clock
from speck.errors import (
    DuplicateJobError,
    EngineRefusedError,
    PermanentError,
    SpeckError,
    TransientError,
)
from speck.model.composition import visible_name
from speck.model.ids import producer_epoch, sink_client_id
from speck.model.incarnation import EndedSink, Incarnation
from speck.model.job import Delivery, Job
from speck.model.link import Link
from speck.model.observation import BrokerView, RunState
from speck.model.values import cut
from speck.sites.connections import Connections
from speck.spec.job_contract import render_args, reports_numbers
from speck.store.records import Records
from speck.store.tables import Batch

LOG = logging.getLogger(__name__)

SETTLED_S = 15.0
"""Three autosave intervals of the brokers that speck sets up: by then everything is saved."""
_LIMIT_S = 60.0
_POLL_S = 0.25
_TRIES = 5
_OVER = (None, RunState.FAILED, RunState.CANCELED)


class Resends:
    """The sinks that have ended, and those that send again, each in a thread of its own."""

    def __init__(
        self,
        connections: Connections,
        records: Records,
        clock: Clock,
        jar_file: Callable[[str], Path],
        keeper: StateKeeper,
    ):
        self._connections = connections
        self._records = records
        self._clock = clock
        self._jar_file = jar_file
        self._keeper = keeper
        self._asked: dict[str, int] = {}
        self._lock = threading.Lock()
        self._under_way: dict[tuple[str, EndedSink], threading.Event] = {}
        """What is to be set to end one early."""
        self._closed = threading.Event()

    def close(self) -> None:
        """Begin nothing more. What is under way goes on at its engine."""
        self._closed.set()
        with self._lock:
            for end in self._under_way.values():
                end.set()

    def ask(self, engine_job_id: str) -> None:
        """An incarnation is asked to end: what it has published by now may not be saved."""
        self._asked.setdefault(engine_job_id, self._now_ms())

    def note(self, scope: str, incarnation: Incarnation) -> Batch:
        """The writes for an incarnation that has ended, if its sink may have to send again."""
        asked_ms = self._asked.pop(incarnation.engine_job_id, 0)  # 0: a restarted service
        job = incarnation.job
        if not (incarnation.has_state and self._can_resend(job)):
            return {}
        if not self._records.has_sessions(job.sink):
            return {}
        own = replace(incarnation, left=(), stale=(), former_sinks=())
        return self._records.put_ended_sink(scope, EndedSink(own, self._sink_of(job), asked_ms))

    def look(self, site: str, view: BrokerView, begun: float, busy: Callable[[str], bool]) -> None:
        """Begin what a view of a site's broker (`begun`: monotonic) shows to be needed, and let go
        of sinks whose messages are saved. Scopes that are `busy` with a change look after their
        own."""
        settled: list[tuple[str, EndedSink]] = []
        there = [each for each in self._records.all_ended_sinks() if each[1].site == site]
        for scope, sink in there:
            newer = self._find_newer(sink)
            if newer is not None:
                if newer.confirmed:
                    self._records.write(self._records.drop_ended_sink(scope, sink))
            elif self._has_forgotten(view, sink):
                if not busy(scope):
                    self._begin(scope, sink)
            elif begun - self._ended_at(sink) >= SETTLED_S:
                settled.append((scope, sink))
        if settled:
            name = f"settle-{site}"
            threading.Thread(target=self._settle, args=(settled,), name=name, daemon=True).start()

    def await_all(self, link: Link, view: BrokerView) -> bool:
        """Whether messages of a link have to be sent again before its readers have all; begins to
        send them."""
        forgotten = [
            (scope, sink)
            for scope, sink in self._records.ended_sinks_on(link)
            if self._has_forgotten(view, sink) and self._find_newer(sink) is None
        ]
        for scope, sink in forgotten:
            self._begin(scope, sink)
        return bool(forgotten)

    def end(self, job: Job) -> None:
        """Let nothing be sent again under the client id of a job's sink: the job is about to start,
        and sends again itself."""
        for scope, sink in self._records.ended_sinks_on(job.sink):
            if sink.client_id == self._sink_of(job):
                self._end(scope, sink)

    def leave(self, link: Link) -> Batch:
        """The writes for a link whose last session has been released."""
        batch: Batch = {}
        there = self._records.ended_sinks_on(link)
        for scope, sink in there:
            self._end(scope, sink)
            batch |= self._records.drop_ended_sink(scope, sink)
        with suppress(SpeckError):
            self._clear(sink for _, sink in there)
        return batch

    def _end(self, scope: str, sink: EndedSink) -> None:
        with self._lock:
            ends = [
                end
                for (at, each), end in self._under_way.items()
                if (at, each.client_id, each.link) == (scope, sink.client_id, sink.link)
            ]
        for end in ends:
            end.set()
        if sink.failed:
            with suppress(SpeckError):
                self._connections.engine(sink.incarnation.job.site).cancel(_id_of(sink))

    def _find_newer(self, sink: EndedSink) -> Incarnation | None:
        """A newer incarnation that may run with the same sink. It sends again itself."""
        name = sink.incarnation.job.job_name
        for (_, job_name), newest in self._records.all_incarnations().items():
            may_run = not (newest.ended or newest.void)
            if job_name == name and may_run and self._sink_of(newest.job) == sink.client_id:
                return newest
        return None

    def _sink_of(self, job: Job) -> str:
        return sink_client_id(self._records.installation, job.job_name, job.source, job.sink)

    def _can_resend(self, job: Job) -> bool:
        if job.delivery is Delivery.AT_MOST_ONCE or not reports_numbers(job):
            return False
        with suppress(SpeckError):
            capabilities = self._connections.engine(job.site).capabilities
            return EngineCapability.RESEND in capabilities
        return False

    def _has_forgotten(self, view: BrokerView, sink: EndedSink) -> bool:
        """Whether the broker may have been restarted since the sink's end."""
        return view.up_since is not None and view.up_since > self._ended_at(sink)

    def _ended_at(self, sink: EndedSink) -> float:
        """Monotonic."""
        return self._clock.monotonic() - (self._now_ms() - sink.at_ms) / 1000

    def _now_ms(self) -> int:
        return int(self._clock.now().timestamp() * 1000)

    def _uses(self, sink: EndedSink) -> bool:
        """Whether the newest incarnation of its job is responsible for the number that the sink has
        reported."""
        name = sink.incarnation.job.job_name
        return any(
            sink.client_id in (self._sink_of(newest.job), *newest.former_sinks)
            for (_, job_name), newest in self._records.all_incarnations().items()
            if job_name == name
        )

    def _clear(self, sinks: Iterable[EndedSink]) -> None:
        """Clear the numbers that they have reported, which their jobs have left to them."""
        by_site: defaultdict[str, list[str]] = defaultdict(list)
        for sink in sinks:
            if not self._uses(sink):
                by_site[sink.site].append(sink.client_id)
        for site, client_ids in by_site.items():
            self._connections.broker(site).forget(*client_ids)

    # -- in a thread of its own -----------------------------------------------------------

    def _settle(self, settled: list[tuple[str, EndedSink]]) -> None:
        """Their broker has saved everything."""
        try:
            self._clear(sink for _, sink in settled)
            for scope, sink in settled:
                self._replace(scope, sink, None)
        except SpeckError as error:
            LOG.info("%s; tried again", error)

    def _begin(self, scope: str, sink: EndedSink) -> None:
        with self._lock:
            key = (scope, sink.client_id, sink.link)
            under_way = {(at, each.client_id, each.link) for at, each in self._under_way}
            if self._closed.is_set() or key in under_way:
                return
            end = self._under_way[scope, sink] = threading.Event()
        name = f"resend-{sink.incarnation.job.job_name}"
        threading.Thread(target=self._work, args=(scope, sink, end), name=name, daemon=True).start()

    def _work(self, scope: str, sink: EndedSink, end: threading.Event) -> None:
        try:
            self._resend(scope, sink, end)
        except TransientError as error:
            LOG.warning("%s; tried again", error)
        except PermanentError as error:
            self._give_up(scope, sink, str(error))
        except Exception:
            LOG.exception("cannot send again what %s has sent", sink.client_id)
        finally:
            with self._lock:
                self._under_way.pop((scope, sink), None)

    def _resend(self, scope: str, sink: EndedSink, end: threading.Event) -> None:
        job = sink.incarnation.job.at_addresses_of(self._records.sites())
        engine = self._connections.engine(job.site)
        if sink.failed and engine.status(_id_of(sink)) not in _OVER:
            tried = sink  # begun before the service was restarted
        else:
            state = self._find_state(sink.incarnation)
            if state is None:
                self._replace(scope, sink, None)
                return
            tried = replace(sink, tries=sink.tries + 1, failed=sink.failed + 1)
            if not self._replace(scope, sink, tried):
                return
            with suppress(DuplicateJobError):
                engine.resend(self._make_submission(job, tried, state))
        if self._await_end(job.site, tried, end):
            done = replace(tried, at_ms=self._now_ms(), failed=0)
            if self._replace(scope, tried, done):
                self._report(scope, sink, "sent again")
        elif tried.failed >= _TRIES:
            raise PermanentError(f"it was tried {_TRIES} times")

    def _find_state(self, incarnation: Incarnation) -> str | None:
        """The state in which an incarnation has ended, or an earlier one if that has none."""
        if incarnation.savepoint is not None:
            return incarnation.savepoint
        if (path := self._find_own_state(incarnation)) is not None:
            return path
        return self._find_state(incarnation.base) if incarnation.base is not None else None

    def _find_own_state(self, incarnation: Incarnation) -> str | None:
        site, job_id = incarnation.job.site, incarnation.engine_job_id
        try:
            newest = self._connections.engine(site).newest_state(job_id)
        except EngineRefusedError:
            newest = self._keeper.newest(site, job_id, incarnation.checkpoints)
        return newest.path if newest is not None else None

    def _make_submission(self, job: Job, sink: EndedSink, state: str) -> Submission:
        epoch = producer_epoch(self._records.generation, sink.incarnation.attempt)
        return Submission(
            engine_job_id=_id_of(sink),
            job_name=job.job_name,
            jar=job.jar,
            jar_file=self._jar_file(job.jar),
            entry_class=job.entry_class,
            args=render_args(replace(job, args=()), self._records.installation, epoch, True),
            savepoint=state,
        )

    def _await_end(self, site: str, sink: EndedSink, end: threading.Event) -> bool:
        """Whether the broker has everything. It is cancelled if that takes too long, or is not
        wanted any more."""
        until = self._clock.monotonic() + _LIMIT_S
        engine = self._connections.engine(site)
        while not self._clock.wait_for(end, _POLL_S):
            state = engine.status(_id_of(sink))
            if state is RunState.FINISHED:
                return True
            if state is None or state.terminal:
                return False
            if self._clock.monotonic() > until:
                break
        if not self._closed.is_set():
            engine.cancel(_id_of(sink))
        return False

    def _replace(self, scope: str, old: EndedSink, new: EndedSink | None) -> bool:
        """Store a sink anew, or drop it, unless that was done since."""
        with self._lock:
            if (scope, old) not in self._records.ended_sinks_on(old.link):
                return False
            records = self._records
            batch = records.drop_ended_sink(scope, old)
            self._records.write(batch if new is None else records.put_ended_sink(scope, new))
        return True

    def _give_up(self, scope: str, sink: EndedSink, why: str) -> None:
        self._records.write(self._records.drop_ended_sink(scope, sink))
        self._report(scope, sink, f"cannot be sent again: {why}")

    def _report(self, scope: str, sink: EndedSink, what: str) -> None:
        job = sink.incarnation.job
        self._records.write(
            self._records.event(
                "session",
                f"what the broker of {sink.site} may have forgotten of {job.job_name}'s last"
                f" messages on {cut(sink.link.topic)} when it was restarted: {what}",
                site=sink.site,
                job_name=job.job_name,
                composition=visible_name(scope),
            )
        )


def _id_of(sink: EndedSink) -> str:
    """The engine job id of its newest try."""
    text = f"resend|{sink.incarnation.engine_job_id}|{sink.client_id}|{sink.tries}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
