"""One running speck: its parts, opened and closed together."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from pathlib import Path

from speck.binding import StateKeeper
from speck.clock import Clock, SystemClock
from speck.config import Config
from speck.deploy.admission import Admission
from speck.deploy.changes import (
    ChangeLedger,
    ChangeRecovery,
    ChangeRunner,
    Executions,
)
from speck.deploy.deployer import Deployer
from speck.deploy.execution import Bounds
from speck.deploy.operations import Patience
from speck.deploy.scheduler import THREADS, Scheduler
from speck.errors import StoreWriteError, TransientError
from speck.metrics.sampler import Sampler
from speck.monitor.outcomes import Outcomes
from speck.monitor.requirements_watch import Requirements
from speck.monitor.watch import Watch
from speck.service.access_policy import AccessPolicy
from speck.service.advisor import Advisor
from speck.service.analyses import Analyses
from speck.service.autopilot import Autopilots
from speck.service.calibration import Calibrations
from speck.service.composition_locks import CompositionLocks
from speck.service.composition_repairs import CompositionRepairs
from speck.service.composition_views import CompositionViews
from speck.service.compositions import Compositions
from speck.service.dataset import Dataset
from speck.service.forgetting import Forgetting
from speck.service.foundation import Foundation
from speck.service.jobs import Jobs
from speck.service.placements import Placements
from speck.service.restored import Restored
from speck.store.audit import Entry
from speck.store.location import StoreLocation


class Service(Foundation):
    """Opens the store, gives the use cases by noun, and ends what it started.

    Open it in the process that serves (after any fork) and close it there.
    """

    def __init__(
        self,
        config: Config,
        clock: Clock | None = None,
        bounds: Bounds | None = None,
        patience: Patience | None = None,
        keeper: StateKeeper | None = None,
        location: Callable[[Path], StoreLocation] = StoreLocation.of,
        scheduler: Scheduler = THREADS,
        on_store_failure: Callable[[StoreWriteError], None] | None = None,
    ):
        """`on_store_failure` is called once, when the store begins to refuse writes: the process
        should exit and restart."""
        super().__init__(
            config, clock or SystemClock(), keeper, location, scheduler, on_store_failure
        )
        self._bounds, self._patience = bounds or Bounds(), patience or Patience()
        self._make_parts()
        self._take_up()

    @cached_property
    def dataset(self) -> Dataset:
        return Dataset(self.config, self.storage, self.clock, self.recorder.flush)

    @cached_property
    def analyses(self) -> Analyses:
        return Analyses(self.config, self.storage, self.records, self.clock, self.recorder.flush)

    @cached_property
    def sampler(self) -> Sampler:
        return Sampler(
            self.records,
            self.polling,
            self.scheduler,
            self.clock,
            self.recorder,
            self.config.collect_s,
            self.agents.last_report,
            self.changes.list_starting_jobs,
            self.changes.await_calm,
            self.analyses.warm_up,
        )

    @cached_property
    def requirements(self) -> Requirements:
        return Requirements(self.records, self.clock, self.sampler.rate_job)

    @cached_property
    def policy(self) -> AccessPolicy:
        return AccessPolicy(self.records, lambda change: self.changes.get(change).operations)

    @cached_property
    def _admission(self) -> Admission:
        return Admission(
            self.records,
            self.connections,
            self.keeper,
            self.changes,
            self.config.output_client_ids,
            self.polls.find_bridges,
        )

    @cached_property
    def _deployer(self) -> Deployer:
        return Deployer(
            self.config,
            self.records,
            self.connections,
            self.polling,
            self.artifacts,
            self.changes,
            self.keeper,
            self._admission,
            self.identities,
            self.states.is_stuck,
            self._scheduler,
        )

    @cached_property
    def _outcomes(self) -> Outcomes:
        return Outcomes(self.records, self.polls, self.board, self.clock)

    @cached_property
    def executions(self) -> Executions:
        return Executions(
            self.connections,
            self.records,
            self.clock,
            self.artifacts.artifact,
            self._bounds,
            self._patience,
            self.keeper,
            self.identities,
            self._outcomes.report_done,
            self._scheduler,
            self.changes.session_locks,
        )

    @cached_property
    def _ledger(self) -> ChangeLedger:
        return ChangeLedger(self.records, self.clock)

    @cached_property
    def _recovery(self) -> ChangeRecovery:
        return ChangeRecovery(
            self.changes, self._ledger, self._deployer, self.clock, self._scheduler
        )

    @cached_property
    def runner(self) -> ChangeRunner:
        return ChangeRunner(
            self.changes,
            self._ledger,
            self._recovery,
            self.executions,
            self.clock,
            self._outcomes.report_end,
            self._scheduler,
        )

    @cached_property
    def _locks(self) -> CompositionLocks:
        return CompositionLocks()

    @cached_property
    def composition_views(self) -> CompositionViews:
        return CompositionViews(
            self.records, self._deployer, self._job_list, self.changes, self.requirements
        )

    @cached_property
    def compositions(self) -> Compositions:
        return Compositions(
            self.records,
            self._deployer,
            self._job_list,
            self.changes,
            self.runner,
            self._admission,
            self.clock,
            self._locks,
        )

    @cached_property
    def repairs(self) -> CompositionRepairs:
        return CompositionRepairs(
            self.records, self._deployer, self.changes, self.runner, self._locks
        )

    @cached_property
    def jobs(self) -> Jobs:
        return Jobs(
            self.records,
            self.connections,
            self._job_list,
            self.compositions,
            self.clock,
            self.changes,
            self._deployer.artifact_of,
            self.sampler.rate_job,
        )

    @cached_property
    def forgetting(self) -> Forgetting:
        return Forgetting(
            self.records,
            self.changes,
            self.runner,
            self._locks,
            self._job_list,
            self.connections,
            self.polls,
            self.agents,
        )

    @cached_property
    def restored(self) -> Restored:
        return Restored(self.records, self.connections, self.polls, self.changes, self.clock)

    @cached_property
    def watch(self) -> Watch:
        return Watch(
            self.records,
            self.connections,
            self.changes,
            self.polls,
            self.board,
            self.states.errors,
            self.clock,
            self.repairs,
            self.config.watch_s,
            self.sampler.latest.link,
            self.keeper.folder,
            self.executions.resends,
        )

    @cached_property
    def calibrations(self) -> Calibrations:
        return Calibrations(self.records, self.connections, self.jobs, self.polls, self.clock)

    @cached_property
    def placements(self) -> Placements:
        return Placements(
            self.records,
            self.compositions,
            self.composition_views,
            self.polls,
            self.clock,
            self.analyses,
            self.config.move_horizon_s,
        )

    @cached_property
    def advisor(self) -> Advisor:
        return Advisor(self.placements, self.analyses.start)

    @cached_property
    def autopilots(self) -> Autopilots:
        return Autopilots(
            self.records,
            self.composition_views,
            self.placements,
            self.polls,
            self.clock,
            self.requirements.broken,
            self.changes.all_under_way,
        )

    def _take_up(self) -> None:
        """Go on with the changes that a stop of the service cut short."""
        try:
            self.audit.report_unfinished()
            self.restored.notice_rollback()
            if self.records.restored is not None:
                reason = self.records.restored.reason
                self.audit.record(Entry("speck serve", "/restored", reason))
            cut_short = self._recovery.take_up()
        except BaseException:  # no thread of a change runs yet: there is nobody to wait for
            self.watch.close()
            self.sampler.close()
            super().close()
            raise
        for running in cut_short:
            self.runner.go_on(running)
        if self.records.restored is None:
            self.calibrations.sweep()

    def check_ready(self) -> None:
        """Raises StoreError when the store does not answer or take writes, TransientError
        while stopping."""
        self.records.check_readable()
        self.records.store.check_writable()
        if self.changes.closing:
            raise TransientError("cannot take requests: the service is stopping")

    def close(self) -> None:
        """Let running changes reach a safe point, and give back everything.

        They go on at the next start.
        """
        self.closing.set()
        self.analyses.close()
        self.autopilots.close()
        self.requirements.close()
        self.calibrations.close()
        self.watch.close()
        self.sampler.close()
        self.runner.close()
        super().close()
