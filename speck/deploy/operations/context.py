"""What every operation needs: connections, the store, the clock, and the keeper of states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from speck.binding import (
    Artifact,
    EngineLimits,
    StateKeeper,
    Submission,
    engine_limits,
    find_taker,
)
from speck.clock import Clock
from speck.deploy.locks import NamedLocks, SessionLocks
from speck.deploy.operations.gathering import Gathering
from speck.deploy.operations.outcome import Done, Patience
from speck.deploy.operations.refilling import Refills
from speck.deploy.operations.resending import Resends
from speck.deploy.operations.shared_views import SharedViews
from speck.errors import PermanentError, SpeckError
from speck.model.engines import EngineAt
from speck.model.ids import producer_epoch, sink_client_id, source_client_id
from speck.model.incarnation import Incarnation, Session
from speck.model.job import Job
from speck.model.job_operations import Start, TryMain
from speck.model.link import Link
from speck.sites.connections import Connections
from speck.spec.job_contract import list_secrets, render_args
from speck.store.records import Records


@dataclass(frozen=True, slots=True)
class Context:
    """The dependencies of the operations of one scope's plan."""

    connections: Connections
    records: Records
    clock: Clock
    scope: str
    artifact: Callable[[str], Artifact]
    patience: Patience
    keeper: StateKeeper
    refills: Refills
    resends: Resends
    views: SharedViews
    """The numbers of sites' own brokers as they are once they are asked for; raises
    UnreachableError if another broker answers."""
    forgetting: Gathering[str, None]
    """Clears the numbers of sinks, by client id, at a site's broker."""
    session_locks: SessionLocks = field(default_factory=SessionLocks)

    @property
    def writing(self) -> NamedLocks:
        """By client id: held while the record of its session is read and written."""
        return self.session_locks.writing

    def store(self, outcome: Done) -> None:
        """Store an outcome that is not the last one of its operation."""
        with self.writing.all_of(outcome.sessions):
            self.records.write(outcome.batch())

    @property
    def reserving(self) -> NamedLocks:
        """By client id: held while its session is reached at its broker, or begins to be read."""
        return self.session_locks.reserving

    def source_client_id(self, job: Job) -> str:
        """The client id with which a job reads its link."""
        return source_client_id(self.records.installation, job.job_name, job.source)

    def sink_client_id(self, job: Job, link: Link) -> str:
        """The client id with which a job writes to a link of its port."""
        return sink_client_id(self.records.installation, job.job_name, job.source, link)

    def submission(
        self,
        operation: Start | TryMain,
        sink_has_readers: bool,
        state: str | None,
        secrets: Mapping[str, str] | None = None,
    ) -> Submission:
        """The submission of a job to its engine; without `secrets` for one that is never run."""
        job = operation.job
        client_id = self.source_client_id(job)
        session = self.records.sessions.get(self.scope, client_id, job.source_site)
        skip = session.taken if session is not None and session.link == job.source else ()
        until = operation.until if isinstance(operation, Start) else ()
        return Submission(
            engine_job_id=operation.engine_job_id,
            job_name=job.job_name,
            artifact=self.artifact(job.artifact),
            entry=job.entry_class,
            args=render_args(
                job,
                self.records.installation,
                producer_epoch(self.records.generation, operation.attempt),
                sink_has_readers,
                skip,
                secrets,
                until,
            ),
            parallelism=job.parallelism,
            state=state,
            memory_mb=job.memory_mb,
        )

    def read_secrets(self, job: Job) -> dict[str, str]:
        """The secrets that a job's arguments refer to, as they are now at its site."""
        return self.connections.secrets(job.site, list_secrets(job.args))

    def find_incarnation(self, job_name: str) -> Incarnation | None:
        """The newest incarnation of a job, as stored."""
        return self.records.incarnations.get(self.scope, job_name)

    def find_engine(self, job_name: str, engine_job_id: str) -> EngineAt:
        """Which engine an incarnation of a job was given to: another one may take the job now."""
        newest = incarnation = self.find_incarnation(job_name)
        while incarnation is not None and incarnation.engine_job_id != engine_job_id:
            incarnation = incarnation.base
        known = incarnation or newest
        if known is None:
            raise PermanentError(f"cannot find where {job_name} runs: it was removed; apply again")
        return known.job.engine

    def find_limits(self, engine: EngineAt) -> EngineLimits:
        """How long an engine may take."""
        taker = find_taker(self.connections.site(engine.site).spe, engine.artifact)
        limits, patience = engine_limits(taker.kind), self.patience
        return EngineLimits(
            limits.start_s if patience.start_s is None else patience.start_s,
            limits.stop_idle_s if patience.stop_idle_s is None else patience.stop_idle_s,
        )

    def find_session(self, job: Job) -> Session | None:
        """The session with which a job reads its link, as stored."""
        client_id = self.source_client_id(job)
        return self.records.sessions.get(self.scope, client_id, job.source_site)


@contextmanager
def hiding(secrets: Mapping[str, str]) -> Iterator[None]:
    """Keep the values of secrets out of the errors of an engine, which are stored and shown."""
    try:
        yield
    except SpeckError as error:
        message = hide(str(error), secrets)
        if message == str(error):
            raise
        error.args = (message,)
        raise error from None  # what caused it may hold them, too


def hide(message: str, secrets: Mapping[str, str]) -> str:
    """The message with the names of secrets in place of their values."""
    for name, value in secrets.items():
        message = message.replace(value, f"{{secret:{name}}}") if value else message
    return message
