"""Waits until a submitted incarnation runs, and ends it when it will not."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from speck.binding import JobException, StreamEngine
from speck.deploy.finished_jobs import finish
from speck.deploy.operations.comparing import explain_too_wide, report_differences
from speck.deploy.operations.connecting import (
    explain_disconnection,
    is_connected,
)
from speck.deploy.operations.context import Context
from speck.deploy.operations.ending import cancel_and_wait
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.errors import PermanentError, SpeckError
from speck.model.incarnation import Incarnation, StartState
from speck.model.job_operations import Start
from speck.model.observation import EngineJob, RunState
from speck.sites.engine_ends import EngineEnds


@dataclass(slots=True)
class ComingUp:
    """Waits until all tasks run and the source is connected.

    A broker that refuses its login, or to let it read its link, does so until somebody mends that:
    the start fails with the broker's reason.

    An engine restarts a job that fails, again and again, and each time it holds the slots that it
    gets. So the engine is asked why: after `MOST_EQUAL` equal failures the incarnation is
    cancelled, and the start fails with their cause. It is cancelled, too, if it does not run within
    the limit, unless it may still be reading its state.
    """

    context: Context
    operation: Start
    incarnation: Incarnation
    began: float = 0.0
    polled_at: float = 0.0
    asked_at: float = 0.0
    missing_since: float | None = None
    state: RunState | None = None
    failures: Sequence[JobException] = ()
    has_compared: bool = False
    problem: str | None = None
    """What keeps its source from its broker, as the connector reports it."""

    def begin(self) -> Outcome:
        """Wait for the engine."""
        self.began = self.polled_at = self.asked_at = self.context.clock.monotonic()
        return self._wait()

    def _wait(self) -> Waiting:
        trouble = self.problem or (_describe(self.failures) if self.failures else None)
        return Waiting(
            self.operation.job.engine,
            self._is_ready,
            self._look,
            float("inf"),  # `_look` decides when to give up
            lambda: "",
            progress=trouble,
            trouble=trouble,
        )

    def _is_ready(self, jobs: Mapping[str, EngineJob]) -> bool:
        job, now = jobs.get(self.operation.engine_job_id), self.context.clock.monotonic()
        if now - self.polled_at > _SILENCE_S:  # the site did not answer: its time begins again
            self.began = now
        self.polled_at = now
        if job is None:  # accepted: the engine lists it soon, or has forgotten it
            self.missing_since = now if self.missing_since is None else self.missing_since
            self.state = None
            return now - self.missing_since > self.context.patience.forgotten_s
        is_new = job.state is not self.state
        self.state, self.missing_since = job.state, None
        if is_new and (job.state is RunState.RUNNING or job.state.terminal):
            return True
        is_overdue = now - self.began > self._limit_s
        return is_overdue or now - self.asked_at > self.context.patience.start_ask_s

    def _look(self) -> Outcome:
        self.asked_at = self.context.clock.monotonic()
        took = self.asked_at - self.began
        if self.state is None or self.state.terminal:
            return self._end()
        is_slow = took > self.context.patience.connect_s
        if is_slow:
            link = explain_disconnection(self._engine, self.operation.engine_job_id)
            self.problem = link.problem if link is not None else None
            if link is not None and link.is_lasting:
                return self._give_up(f"{self.problem}; {self._name_credentials()}")
        if self.state is RunState.RUNNING:
            if not is_slow or self._is_connected():
                return confirm(self.context, self.incarnation)
            if took > self._limit_s:
                raise PermanentError(self._explain_disconnection())
            return self._wait()
        if not self.has_compared:
            too_wide = explain_too_wide(self.context, self.incarnation)
            if too_wide is not None:
                return self._give_up(too_wide)
            self.has_compared = True
        with suppress(SpeckError):  # then the next look shows them
            self.failures = self._engine.exceptions(self.operation.engine_job_id)
        if count_equal(self.failures) >= MOST_EQUAL:
            return self._give_up(_describe(self.failures))
        if took > self._limit_s:
            return self._end_overdue()
        return self._wait()

    @property
    def _engine(self) -> StreamEngine:
        return self.context.connections.engine_of(self.operation.job.engine)

    @property
    def _limit_s(self) -> float:
        return self.context.find_limits(self.operation.job.engine).start_s

    def _end(self) -> Done:
        """It has ended, or its engine has forgotten it."""
        job_id = self.operation.engine_job_id
        if self.state is RunState.FINISHED and self._engine.has_finished(job_id):
            return confirm(self.context, finish(self.incarnation))
        return self._fail(explain_end(self.context, self.operation, self.state))

    def _end_overdue(self) -> Outcome:
        why = explain_end(self.context, self.operation, self.state)
        if self.incarnation.restored is None or self.state is RunState.RESTARTING:
            return self._give_up(why)
        raise PermanentError(f"cannot start {self.operation.job_name}: {why}")

    def _give_up(self, why: str) -> Waiting:
        """Cancel it, so that it holds no slots, and fail once it is gone."""
        return cancel_and_wait(
            self.context, self.operation, lambda: self._fail(why), f"it cannot start: {why}"
        )

    def _fail(self, why: str) -> Done:
        record_if_void(self.context, self.incarnation)
        raise PermanentError(f"cannot start {self.operation.job_name}: {why}")

    def _explain_disconnection(self) -> str:
        job = self.operation.job
        away = (
            f"cannot start {job.job_name}: all its tasks run at {job.site}, but its source is not"
            f" connected to {job.source_broker}"
        )
        return f"{away}: {self.problem}" if self.problem else away

    def _name_credentials(self) -> str:
        return (
            "check the broker's users and permissions, and the credentials that the engine of"
            f" {self.operation.site} has for it"
        )

    def _is_connected(self) -> bool:
        """Whether the source takes input, by the engine's metrics. Tasks of our connector are
        running once they have subscribed, or after ten seconds without. A broker that does not
        answer is no failure of the incarnation, nor is an engine without such metrics, unless it
        has forgotten the incarnation since it was polled."""
        job_id = self.operation.engine_job_id
        try:
            self.context.connections.broker(self.operation.job.source_site).reach()
        except SpeckError:
            return True
        try:
            return is_connected(self._engine, job_id)
        except SpeckError:
            return self._engine.status(job_id) is not None


def confirm(context: Context, incarnation: Incarnation) -> Done:
    """Store that all tasks ran. States that attempts before the last one were started from are
    deleted."""
    newest = sorted({state.attempt for state in incarnation.left})[-_STATES_KEPT:]
    # sites that share storage have the same state under the same path
    paths = {state.path for state in incarnation.left if state.attempt in newest}
    states = tuple(state for state in incarnation.left if state.path in paths)
    obsolete = [state for state in incarnation.left if state.path not in paths]
    result = replace(incarnation, start=StartState.CONFIRMED, base=None, left=states)

    def afterwards() -> None:
        if not result.ended:
            context.refills.begin(result)
            report_differences(context, result)
        for state in obsolete:
            with suppress(SpeckError):  # a leftover only takes space
                context.keeper.drop(state.site, state.path)

    return Done(context.records.incarnations.put(context.scope, result), afterwards)


def record_if_void(context: Context, incarnation: Incarnation) -> Incarnation:
    """Mark an incarnation that was refused, or has ended, as void if it left no state of its own:
    the one before it has the newest state. When in doubt it is left unmarked."""
    engine = context.connections.engine_of(incarnation.job.engine)
    with suppress(SpeckError):
        state = engine.status(incarnation.engine_job_id)
        if state is not None and not state.terminal:
            return incarnation
        if state is None and incarnation.accepted:  # it ran, and its engine has forgotten it
            return incarnation
        if state is not None:
            state_found = engine.newest_state(incarnation.engine_job_id)
            if state_found is not None and state_found.location != incarnation.restored:
                return incarnation
        incarnation = incarnation.as_void()
        context.records.write(context.records.incarnations.put(context.scope, incarnation))
    return incarnation


def explain_end(context: Context, operation: Start, state: RunState | None) -> str:
    """Why an incarnation does not run, though its engine accepted it."""
    ends, engine = EngineEnds(context.connections), operation.job.engine
    if state is None:
        end = ends.explain(engine)
        return f"{operation.site} does not know it any more" + (f": {end}" if end else "")
    failures = context.connections.engine_of(engine).exceptions(operation.engine_job_id)
    if failures:
        end = ends.explain(engine, failures[0].at_ms) if failures[0].transient else None
        reason = failures[0].reason or failures[0].name
        return f"it is {state}: {reason}" + (f"; {end}" if end else "")
    return f"it is {state}; see the engine's log at {operation.site}"


def count_equal(failures: Sequence[JobException]) -> int:
    """How many of the newest failures are equal: they have the same cause, apart from numbers in
    it, or come from the same line of the user's code, whatever name of a host or key they hold. 0
    if that may pass by itself."""
    if not failures or failures[0].transient:
        return 0
    newest = failures[0]
    different = (n for n, each in enumerate(failures) if not _are_equal(each, newest))
    return next(different, len(failures))


def _are_equal(one: JobException, other: JobException) -> bool:
    is_from_there = bool(one.place) and one.place == other.place
    return is_from_there or _generalise(one) == _generalise(other)


def _generalise(failure: JobException) -> str:
    return _NUMBER.sub("#", failure.reason or failure.name)


def _describe(failures: Sequence[JobException]) -> str:
    """The newest of the failures, of which there is one at least."""
    times = count_equal(failures)
    cause = failures[0].reason or failures[0].name
    return f"it failed: {cause}" if times < 2 else f"it fails again and again ({times}x): {cause}"


MOST_EQUAL = 3
"""After so many equal failures the next one would be equal, too."""

_NUMBER = re.compile(r"@[0-9a-f]+|[0-9a-f]{8,}|\d+")

_SILENCE_S = 5.0
"""An engine that answers is polled more often."""

_STATES_KEPT = 2
