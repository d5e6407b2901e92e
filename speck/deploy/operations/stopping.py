"""Stops an incarnation with a savepoint, and cancels it if that cannot finish."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from speck.binding import SaveProgress, StreamEngine, find_taker, state_layout
from speck.deploy.finished_jobs import finish
from speck.deploy.operations.context import Context
from speck.deploy.operations.drain_followers import refuse_to_stop
from speck.deploy.operations.ending import cancel_and_wait, conclude
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.errors import EngineRefusedError, PermanentError, SpeckError
from speck.model.engines import EngineAt
from speck.model.incarnation import EndState, Incarnation
from speck.model.job_operations import Fence, Stop
from speck.model.observation import EngineJob, RunState


@dataclass(slots=True)
class Stopping:
    """Stops with a savepoint, waits while that makes progress, and cancels when it does not.

    No engine takes a savepoint before all tasks run, and a job that is cancelled just after has
    published without a checkpoint. So one whose tasks are starting is waited for, for a while.

    At most one savepoint is requested of an incarnation; the request is stored before it is sent.
    An engine may restart a job whose stop has failed. The job is cancelled then, since a second
    stop could end it in the middle of what the first one began. After a cancellation the newest
    checkpoint is the newest state; the next start finds it.
    """

    context: Context
    operation: Stop | Fence
    best: tuple[bool, int] = (False, -1)
    began: float = 0.0
    since: float = 0.0
    polled_at: float = 0.0
    over: RunState | None = None
    """The terminal state, once a poll of the engine has shown it."""

    @property
    def _trigger(self) -> str:
        return hashlib.sha256(f"stop|{self.operation.engine_job_id}".encode()).hexdigest()[:32]

    @property
    def _where(self) -> EngineAt:
        return self.context.find_engine(self.operation.job_name, self.operation.engine_job_id)

    @property
    def _engine(self) -> StreamEngine:
        return self.context.connections.engine_of(self._where)

    def begin(self) -> Outcome:
        """Request the savepoint, once all tasks run, or go on with an earlier request."""
        state = self._engine.status(self.operation.engine_job_id)
        if state is RunState.STARTING and not self._find_incarnation().stopping:
            return self._await_tasks()
        return self._request(state)

    def _await_tasks(self) -> Waiting:
        self.began = self.polled_at = self.context.clock.monotonic()

        def ready(jobs: Mapping[str, EngineJob]) -> bool:
            job = jobs.get(self.operation.engine_job_id)
            self._discount_silence()
            is_overdue = self.polled_at - self.began > self.context.patience.stop_starting_s
            return is_overdue or job is None or job.state is not RunState.STARTING

        def finish() -> Outcome:
            return self._request(self._engine.status(self.operation.engine_job_id))

        return Waiting(
            self._where,
            ready,
            finish,
            float("inf"),  # `ready` decides when to give up
            lambda: "",
            may_be_left=True,
            progress="waiting until all its tasks run",
        )

    def _request(self, state: RunState | None) -> Outcome:
        if state is None or state.terminal:
            return self._finish(state)
        job_id = self.operation.engine_job_id
        self.began = self.since = self.polled_at = self.context.clock.monotonic()
        incarnation = self._find_incarnation()
        if incarnation.stopping:
            try:
                self._engine.save_progress(job_id, self._trigger)
                return self._wait(None)
            except EngineRefusedError:  # the request never arrived, or has expired
                if self._engine.exceptions(job_id):
                    return self._give_up("it failed after its savepoint was requested")
        else:
            if not incarnation.ends_early:
                refuse_to_stop(self.context, incarnation.job)
            asked_ms = int(self.context.clock.now().timestamp() * 1000)
            stopping = replace(incarnation, end=EndState.STOPPING, asked_ms=asked_ms)
            self.context.records.write(self.context.records.incarnations.put(self._scope, stopping))
        self.context.refills.end(incarnation)
        self.context.resends.ask(job_id)
        try:
            self._engine.stop(job_id, self._target(), self._trigger)
        except EngineRefusedError as error:
            state = self._engine.status(job_id)
            if state is None or state.terminal:
                return self._finish(state)
            return self._give_up(str(error))
        return self._wait(None)

    @property
    def _scope(self) -> str:
        return self.context.scope

    def _find_incarnation(self) -> Incarnation:
        incarnation = self.context.find_incarnation(self.operation.job_name)
        assert incarnation is not None
        return incarnation

    def _target(self) -> str | None:
        """A folder of the incarnation's own, so that its savepoint is found by listing it."""
        operation = self.operation
        folder = self.context.keeper.folder(operation.site)
        taker = find_taker(self.context.connections.site(operation.site).spe, self._where.artifact)
        layout = state_layout(taker.kind)
        own = layout and layout.find_requested(operation.job_name, operation.engine_job_id)
        return f"{folder.rstrip('/')}/{own}" if folder and own else None

    def _wait(self, progress: SaveProgress | None) -> Waiting:
        def ready(jobs: Mapping[str, EngineJob]) -> bool:
            job = jobs.get(self.operation.engine_job_id)
            if job is not None and job.state.terminal:
                self.over = job.state
            if job is None or job.state.terminal:
                return True
            return (
                self.context.clock.monotonic() - self.polled_at > self.context.patience.stop_poll_s
            )

        return Waiting(
            self._where,
            ready,
            self._poll,
            float("inf"),  # `_poll` decides when to give up
            lambda: "",
            progress=_describe_progress(progress),
        )

    def _poll(self) -> Outcome:
        job_id = self.operation.engine_job_id
        self._discount_silence()
        state = self.over or self._engine.status(job_id)
        if state is None or state.terminal:
            return self._finish(state)
        try:
            progress = self._engine.save_progress(job_id, self._trigger)
        except EngineRefusedError as error:
            return self._give_up(str(error))
        if progress.done and progress.failure is not None:
            return self._give_up(progress.failure)
        nearer = (progress.done, progress.acknowledged or 0)
        if nearer > self.best:
            self.best, self.since = nearer, self.polled_at
        why = self._why_give_up()
        return self._give_up(why) if why else self._wait(progress)

    def _discount_silence(self) -> None:
        """Do not count the time in which the site did not answer."""
        now = self.context.clock.monotonic()
        silent = max(0.0, now - self.polled_at - _SILENCE_S)
        self.since += silent
        self.began += silent
        self.polled_at = now

    def _why_give_up(self) -> str | None:
        patience, idle = self.context.patience, self.polled_at - self.since
        if self.polled_at - self.began > patience.stop_s:
            return f"it did not finish in {patience.stop_s:.0f} s"
        if idle > (limit_s := self.context.find_limits(self._where).stop_idle_s):
            return f"it made no progress for {limit_s:.0f} s"
        if idle > patience.stop_sink_idle_s and not self._sink_answers():
            return "the broker of its sink does not answer"
        return None

    def _sink_answers(self) -> bool:
        """Whether its sink can reach its broker. If the broker has another address than the one
        that the incarnation was started with, it does not find it."""
        job = self._find_incarnation().job
        try:
            if self.context.connections.site(job.sink_site).broker.address != job.sink_broker:
                return False
            self.context.connections.broker(job.sink_site).reach()
        except SpeckError:
            return False
        return True

    def _give_up(self, why: str) -> Waiting:
        """Cancel it, and wait until it is gone."""
        return cancel_and_wait(
            self.context,
            self.operation,
            lambda: self._finish(self._engine.status(self.operation.engine_job_id), why),
            f"its savepoint cannot finish: {why}",
        )

    def _finish(self, state: RunState | None, gave_up: str | None = None) -> Done:
        """Store the end. If the savepoint of this stop is not known to be the newest state, the
        next start looks for it."""
        name, site = self.operation.job_name, self.operation.site
        if (savepoint := self._find_savepoint(state)) is not None:
            return conclude(self.context, self.operation, savepoint)
        is_exact = isinstance(self.operation, Stop) and self.operation.exact
        if is_exact and gave_up is None and state in (None, RunState.FAILED):
            self._refuse_lost_end(state)
        outcome = conclude(self.context, self.operation, None)
        if state is RunState.FINISHED and self._has_finished():
            finished = finish(self._find_incarnation())
            outcome = outcome.with_writes(
                self.context.records.incarnations.put(self._scope, finished)
            )
        if gave_up is None:
            return outcome
        event = self.context.records.events.make(
            "job",
            f"{name} was cancelled, since its savepoint could not finish: {gave_up};"
            " it goes on from its newest checkpoint",
            site=site,
            job_name=name,
        )
        return outcome.with_writes(event)

    def _refuse_lost_end(self, state: RunState | None) -> None:
        """Store the end of a job that its engine has lost, or that has failed, as it was stopped,
        and raise PermanentError. What its last checkpoint holds may not be published, or not be
        reported: in the next plan it says that before others go on in its place."""
        self.context.store(conclude(self.context, self.operation, None, is_unsaid=True))
        name, site = self.operation.job_name, self.operation.site
        what = f"{site} does not know it any more" if state is None else "it has failed"
        raise PermanentError(
            f"cannot stop {name}: {what}, and it may not have published all that it has taken;"
            " apply again, and it does that first; --drop-queues goes on without it"
        )

    def _has_finished(self) -> bool:
        """Whether its sources ended just before it was stopped."""
        try:
            return self._engine.has_finished(self.operation.engine_job_id)
        except EngineRefusedError:
            return False

    def _find_savepoint(self, state: RunState | None) -> str | None:
        """The savepoint of this stop, if the engine still knows it. It is the newest state of a job
        that is FINISHED. It also is that of a job that is not listed any more, if the stop has not
        failed: an engine lists a limited number of ended jobs."""
        if state not in (RunState.FINISHED, None):
            return None
        try:
            stop = self._engine.save_progress(self.operation.engine_job_id, self._trigger)
        except EngineRefusedError:
            return None
        return None if state is None and stop.failure is not None else stop.location


def _describe_progress(progress: SaveProgress | None) -> str:
    if progress is None or progress.total is None:
        return "savepoint requested"
    return f"savepoint: {progress.acknowledged or 0} of {progress.total} subtasks"


_SILENCE_S = 5.0
