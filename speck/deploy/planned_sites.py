"""What a plan goes by: the answers of the engines and brokers that it is about."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from contextlib import suppress
from dataclasses import dataclass, replace

from speck.deploy.begun_jobs import (
    begin_sessions,
    by_client_id,
    is_unheard,
    left_state,
    put_noticed,
)
from speck.deploy.finished_jobs import find_finished, finish
from speck.deploy.locks import SessionLocks
from speck.deploy.scheduler import Scheduler
from speck.errors import TransientError
from speck.model.composition import Composition
from speck.model.engines import EngineAt
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation, Inventory, StartState
from speck.model.observation import Observation, RunState
from speck.model.site import Site
from speck.sites.connections import Connections
from speck.sites.identities import Identities
from speck.sites.observer import begin_observing, observe
from speck.sites.pollers.polling import Polling
from speck.store.records import Records


@dataclass(frozen=True, slots=True)
class Sight:
    """What is deployed of a scope and what its sites report. `noticed`, of which the inventory
    shows more than is stored: see `deployer.PreparedPlan`."""

    inventory: Inventory
    observation: Observation
    noticed: Mapping[str, Incarnation]


class PlannedSites:
    """Observes the sites of one plan."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        polling: Polling,
        identities: Identities,
        scheduler: Scheduler,
    ):
        self._records = records
        self._connections = connections
        self._polling = polling
        self._identities = identities
        self._scheduler = scheduler

    def begin(
        self,
        sites: Mapping[str, Site],
        inventory: Inventory,
        desired_sites: Set[str],
        brokers: Set[str] = frozenset(),
    ) -> Callable[[], Observation]:
        """Ask the engines of the inventory and of the desired sites, and these brokers; what is
        returned waits for their answers."""
        engines = {d.job.site for d in inventory.jobs.values()} | desired_sites
        await_answers = begin_observing(
            self._polling, engines & sites.keys(), brokers & sites.keys(), self._scheduler.pool
        )
        return lambda: self._leave_out_strangers(await_answers())

    def observe_brokers(self, sites: Set[str]) -> Observation:
        """Ask the brokers of these sites."""
        observation = observe(self._polling, (), sites, self._scheduler.pool)
        return self._leave_out_strangers(observation)

    def _leave_out_strangers(self, observation: Observation) -> Observation:
        """The numbers of another broker at a site's address say nothing about our readers."""
        brokers, silent = dict(observation.brokers), dict(observation.unreachable)
        for site, view in observation.brokers.items():
            try:
                self._identities.refuse_stranger(site, view.identity)
            except TransientError as error:
                del brokers[site]
                silent[site] = str(error)
        return replace(observation, brokers=brokers, unreachable=silent)

    def find_finished(
        self, observation: Observation, inventory: Inventory
    ) -> tuple[Observation, dict[str, Incarnation]]:
        """The incarnations that have finished, though that is not stored. An engine that does not
        say counts as silent: a job that has finished must not be started again."""
        by_engine: dict[EngineAt, list[Incarnation]] = {}
        for each in inventory.jobs.values():
            if observation.has_answer(each.job.engine):
                by_engine.setdefault(each.job.engine, []).append(each)
        engines = dict(observation.engines)
        finished: list[Incarnation] = []
        for engine, there in by_engine.items():
            view = engines[engine.site]
            try:
                finished += find_finished(self._connections, view, there)
            except TransientError as error:
                silent = {**view.silent, engine.artifact: str(error)}
                engines[engine.site] = replace(view, silent=silent)
        jobs = {each.job.job_name: finish(each) for each in finished}
        return replace(observation, engines=engines), jobs

    def look(self, stored: Inventory, await_answers: Callable[[], Observation]) -> Sight:
        """What is there once the engines have answered."""
        observation, finished = self.find_finished(await_answers(), stored)
        over = self._find_begun_and_over(observation, stored)
        noticed = {**find_newly_begun(stored, observation), **over, **finished}
        sessions = by_client_id(stored.sessions)
        for each in filter(is_unheard, (stored.jobs[name] for name in noticed)):
            sessions |= begin_sessions(self._records.installation, each, sessions)
        jobs = {**stored.jobs, **noticed}
        inventory = replace(stored, jobs=jobs, sessions=tuple(sessions.values()))
        return Sight(inventory, observation, noticed)

    def _find_begun_and_over(
        self, observation: Observation, inventory: Inventory
    ) -> dict[str, Incarnation]:
        """Those that have failed, or were cancelled, and have left state, before the answer to
        their start was heard; as accepted ones. An id that was fenced looks like them."""
        begun = dict[str, Incarnation]()
        for name, old in inventory.jobs.items():
            there = observation.job(old.job.site, old.engine_job_id)
            if there is None or there.state not in (RunState.FAILED, RunState.CANCELED):
                continue
            if old.ended or not is_unheard(old):
                continue
            with suppress(TransientError):
                if left_state(self._connections.engine_of(old.job.engine), old):
                    begun[name] = replace(old, start=StartState.ACCEPTED, commits=())
        return begun

    def record(
        self,
        scope: str,
        noticed: Iterable[tuple[Incarnation, Incarnation]],
        locks: SessionLocks,
    ) -> None:
        """Store what was noticed of incarnations, each as it is stored and as it is, while nothing
        of their scope is carried out."""
        sessions = self._records.sessions
        with locks.writing.all_of(each.client_id for each in sessions.of_scope(scope)):
            self._records.write(put_noticed(self._records, scope, noticed))

    def add_left_brokers(
        self, seen: Sight, composition: Composition, sites: Mapping[str, Site]
    ) -> Observation:
        """The observation, with the brokers whose links the plan leaves."""
        leaving = self.find_left_brokers(composition, seen.inventory)
        at_brokers = self.observe_brokers(leaving & sites.keys())
        silent = {**seen.observation.unreachable, **at_brokers.unreachable}
        return replace(seen.observation, brokers=at_brokers.brokers, unreachable=silent)

    def find_left_brokers(self, composition: Composition, inventory: Inventory) -> set[str]:
        """The sites of brokers where a session leaves a link: a plan depends on the numbers of
        these brokers only."""
        wanted_sessions = {
            (source_client_id(self._records.installation, job.job_name, job.source), job.source)
            for job in composition.jobs
        } | {(reader.client_id, reader.link) for reader in composition.readers}
        return {s.site for s in inventory.sessions if (s.client_id, s.link) not in wanted_sessions}


def find_newly_begun(inventory: Inventory, observation: Observation) -> dict[str, Incarnation]:
    """Incarnations of which their engines show more than is stored: confirmed ones where all tasks
    run, and accepted ones where the answer to a start was lost that has arrived."""
    begun = dict[str, Incarnation]()
    for name, old in inventory.jobs.items():
        there = observation.job(old.job.site, old.engine_job_id)
        if there is None or old.confirmed:
            continue
        if there.state is RunState.RUNNING:
            begun[name] = replace(old, start=StartState.CONFIRMED, base=None, commits=())
        elif is_unheard(old) and not there.state.terminal:
            begun[name] = replace(old, start=StartState.ACCEPTED, commits=())
    return begun
