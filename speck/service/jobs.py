"""Single jobs (the paper's Job Management API).

A job posted alone is a composition of one, under a name that users never see: it is accepted,
planned and carried out like any other.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated

from speck.binding import EngineCapability, find_taker, state_layout
from speck.clock import Clock, never, rfc3339
from speck.deploy.admission import make_owned_error
from speck.deploy.capabilities import name_engine
from speck.deploy.changes import Changes, Running
from speck.deploy.locks import NamedLocks
from speck.errors import (
    ConflictError,
    EngineRefusedError,
    NotFoundError,
    PermanentError,
    SpeckError,
    at_site,
)
from speck.model.change import Change, ChangeHead, ChangeState
from speck.model.composition import (
    CompositionDescription,
    Head,
    composition_of_one,
    visible_name,
)
from speck.model.incarnation import Incarnation
from speck.model.job import JobDescription
from speck.model.job_rates import JobRates
from speck.model.job_state import JobState
from speck.model.shown import Shown
from speck.service.compositions import ApplyRequest, Compositions
from speck.service.job_list import AT_ONCE, JobList
from speck.service.status import JobView
from speck.sites.connections import Connections
from speck.spec.resolve import LineOf
from speck.store.records import Records


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """What has become of a request to start, change or remove a job: the `job` as it is now (None
    once it is removed) and whether it was `created`, or the change that is still under way."""

    job: JobView | None = None
    created: bool = False
    under_way: ChangeHead | None = None


@dataclass(frozen=True, slots=True)
class JobException:
    """A failure of a job, at `at` (RFC 3339)."""

    at: Annotated[str, Shown("RFC 3339")]
    name: str
    trace: str
    task: str | None
    reason: Annotated[str, Shown("the most informative line of the trace")]


@dataclass(frozen=True, slots=True)
class JobMetrics:
    """The engine's counters of a job by operator-scoped name, and the rates of its last samples by
    their names in the API."""

    job_name: str
    composition: str | None
    site: str
    rates: Annotated[JobRates, Shown(hidden=True)]
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Savepoint:
    """A savepoint that was requested; `location` is a path or URI that the engine can read, None
    while it is being taken."""

    job_name: str
    id: str
    location: str | None


class Jobs:
    """All jobs; those posted alone can be changed here."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        jobs: JobList,
        compositions: Compositions,
        clock: Clock,
        changes: Changes,
        artifact_of: Callable[[str], str],
        measured: Callable[[Incarnation], JobRates],
    ):
        """`artifact_of` returns the SHA-256 of what a `job_path` names now (raises InvalidError,
        NotFoundError), `measured` the last sampled rates of an incarnation."""
        self._records = records
        self._connections = connections
        self._list = jobs
        self._compositions = compositions
        self._clock = clock
        self._changes = changes
        self._artifact_of = artifact_of
        self._measured = measured
        self._locks = NamedLocks()

    # -- reading --------------------------------------------------------------------------

    def all(self, site: str | None = None, state: str | None = None) -> list[JobView]:
        """Every job by name; filtered."""
        return self._list.all(site, state)

    def refresh(
        self, sees: Callable[[str], bool] = lambda name: True, site: str | None = None
    ) -> None:
        """Poll the engines of the jobs that the caller sees, by name; `site`: of those there."""
        self._list.refresh(lambda scope, name: sees(name), site)

    def count_states(self) -> Counter[JobState]:
        """How many jobs are in each state."""
        return self._list.count_states()

    def behind(
        self, after: str, site: str | None = None, state: str | None = None, at_once: int = AT_ONCE
    ) -> Iterator[JobView]:
        """See `JobList.behind`."""
        return self._list.behind(after, site, state, at_once)

    def get(self, name: str) -> JobView:
        """A job. Raises NotFoundError."""
        return self._list.get(name)

    def exceptions(self, name: str) -> list[JobException]:
        """The failures of a job as its engine reports them, newest first."""
        incarnation = self._incarnation(name)
        with _naming(incarnation.job.site):
            engine = self._connections.engine_of(incarnation.job.engine)
            failures = engine.exceptions(incarnation.engine_job_id)
        return [
            JobException(
                at=rfc3339(datetime.fromtimestamp(failure.at_ms / 1000, UTC)),
                name=failure.name,
                trace=failure.trace,
                task=failure.task,
                reason=failure.reason,
            )
            for failure in failures
        ]

    def metrics(self, name: str) -> JobMetrics:
        """The engine's counters, and the rates that were last collected (see `Sampler.rate_job`).
        There are no counters while the engine does not list the job: it is being started, or the
        engine has lost it."""
        incarnation = self._incarnation(name)
        with _naming(incarnation.job.site):
            engine = self._connections.engine_of(incarnation.job.engine)
            is_listed = engine.status(incarnation.engine_job_id) is not None
            has_metrics = is_listed and EngineCapability.METRICS in engine.capabilities
            metrics = dict(engine.metrics(incarnation.engine_job_id)) if has_metrics else {}
        rates = self._measured(incarnation)
        owner = self._list.owner(name)
        composition = visible_name(owner) if owner else None
        return JobMetrics(name, composition, incarnation.job.site, rates, metrics)

    def savepoint(
        self, name: str, wait_s: float, gives_up: Callable[[], bool] = never
    ) -> Savepoint:
        """Take a savepoint of a running job and wait for it."""
        incarnation = self._incarnation(name)
        site = self._connections.site(incarnation.job.site)
        trigger = self._clock.new_id()
        layout = state_layout(find_taker(site.spe, incarnation.job.artifact_kind).kind)
        own = layout and layout.find_requested(name, trigger)
        target = f"{site.state_uri.rstrip('/')}/{own}" if site.state_uri and own else None
        with _naming(site.name):
            engine = self._connections.engine_of(incarnation.job.engine)
            if EngineCapability.STATE not in engine.capabilities:
                raise ConflictError(
                    f"cannot take a savepoint of {name}:"
                    f" {name_engine(self._connections, incarnation.job.engine)} has no capability"
                    " `state`"
                )
            engine.save(incarnation.engine_job_id, target, trigger)
            until = self._clock.monotonic() + wait_s
            while True:
                progress = engine.save_progress(incarnation.engine_job_id, trigger)
                if progress.location is not None:
                    return Savepoint(name, trigger, progress.location)
                if progress.done:
                    raise EngineRefusedError(
                        f"cannot take a savepoint of {name}: {progress.failure}"
                    )
                if self._clock.monotonic() > until or gives_up():
                    return Savepoint(name, trigger, None)
                self._clock.wait(0.1)

    def _incarnation(self, name: str) -> Incarnation:
        owner = self._list.owner(name)
        incarnation = self._records.incarnations.get(owner, name) if owner is not None else None
        if incarnation is None:
            self.get(name)
            raise ConflictError(f"cannot ask the engine about {name}: it was not started yet")
        return incarnation

    # -- changing -------------------------------------------------------------------------

    def post(
        self,
        description: JobDescription,
        wait_s: float,
        line_of: LineOf | None = None,
        *,
        drop_queues: bool = False,
        drain_limit_s: float | None = None,
        by: str | None = None,
        sees: Callable[[str], bool] = lambda scope: True,
        gives_up: Callable[[], bool] = never,
    ) -> JobOutcome:
        """Start a job, unless the same one is there already. `sees` says which compositions may be
        named to who asks; `drop_queues`, `drain_limit_s` and `gives_up` as in `ApplyRequest`.

        A job that is there but does not run as it should is started again. Raises ConflictError
        when another job has the name.
        """
        name = description.job_name
        request = ApplyRequest(
            line_of=line_of, drop_queues=drop_queues, drain_limit_s=drain_limit_s, by=by, sees=sees
        )
        with self._locks[name]:
            self._refuse_owned(name)
            head = self._head(name)
            if head is not None:
                self._refuse_another(description, head)
            running = self._changes.under_way(composition_of_one(name))
            if running is None or head is None:
                running = self._start(description, request)
                if running is None:
                    return JobOutcome(self.get(name))
        has_ended = running.wait_for_end(wait_s, gives_up)
        return self._answer(running, name, has_ended=has_ended, created=True, new=head is None)

    def put(
        self,
        name: str,
        description: JobDescription,
        wait_s: float,
        line_of: LineOf | None = None,
        *,
        drop_queues: bool = False,
        drain_limit_s: float | None = None,
        by: str | None = None,
        sees: Callable[[str], bool] = lambda scope: True,
        gives_up: Callable[[], bool] = never,
    ) -> JobOutcome:
        """Update or move; the options are those of `post`. Raises NotFoundError, and
        ConflictError for a composition's job."""
        request = ApplyRequest(
            line_of=line_of, drop_queues=drop_queues, drain_limit_s=drain_limit_s, by=by, sees=sees
        )
        with self._locks[name]:
            self._refuse_owned(name)
            if self._head(name) is None:
                raise NotFoundError(f"cannot find job {name!r}; add it with POST /jobs")
            running = self._start(description, request)
        if running is None:
            return JobOutcome(self.get(name))
        has_ended = running.wait_for_end(wait_s, gives_up)
        return self._answer(running, name, has_ended=has_ended, created=False)

    def delete(
        self,
        name: str,
        wait_s: float,
        *,
        drop_queues: bool = False,
        drain_limit_s: float | None = None,
        by: str | None = None,
        gives_up: Callable[[], bool] = never,
    ) -> JobOutcome:
        """Remove a job; the options are those of `post`."""
        with self._locks[name]:
            self._refuse_owned(name)
            if self._head(name) is None:
                raise NotFoundError(f"cannot find job {name!r}")
            try:
                _, running = self._compositions.remove(
                    composition_of_one(name),
                    drop_queues=drop_queues,
                    drain_limit_s=drain_limit_s,
                    by=by,
                )
            except NotFoundError:
                self._refuse_owned(name)  # a composition has taken it in meanwhile
                raise
        if not running.wait_for_end(wait_s, gives_up):
            return JobOutcome(under_way=running.change.head())
        if running.change.state is not ChangeState.DONE:
            raise running.failure or PermanentError(f"cannot remove {name}: {running.change.error}")
        return JobOutcome()

    def _head(self, name: str) -> Head | None:
        """What is stored of a job posted alone."""
        return self._records.compositions.head(composition_of_one(name))

    def _start(self, description: JobDescription, request: ApplyRequest) -> Running | None:
        """The change; None when nothing is to be done."""
        alone = CompositionDescription(composition_of_one(description.job_name), (description,))
        _, running = self._compositions.accept(alone, request)
        return running

    def _refuse_another(self, description: JobDescription, head: Head) -> None:
        """Raises ConflictError unless the job that is there is the same, with the same artifact."""
        name, another = description.job_name, None
        revision = self._records.compositions.revision(head.name, head.revision)
        if revision is None:
            raise ConflictError(f"cannot add job {name!r}: it is being removed; try again")
        if revision.description.jobs != (description,):
            another = "another of that name is there"
        elif revision.artifacts[description.job_path] != self._artifact_of(description.job_path):
            another = "it is there with another file at the same path"
        if another is not None:
            raise ConflictError(
                f"cannot add job {name!r}: {another}; change it with PUT /jobs/{name}"
            )

    def _answer(
        self, running: Running, name: str, *, has_ended: bool, created: bool, new: bool = False
    ) -> JobOutcome:
        """The outcome of a change; a `new` job that could not be started is removed again."""
        change = running.change
        if not has_ended:
            return JobOutcome(under_way=change.head())
        if change.state is ChangeState.DONE:
            return JobOutcome(self.get(name), created=created)
        error: SpeckError = running.failure or ConflictError(
            change.error or f"cannot start {name}: change {change.id} was cancelled",
            change=change.id,
        )
        if new:
            self._clean_up(name, change)
        raise error

    def _clean_up(self, name: str, failed: Change) -> None:
        """Remove what is left of a job that could not be started. Its session is no older than the
        request that failed: nobody was promised what came since."""
        # unless another request changes it by now, or a composition has adopted it
        with self._locks[name], suppress(ConflictError, NotFoundError):
            head = self._head(name)
            if head is None or head.last_change != failed.id:
                return
            _, running = self._compositions.remove(
                composition_of_one(name), drop_queues=True, drain_limit_s=0.0, by=failed.by
            )
            running.over.wait(10.0)

    def _refuse_owned(self, name: str) -> None:
        owner = self._list.owner(name)
        if owner is not None and owner != composition_of_one(name):
            raise make_owned_error(name, owner)


@contextmanager
def _naming(site: str) -> Iterator[None]:
    """Add the site's name to what its engine raises."""
    try:
        yield
    except SpeckError as error:
        raise at_site(error, site) from error
