"""Creates executions of plans, and holds what they need from the service."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

from speck import failpoints
from speck.binding import Artifact, StateKeeper
from speck.clock import Clock
from speck.deploy.execution import Bounds, Execution
from speck.deploy.limiter import Limiter
from speck.deploy.locks import SessionLocks
from speck.deploy.operations import Operations, Patience, Refills, ResendRun, Resends
from speck.deploy.scheduler import THREADS, Scheduler
from speck.model.change import Change
from speck.model.plan import Operation
from speck.sites.connections import Connections
from speck.sites.identities import Identities
from speck.store.records import Records


@dataclass(slots=True)
class Executions:
    """All executions share one limiter of the calls to each site."""

    connections: Connections
    records: Records
    clock: Clock
    artifact: Callable[[str], Artifact]
    bounds: Bounds
    patience: Patience
    keeper: StateKeeper
    identities: Identities
    report_done: Callable[[str, Operation], None] = lambda scope, operation: None
    """Is called with each operation of a scope that has succeeded, before anybody can read that."""
    scheduler: Scheduler = THREADS
    session_locks: SessionLocks | None = None
    """Shared with all others who write what is stored of sessions; None: there is nobody else."""
    refills: Refills = field(init=False)
    resends: Resends = field(init=False)
    limiter: Limiter = field(init=False)

    def __post_init__(self) -> None:
        self.refills = Refills(self.connections, self.clock, self.patience.refill_s, self.scheduler)
        run = ResendRun(self.connections, self.records, self.clock, self.artifact, self.keeper)
        self.resends = Resends(self.connections, self.records, self.clock, run, self.scheduler)
        self.limiter = Limiter(self.bounds.per_site, self.scheduler)

    def make(self, change: Change, scope: str, on_progress: Callable[[], None]) -> Execution:
        """Create an execution of the change's plan; it has not begun."""
        operations = Operations(
            self.connections,
            self.records,
            self.clock,
            scope,
            self.artifact,
            self.patience,
            failpoints.wrap(self.keeper, hits_after_request=False),
            self.refills,
            self.resends,
            self.identities,
            change.find_begun_before(),
            self.scheduler,
            self.session_locks,
        )
        return Execution(
            change,
            operations,
            self.connections,
            self.records,
            self.clock,
            self.bounds,
            on_progress,
            self.limiter,
            partial(self.report_done, scope),
            self.scheduler,
        )

    def close(self) -> None:
        """Trigger no more extra checkpoints of started jobs, and have no more sent again."""
        self.refills.close()
        self.resends.close()
