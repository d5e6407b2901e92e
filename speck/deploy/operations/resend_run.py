"""Runs the sink of an ended incarnation once more, to send what its broker has forgotten."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress

from speck.binding import Artifact, StateKeeper, Submission
from speck.clock import Clock, Event
from speck.errors import DuplicateJobError, EngineRefusedError
from speck.model.ids import producer_epoch
from speck.model.incarnation import EndedSink, Incarnation
from speck.model.observation import RunState
from speck.sites.connections import Connections
from speck.spec.job_contract import render_args
from speck.store.records import Records

_LIMIT_S = 60.0
_POLL_S = 0.25
_ENDED_IN_VAIN = (None, RunState.FAILED, RunState.CANCELED)


class ResendRun:
    """One try at an engine: find the state, begin, await the end."""

    def __init__(
        self,
        connections: Connections,
        records: Records,
        clock: Clock,
        artifact: Callable[[str], Artifact],
        keeper: StateKeeper,
    ):
        self._connections = connections
        self._records = records
        self._clock = clock
        self._artifact = artifact
        self._keeper = keeper

    def is_under_way(self, sink: EndedSink) -> bool:
        """Whether the newest try, which an earlier life of the service has begun, may succeed, or
        has."""
        engine = self._connections.engine_of(sink.incarnation.job.engine)
        return engine.status(self._id_of(sink)) not in _ENDED_IN_VAIN

    def find_state(self, incarnation: Incarnation) -> str | None:
        """The state in which an incarnation has ended, or an earlier one if that has none."""
        if incarnation.savepoint is not None:
            return incarnation.savepoint
        if (path := self._find_own_state(incarnation)) is not None:
            return path
        return self.find_state(incarnation.base) if incarnation.base is not None else None

    def _find_own_state(self, incarnation: Incarnation) -> str | None:
        engine, job_id = incarnation.job.engine, incarnation.engine_job_id
        try:
            newest = self._connections.engine_of(engine).newest_state(job_id)
        except EngineRefusedError:
            newest = self._keeper.newest(engine, job_id, incarnation.checkpoints)
        return newest.location if newest is not None else None

    def begin(self, sink: EndedSink, state: str) -> None:
        """Submit the sink with the state, for its own link alone: what was sent to others of the
        port is settled, or sent again by sinks of theirs. Raises what `StreamEngine.resend`
        raises."""
        job = sink.incarnation.job.at_addresses_of(self._records.sites.all())
        epoch = producer_epoch(self._records.generation, sink.incarnation.attempt)
        submission = Submission(
            engine_job_id=self._id_of(sink),
            job_name=job.job_name,
            artifact=self._artifact(job.artifact),
            entry=job.entry_class,
            args=render_args(job, self._records.installation, epoch, True, only=sink.link),
            state=state,
        )
        with suppress(DuplicateJobError):
            self._connections.engine_of(job.engine).resend(submission)

    def await_end(self, sink: EndedSink, end: Event) -> bool:
        """Whether the broker has everything. It is cancelled if that takes too long; `end` ends the
        wait only."""
        until = self._clock.monotonic() + _LIMIT_S
        engine = self._connections.engine_of(sink.incarnation.job.engine)
        while not self._clock.wait_for(end, _POLL_S):
            state = engine.status(self._id_of(sink))
            if state is RunState.FINISHED:
                return True
            if state in _ENDED_IN_VAIN:
                return False
            if self._clock.monotonic() > until:
                engine.cancel(self._id_of(sink))
                return False
        return False

    def _id_of(self, sink: EndedSink) -> str:
        return id_of(sink, self._records.generation)


def id_of(sink: EndedSink, generation: int) -> str:
    """The engine job id of its newest try, in this generation of the store."""
    text = f"resend|{generation}|{sink.incarnation.engine_job_id}|{sink.client_id}|{sink.tries}"
    return hashlib.sha256(text.encode()).hexdigest()[:32]
