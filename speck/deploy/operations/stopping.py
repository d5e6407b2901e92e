"""How an incarnation ends with a savepoint, and what happens when that cannot finish."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from speck.binding import SavepointProgress
from speck.deploy.operations.context import Context
from speck.deploy.operations.ending import ended
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.errors import EngineRefusedError, SpeckError
from speck.model.incarnation import EndState
from speck.model.observation import EngineJob, RunState
from speck.model.plan import Stop


@dataclass(slots=True)
class Stopping:
    """Stops with a savepoint, waits while that comes nearer, and cancels when it does not.

    One savepoint is asked of an incarnation, ever: that it was asked is written down before. An
    engine may bring a job back whose stop has failed; it is cancelled then, since a second stop
    could end it in the middle of what the first one began. After a cancellation the newest
    checkpoint is the newest state; a start finds it.
    """

    context: Context
    operation: Stop
    best: tuple[bool, int] = (False, -1)
    began: float = 0.0
    since: float = 0.0
    looked: float = 0.0
    over: RunState | None = None
    """How it ended, once a look at the engine has shown that."""

    @property
    def _trigger(self) -> str:
        return hashlib.sha256(f"stop|{self.operation.engine_job_id}".encode()).hexdigest()[:32]

    def begin(self) -> Outcome:
        """Ask for it, or go on with what was asked before."""
        job_id = self.operation.engine_job_id
        engine = self.context.connections.engine(self.operation.site)
        state = engine.status(job_id)
        if state is None or state.terminal:
            return self._over(state)
        self.began = self.since = self.looked = self.context.clock.monotonic()
        deployed = self.context.deployed(self.operation.job_name)
        assert deployed is not None
        if deployed.stopping:
            try:
                engine.savepoint_progress(job_id, self._trigger)
                return self._wait(None)
            except EngineRefusedError:  # the request never arrived, or was long ago
                if engine.exceptions(job_id):
                    return self._give_up("it failed since its savepoint was asked for")
        else:
            asked = replace(deployed, end=EndState.STOPPING)
            self.context.records.write(self.context.records.put_incarnation(self._scope, asked))
        try:
            engine.stop(job_id, self._target(), self._trigger)
        except EngineRefusedError as error:
            state = engine.status(job_id)
            if state is None or state.terminal:
                return self._over(state)
            return self._give_up(str(error))
        return self._wait(None)

    @property
    def _scope(self) -> str:
        return self.context.scope

    def _target(self) -> str | None:
        """A folder of the incarnation's own, so that its savepoint is found by listing it."""
        folder = self.context.keeper.folder(self.operation.site)
        own = f"savepoints/{self.operation.job_name}/{self.operation.engine_job_id}"
        return f"{folder.rstrip('/')}/{own}" if folder else None

    def _wait(self, progress: SavepointProgress | None) -> Waiting:
        def ready(jobs: Mapping[str, EngineJob]) -> bool:
            job = jobs.get(self.operation.engine_job_id)
            if job is not None and job.state.terminal:
                self.over = job.state
            if job is None or job.state.terminal:
                return True
            return self.context.clock.monotonic() - self.looked > self.context.patience.stop_poll_s

        return Waiting(
            self.operation.site,
            ready,
            self._poll,
            float("inf"),  # its end is decided here
            lambda: "",
            progress=_so_far(progress),
        )

    def _poll(self) -> Outcome:
        engine = self.context.connections.engine(self.operation.site)
        job_id = self.operation.engine_job_id
        self._count_no_silence()
        state = self.over or engine.status(job_id)
        if state is None or state.terminal:
            return self._over(state)
        try:
            progress = engine.savepoint_progress(job_id, self._trigger)
        except EngineRefusedError as error:
            return self._give_up(str(error))
        if progress.done and progress.failure is not None:
            return self._give_up(progress.failure)
        nearer = (progress.done, progress.acknowledged or 0)
        if nearer > self.best:
            self.best, self.since = nearer, self.looked
        why = self._why_give_up()
        return self._give_up(why) if why else self._wait(progress)

    def _count_no_silence(self) -> None:
        """Time in which the site did not answer counts against nobody."""
        now = self.context.clock.monotonic()
        silent = max(0.0, now - self.looked - _SILENCE_S)
        self.since += silent
        self.began += silent
        self.looked = now

    def _why_give_up(self) -> str | None:
        patience, idle = self.context.patience, self.looked - self.since
        if self.looked - self.began > patience.stop_s:
            return f"it did not finish in {patience.stop_s:.0f} s"
        if idle > patience.stop_idle_s:
            return f"it came no nearer for {patience.stop_idle_s:.0f} s"
        if idle > patience.stop_sink_idle_s and not self._sink_answers():
            return "the broker of its sink does not answer"
        return None

    def _sink_answers(self) -> bool:
        deployed = self.context.deployed(self.operation.job_name)
        try:
            if deployed is not None:
                self.context.connections.broker(deployed.job.sink_site).reach()
        except SpeckError:
            return False
        return True

    def _give_up(self, why: str) -> Waiting:
        """Cancel it, and wait until it is gone."""
        name, site = self.operation.job_name, self.operation.site
        engine = self.context.connections.engine(site)
        engine.cancel(self.operation.engine_job_id)

        def gone(jobs: Mapping[str, EngineJob]) -> bool:
            job = jobs.get(self.operation.engine_job_id)
            return job is None or job.state.terminal

        return Waiting(
            site,
            gone,
            lambda: self._over(engine.status(self.operation.engine_job_id), why),
            self.context.patience.start_s,
            lambda: f"cannot cancel {name}: the engine still lists it",
            progress=f"cancelling, since its savepoint cannot finish: {why}",
        )

    def _over(self, state: RunState | None, gave_up: str | None = None) -> Done:
        """It has ended. Of what is not known to have left its newest state in the savepoint of
        this stop a start finds it."""
        name, site = self.operation.job_name, self.operation.site
        if (location := self._location(state)) is not None:
            return Done(ended(self.context, name, location, final=self.operation.final))
        stored = ended(self.context, name, None, final=self.operation.final)
        if gave_up is None:
            return Done(stored)
        event = self.context.records.event(
            "job",
            f"{name} was cancelled, since its savepoint could not finish: {gave_up};"
            " it goes on from its newest checkpoint",
            site=site,
            job_name=name,
        )
        return Done({**stored, **event})

    def _location(self, state: RunState | None) -> str | None:
        """Where the savepoint of this stop lies, as far as the engine still knows. It is the newest
        state of what FINISHED, or of what is not listed any more (an engine lists so many ended
        jobs only) when the stop has not failed."""
        if state not in (RunState.FINISHED, None):
            return None
        engine = self.context.connections.engine(self.operation.site)
        try:
            stop = engine.savepoint_progress(self.operation.engine_job_id, self._trigger)
        except EngineRefusedError:
            return None
        return None if state is None and stop.failure is not None else stop.location


def _so_far(progress: SavepointProgress | None) -> str:
    if progress is None or progress.total is None:
        return "savepoint asked for"
    return f"savepoint: {progress.acknowledged or 0} of {progress.total} subtasks"


_SILENCE_S = 5.0
