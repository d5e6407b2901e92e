"""What each kind of operation does: one binder call, its intent stored before, its outcome after.

No decision is made here; the plan made them. A handler returns a `Done` with what to store,
or a `Waiting` that says which engine view means that it is done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from speck.binding import Submission
from speck.clock import Clock
from speck.connections import Connections
from speck.contract import render_args
from speck.errors import DuplicateJobError, EngineRefusedError, PermanentError
from speck.inventory import Deployed, Session
from speck.observed import EngineView, RunState
from speck.plan import (
    Cancel,
    Clear,
    Drain,
    Forget,
    Operation,
    Release,
    Reserve,
    Start,
    Stop,
    TryMain,
    Upload,
)
from speck.records import Batch, Records


@dataclass(frozen=True, slots=True)
class Done:
    """The operation succeeded; `store` is written together with its outcome."""

    store: Batch = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Waiting:
    """The engine is at work. Once `ready(view)` holds for the site's view, `finish` ends it.

    Without a `site` no engine is asked, and `ready` sees an empty view at each poll.
    `finish` may return Waiting again. After `limit_s` seconds `overdue` says why it failed.
    One that `may_be_left` has begun nothing: a change that is cancelled does not wait for it.
    """

    site: str | None
    ready: Callable[[EngineView], bool]
    finish: Callable[[], Done | Waiting]
    limit_s: float
    overdue: Callable[[], str]
    may_be_left: bool = False


Outcome = Done | Waiting


@dataclass(frozen=True, slots=True)
class Patience:
    """Time limits in seconds; see docs/architecture.md for why each is what it is."""

    start_s: float = 180.0
    stop_s: float = 1800.0
    drain_idle_s: float = 60.0
    drain_poll_s: float = 0.2


class Operations:
    """Carries out operations of one scope's plan."""

    def __init__(
        self,
        connections: Connections,
        records: Records,
        clock: Clock,
        scope: str,
        jar_file: Callable[[str], Path],
        patience: Patience,
    ):
        self._connections = connections
        self._records = records
        self._clock = clock
        self._scope = scope
        self._jar_file = jar_file
        self._patience = patience

    def carry_out(self, operation: Operation) -> Outcome:
        """Do it. Raises TransientError when another try makes sense, PermanentError if not."""
        match operation:
            case Upload():
                return self._upload(operation)
            case TryMain():
                return self._try(operation)
            case Reserve():
                return self._reserve(operation)
            case Drain():
                return self._drain(operation)
            case Stop():
                return self._stop(operation)
            case Cancel():
                return self._cancel(operation)
            case Start():
                return self._start(operation)
            case Release():
                return self._release(operation)
            case Forget():
                return self._forget(operation)
            case Clear():
                return self._clear(operation)

    def _upload(self, operation: Upload) -> Outcome:
        engine = self._connections.engine(operation.site)
        engine.upload(self._jar_file(operation.jar), operation.jar)
        return Done()

    def _try(self, operation: TryMain) -> Outcome:
        submission = self._submission(operation, sink_has_readers=True, savepoint=None)
        self._connections.engine(operation.site).try_main(submission)
        return Done()

    def _reserve(self, operation: Reserve) -> Outcome:
        session = Session(
            operation.client_id, operation.link, operation.site, operation.job_name, reserved=False
        )
        self._records.write(self._records.put_session(self._scope, session))
        broker = self._connections.broker(operation.site)
        broker.reserve(operation.client_id, operation.link.topic)
        return Done(self._records.put_session(self._scope, replace(session, reserved=True)))

    def _release(self, operation: Release) -> Outcome:
        broker = self._connections.broker(operation.site)
        broker.release(operation.client_id, operation.link.topic, last_reader=operation.last_reader)
        broker.forget(operation.client_id)
        return Done(self._records.drop_session(self._scope, operation.client_id))

    def _forget(self, operation: Forget) -> Outcome:
        self._connections.broker(operation.sink_site).forget(operation.sink_client_id)
        return Done(self._records.drop_deployed(self._scope, operation.job_name))

    def _clear(self, operation: Clear) -> Outcome:
        self._connections.broker(operation.site).forget(operation.sink_client_id)
        return Done()

    def _drain(self, operation: Drain) -> Outcome:
        """Wait while the lag shrinks; give up when it stands still for `drain_idle_s`."""
        broker = self._connections.broker(operation.site)
        best: int | None = None
        since = looked = self._clock.monotonic()

        def look() -> Outcome:
            nonlocal best, since, looked
            view = broker.view()
            looked = self._clock.monotonic()
            # A sink without a number never sent anything: there is nothing of it to wait for.
            lag = sum(view.lag(operation.client_id, [sink]) or 0 for sink in operation.sinks)
            if lag == 0:
                return Done()
            if best is None or lag < best:
                best, since = lag, looked
            if looked - since > self._patience.drain_idle_s:
                raise PermanentError(
                    f"cannot drain {operation.site}/{operation.link.topic}: {operation.job_name}"
                    f" has not taken {lag} messages and takes no more;"
                    f" see `speck job {operation.job_name}`"
                )
            return waiting

        waiting = Waiting(
            None,
            lambda view: self._clock.monotonic() - looked >= self._patience.drain_poll_s,
            look,
            float("inf"),
            lambda: "",
            may_be_left=True,
        )
        return look()

    def _stop(self, operation: Stop) -> Outcome:
        trigger = hashlib.sha256(f"stop|{operation.engine_job_id}".encode()).hexdigest()[:32]
        site = self._connections.site(operation.site)
        target = (
            f"{site.state_uri.rstrip('/')}/savepoints/{operation.job_name}/{operation.engine_job_id}"
            if site.state_uri
            else None
        )
        engine = self._connections.engine(operation.site)
        engine.stop(operation.engine_job_id, target, trigger)
        asked = [self._clock.monotonic()]

        def ready(view: EngineView) -> bool:
            job = view.jobs.get(operation.engine_job_id)
            if job is None or job.state.terminal:
                return True
            return self._clock.monotonic() - asked[0] > _ASK_AGAIN_S

        def finish() -> Outcome:
            asked[0] = self._clock.monotonic()
            progress = engine.savepoint_progress(operation.engine_job_id, trigger)
            if not progress.done:
                return waiting
            if progress.location is None:
                raise PermanentError(
                    f"cannot stop {operation.job_name} with a savepoint: {progress.failure}"
                )
            return Done(self._ended(operation.job_name, progress.location))

        waiting = Waiting(
            operation.site,
            ready,
            finish,
            self._patience.stop_s,
            lambda: f"cannot stop {operation.job_name}: its savepoint did not finish in time",
        )
        return waiting

    def _cancel(self, operation: Cancel) -> Outcome:
        engine = self._connections.engine(operation.site)
        engine.cancel(operation.engine_job_id)

        def gone(view: EngineView) -> bool:
            job = view.jobs.get(operation.engine_job_id)
            return job is None or job.state.terminal

        return Waiting(
            operation.site,
            gone,
            lambda: Done(self._ended(operation.job_name, None)),
            self._patience.start_s,
            lambda: f"cannot cancel {operation.job_name}: the engine still lists it",
        )

    def _ended(self, job_name: str, savepoint: str | None) -> Batch:
        deployed = self._records.deployed(self._scope, job_name)
        assert deployed is not None
        ended = replace(deployed, confirmed=True, ended=True, savepoint=savepoint, base=None)
        return self._records.put_deployed(self._scope, ended)

    def _start(self, operation: Start) -> Outcome:
        old = self._records.deployed(self._scope, operation.job_name)
        if old is not None and old.engine_job_id == operation.engine_job_id:
            old = old.base  # a second try of this very start
        base, savepoint = self._newest_state(old if operation.restore is not None else None)
        deployed = Deployed(operation.job, operation.attempt, operation.engine_job_id, base=base)
        self._records.write(self._records.put_deployed(self._scope, deployed))
        submission = self._submission(operation, operation.sink_has_readers, savepoint)
        engine = self._connections.engine(operation.site)
        with suppress(DuplicateJobError):  # an earlier try of this start arrived: adopt it
            engine.submit(submission)
        job_id, name = operation.engine_job_id, operation.job_name

        def settled(view: EngineView) -> bool:
            job = view.jobs.get(job_id)
            return job is not None and (job.state is RunState.RUNNING or job.state.terminal)

        def finish() -> Outcome:
            state = engine.status(job_id)
            if state is None or state.terminal:
                raise PermanentError(f"cannot start {name}: {self._cause(operation, state)}")
            confirmed = replace(deployed, confirmed=True, base=None)
            return Done(self._records.put_deployed(self._scope, confirmed))

        return Waiting(
            operation.site,
            settled,
            finish,
            self._patience.start_s,
            lambda: f"cannot start {name}: {self._cause(operation, engine.status(job_id))}",
        )

    def _cause(self, operation: Start, state: RunState | None) -> str:
        if state is None:
            return f"{operation.site} does not know it any more"
        failures = self._connections.engine(operation.site).exceptions(operation.engine_job_id)
        if failures:
            return f"it is {state}: {failures[0].name}"
        return f"it is {state}; see the engine's log at {operation.site}"

    def _newest_state(self, deployed: Deployed | None) -> tuple[Deployed | None, str | None]:
        """The incarnation (this one or its base) that left the newest state, and where.

        Raises PermanentError when an incarnation that ran has left none that can be found.
        """
        if deployed is None or deployed.savepoint is not None:
            return deployed, deployed.savepoint if deployed else None
        engine = self._connections.engine(deployed.job.site)
        if not deployed.confirmed and engine.status(deployed.engine_job_id) is None:
            return self._newest_state(deployed.base)  # its start never arrived
        try:
            found = engine.newest_state(deployed.engine_job_id)
        except EngineRefusedError as error:
            raise PermanentError(
                f"cannot start {deployed.job.job_name} from its newest state: {deployed.job.site}"
                f" knows none of its attempt {deployed.attempt} ({error});"
                " set `upgrade: stateless` to start it without state"
            ) from error
        return deployed, found.path if found else None

    def _submission(
        self, operation: Start | TryMain, sink_has_readers: bool, savepoint: str | None
    ) -> Submission:
        job = operation.job
        return Submission(
            engine_job_id=operation.engine_job_id,
            job_name=job.job_name,
            jar=job.jar,
            jar_file=self._jar_file(job.jar),
            entry_class=job.entry_class,
            args=render_args(job, self._records.installation, operation.attempt, sink_has_readers),
            parallelism=job.parallelism,
            savepoint=savepoint,
        )


_ASK_AGAIN_S = 1.0
