"""What each kind of operation does: one binder call, its intent stored before, its outcome after.

No decision is made here; the plan made them. A handler returns a `Done` with what to store,
or a `Waiting` that says which engine view means that it is done.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from speck.binding import Submission
from speck.clock import Clock
from speck.connections import Connections
from speck.contract import render_args
from speck.errors import DuplicateJobError, EngineRefusedError, PermanentError, SpeckError
from speck.inventory import Deployed, Session
from speck.observed import BrokerView, EngineJob, RunState
from speck.plan import (
    Cancel,
    Clear,
    Drain,
    Forget,
    Operation,
    Release,
    Reserve,
    Settle,
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
    ready: Callable[[Mapping[str, EngineJob]], bool]
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
            case Settle():
                return self._settle(operation)
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
        """From its first moment on, the session is not one that is there."""
        session = Session(
            operation.client_id, operation.link, operation.site, operation.job_name, reserved=False
        )
        self._records.write(self._records.put_session(self._scope, session))
        broker = self._connections.broker(operation.site)
        broker.release(operation.client_id, operation.link.topic, last_reader=operation.last_reader)
        broker.forget(operation.client_id)
        return Done(self._records.drop_session(self._scope, operation.client_id, operation.site))

    def _forget(self, operation: Forget) -> Outcome:
        self._forget_sinks(operation.sink_site, operation.sinks)
        return Done(self._records.drop_deployed(self._scope, operation.job_name))

    def _clear(self, operation: Clear) -> Outcome:
        self._forget_sinks(operation.site, operation.sinks)
        return Done()

    def _forget_sinks(self, site: str, sinks: tuple[str, ...]) -> None:
        broker = self._connections.broker(site)
        for sink in sinks:
            broker.forget(sink)

    def _drain(self, operation: Drain) -> Outcome:
        return Draining(
            operation,
            self._connections,
            self._records,
            self._clock,
            self._scope,
            self._patience,
        ).look()

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

        def ready(jobs: Mapping[str, EngineJob]) -> bool:
            job = jobs.get(operation.engine_job_id)
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

    def _cancel(self, operation: Cancel | Settle) -> Outcome:
        engine = self._connections.engine(operation.site)
        engine.cancel(operation.engine_job_id)

        def gone(jobs: Mapping[str, EngineJob]) -> bool:
            job = jobs.get(operation.engine_job_id)
            return job is None or job.state.terminal

        return Waiting(
            operation.site,
            gone,
            lambda: Done(self._ended(operation.job_name, None)),
            self._patience.start_s,
            lambda: f"cannot cancel {operation.job_name}: the engine still lists it",
        )

    def _settle(self, operation: Settle) -> Outcome:
        deployed = self._records.deployed(self._scope, operation.job_name)
        assert deployed is not None
        engine = self._connections.engine(operation.site)
        if engine.status(operation.engine_job_id) is None:
            with suppress(DuplicateJobError):  # it has arrived just now
                engine.burn(self._submission(deployed, sink_has_readers=True, savepoint=None))
                burnt = replace(deployed, ended=True, void=True)
                return Done(self._records.put_deployed(self._scope, burnt))
        return self._cancel(operation)

    def _ended(self, job_name: str, savepoint: str | None) -> Batch:
        deployed = self._records.deployed(self._scope, job_name)
        assert deployed is not None
        ended = replace(deployed, ended=True, savepoint=savepoint)
        if savepoint is not None:
            ended = replace(ended, confirmed=True, base=None)
        return self._records.put_deployed(self._scope, ended)

    def _start(self, operation: Start) -> Outcome:
        job_id, name = operation.engine_job_id, operation.job_name
        engine = self._connections.engine(operation.site)
        before = self._records.deployed(self._scope, name)
        if before is not None and before.engine_job_id == job_id and before.accepted:
            deployed = before  # only what came after that is tried again
        else:
            deployed = self._submit(operation, before)

        seen: list[RunState] = []

        def settled(jobs: Mapping[str, EngineJob]) -> bool:
            job = jobs.get(job_id)
            if job is None or not (job.state is RunState.RUNNING or job.state.terminal):
                return False
            seen.append(job.state)
            return True

        def finish() -> Outcome:
            if seen[-1].terminal:
                self._note_if_void(deployed)
                raise PermanentError(f"cannot start {name}: {self._cause(operation, seen[-1])}")
            confirmed = replace(deployed, accepted=False, confirmed=True, base=None)
            return Done(self._records.put_deployed(self._scope, confirmed))

        return Waiting(
            operation.site,
            settled,
            finish,
            self._patience.start_s,
            lambda: f"cannot start {name}: {self._cause(operation, engine.status(job_id))}",
        )

    def _submit(self, operation: Start, old: Deployed | None) -> Deployed:
        """Write down what is about to be asked, ask, and write down that it was taken on."""
        if old is not None and old.engine_job_id == operation.engine_job_id:
            old = old.base  # this very start was sent before
        savepoint = None
        if operation.restore is not None:
            old, savepoint = self._newest_state(old)
        while old is not None and old.void:
            old = old.base
        deployed = Deployed(
            operation.job,
            operation.attempt,
            operation.engine_job_id,
            base=old,
            former_sinks=operation.former_sinks,
        )
        self._records.write(self._records.put_deployed(self._scope, deployed))
        submission = self._submission(operation, operation.sink_has_readers, savepoint)
        try:
            with suppress(DuplicateJobError):  # an earlier try of this start arrived: adopt it
                self._connections.engine(operation.site).submit(submission)
        except EngineRefusedError:
            self._note_if_void(deployed, savepoint)
            raise
        # From now on that the engine does not know the id says that it has forgotten it.
        deployed = replace(deployed, accepted=True)
        self._records.write(self._records.put_deployed(self._scope, deployed))
        return deployed

    def _note_if_void(self, deployed: Deployed, savepoint: str | None = None) -> None:
        """Remember that an incarnation which was refused, or has ended, left no state of its
        own: the one before it has the newest. In doubt nothing is noted."""
        engine = self._connections.engine(deployed.job.site)
        with suppress(SpeckError):
            if engine.status(deployed.engine_job_id) is not None:
                found = engine.newest_state(deployed.engine_job_id)
                if found is not None and found.path != savepoint:
                    return
            void = replace(deployed, void=True)
            self._records.write(self._records.put_deployed(self._scope, void))

    def _cause(self, operation: Start, state: RunState | None) -> str:
        if state is None:
            return f"{operation.site} does not know it any more"
        failures = self._connections.engine(operation.site).exceptions(operation.engine_job_id)
        if failures:
            return f"it is {state}: {failures[0].name}"
        return f"it is {state}; see the engine's log at {operation.site}"

    def _newest_state(self, deployed: Deployed | None) -> tuple[Deployed | None, str | None]:
        """The incarnation (this one or one before it) that left the newest state, and where.

        Inputs are acknowledged at checkpoints only: the one before counts if this one is known
        to have completed none. Raises PermanentError when that cannot be established, or the
        state of one that ran cannot be found.
        """
        if deployed is None or deployed.savepoint is not None:
            return deployed, deployed.savepoint if deployed else None
        if deployed.void:
            return self._newest_state(deployed.base)
        name, site = deployed.job.job_name, deployed.job.site
        engine = self._connections.engine(site)
        if not deployed.confirmed and engine.status(deployed.engine_job_id) is None:
            raise PermanentError(
                f"cannot start {name} from its newest state: whether its attempt"
                f" {deployed.attempt} ran cannot be established, since {site} does not know it"
                " (any more); set `upgrade: stateless` to start it without state"
            )
        try:
            found = engine.newest_state(deployed.engine_job_id)
        except EngineRefusedError as error:
            raise PermanentError(
                f"cannot start {name} from its newest state: {site}"
                f" knows none of its attempt {deployed.attempt} ({error});"
                " set `upgrade: stateless` to start it without state"
            ) from error
        if found is not None:
            return replace(deployed, base=None), found.path
        if deployed.confirmed or deployed.base is None:
            return deployed, None
        return self._newest_state(deployed.base)

    def _submission(
        self, operation: Start | TryMain | Deployed, sink_has_readers: bool, savepoint: str | None
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


@dataclass(slots=True)
class Draining:
    """Waits until a reader has taken what was sent to the link that it leaves.

    It has when the numbers say so. They cannot where the reader came after messages were sent,
    has lost its memory, or a producer tells none. Then it has when it completes checkpoints and
    takes nothing: it acknowledges at checkpoints, and the broker sends what waits.
    """

    operation: Drain
    connections: Connections
    records: Records
    clock: Clock
    scope: str
    patience: Patience
    owed: dict[tuple[str, int], int] | None = None
    least: int | None = None
    since: float = 0.0
    looked: float = 0.0
    messages: int = 0
    checkpoint: int | None = None
    quiet: int = 0
    quietest: int = 0

    def look(self) -> Outcome:
        """Look once. Raises PermanentError when for `drain_idle_s` nothing has come nearer."""
        operation = self.operation
        # Asked before the numbers, which so are not older than the checkpoint.
        checkpoint = None if self.least is None else self._checkpoint()
        view = self.connections.broker(operation.site).view()
        self.looked = self.clock.monotonic()
        lag = view.untaken(operation.client_id, self._owed(view))
        # Without a number a sink of ours never sent anything; of another's nothing is known.
        known = all(sink in view.sent for sink in operation.silent)
        if (lag == 0 and known) or self._is_quiet(checkpoint, view):
            return Done(self._note({}))
        if self.least is None or lag < self.least:
            self.least, self.since = lag, self.looked
        if self.looked - self.since > self.patience.drain_idle_s:
            what = f"{lag} messages and takes no more" if known else "what nobody counts"
            raise PermanentError(
                f"cannot drain {operation.site}/{operation.link.topic}: {operation.job_name}"
                f" has not taken {what}; see `speck job {operation.job_name}`"
            )
        return Waiting(
            None,
            lambda _: self.clock.monotonic() - self.looked >= self.patience.drain_poll_s,
            self.look,
            float("inf"),
            lambda: "",
            may_be_left=True,
        )

    def _owed(self, view: BrokerView) -> dict[tuple[str, int], int]:
        """The last numbers to wait for; written down, since they may be told no more later."""
        first = self.owed is None
        if self.owed is None:
            session = self._session()
            self.owed = {(p, e): n for p, e, n in session.owed} if session else {}
        for sink in self.operation.sinks:
            if (sent := view.sent.get(sink)) is not None:
                key = (sent.producer, sent.epoch)
                self.owed[key] = max(sent.number, self.owed.get(key, 0))
        if first and view.untaken(self.operation.client_id, self.owed):
            self.records.write(self._note(self.owed))
        return self.owed

    def _note(self, owed: dict[tuple[str, int], int]) -> Batch:
        session = self._session()
        told = tuple((p, e, n) for (p, e), n in sorted(owed.items()))
        if session is None or session.owed == told:
            return {}
        return self.records.put_session(self.scope, replace(session, owed=told))

    def _session(self) -> Session | None:
        return self.records.session(self.scope, self.operation.client_id, self.operation.site)

    def _is_quiet(self, checkpoint: int | None, view: BrokerView) -> bool:
        """Whether the reader has completed enough checkpoints one after the other since it
        told to have taken anything. Ids are not counted: they number failed ones too."""
        seen = view.taken.get(self.operation.client_id)
        messages = seen.messages if seen else 0
        if checkpoint is None or self.checkpoint is None or messages != self.messages:
            self.quiet, self.checkpoint, self.messages = 0, checkpoint, messages
            return False
        if checkpoint != self.checkpoint:
            self.quiet, self.checkpoint = self.quiet + 1, checkpoint
            if self.quiet > self.quietest:
                self.quietest, self.since = self.quiet, self.looked
        return self.quiet >= _QUIET_CHECKPOINTS

    def _checkpoint(self) -> int | None:
        """The reader's newest checkpoint; None unless it runs and is connected."""
        job_id = self.operation.engine_job_id
        try:
            engine = self.connections.engine(self.operation.reader_site)
            if engine.status(job_id) is not RunState.RUNNING:
                return None
            found = engine.newest_state(job_id)
            if found is None:
                return None
            if found.checkpoint_id != self.checkpoint:
                for metric, value in engine.metrics(job_id).items():
                    if metric.rpartition(".")[2] == "connected" and value == 0:
                        return None
            return found.checkpoint_id
        except SpeckError:
            return None


_QUIET_CHECKPOINTS = 3
"""The first may have begun before the producers had stopped; the second has not; at the third,
what the second took has been told."""
