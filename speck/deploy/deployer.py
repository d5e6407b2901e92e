"""From a description to a plan: observed, resolved, checked, planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from pathlib import Path

from speck.binding import EngineCapability, StateKeeper
from speck.config import Config
from speck.deploy.admission import Admission
from speck.deploy.capabilities import lacking
from speck.deploy.change_intent import wanted_by
from speck.deploy.changes import Changes
from speck.deploy.planner import plan
from speck.model.change import Cause, Change
from speck.model.composition import Composition, CompositionDescription, composition_of_one
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation, Inventory, StartState
from speck.model.observation import Observation, RunState
from speck.model.plan import Plan
from speck.model.site import Site
from speck.sites.connections import Connections
from speck.sites.observer import observe
from speck.spec.jars import ARTIFACT, Jar
from speck.spec.resolve import JarFinder, LineOf
from speck.store.artifacts import Artifacts
from speck.store.records import Records


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan that was made from what is there now, and what to tell about it.

    `sites` are those registered then, `jars` the SHA-256 of what each `job_path` named. `files`
    says where the contents lie, by SHA-256. `running` are incarnations that were not known to
    run, as they were stored, by scope and job name. Nothing of it is stored yet; see `accept`.
    """

    scope: str
    composition: Composition
    plan: Plan
    sites: Mapping[str, Site]
    warnings: tuple[str, ...] = ()
    jars: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    running: Mapping[tuple[str, str], Incarnation] = field(default_factory=dict)


class Deployer:
    """Observes, resolves and plans for one scope; starts the change."""

    def __init__(
        self,
        config: Config,
        records: Records,
        connections: Connections,
        artifacts: Artifacts,
        changes: Changes,
        keeper: StateKeeper,
        admission: Admission,
    ):
        self._records = records
        self._connections = connections
        self._artifacts = artifacts
        self._keeper = keeper
        self._admission = admission
        self.changes = changes
        self._jars = JarFinder(config.jar_folders, artifacts.find)

    def prepare(
        self,
        description: CompositionDescription,
        line_of: LineOf | None = None,
        adopted: Sequence[str] = (),
        jars: Mapping[str, str] | None = None,
        *,
        drain: bool = True,
        leave: frozenset[str] = frozenset(),
        stopped: frozenset[str] = frozenset(),
    ) -> Prepared:
        """Resolve and plan; nothing is written. Raises InvalidError with every fault found;
        `line_of` gives the line of a fault's path in what the user sent. Jobs posted alone that
        are `adopted` count as the scope's own. `jars` gives, by `job_path`, the SHA-256 of what
        was accepted before and is to be used whatever lies there now. `drain`, `leave` and
        `stopped` are those of `speck.deploy.planner.plan`."""
        scope = description.name
        sites = self._records.sites()
        inventory = self._inventory(scope, adopted)
        observed = self._observe(sites, inventory, _sites_named(description, sites))
        running = _turned_out_to_run(scope, inventory, observed, adopted)
        confirmed = {name: _confirmed(deployed) for (_, name), deployed in running.items()}
        inventory = replace(inventory, jobs={**inventory.jobs, **confirmed})
        named: dict[str, str] = {}

        def find(job_path: str) -> Jar:
            accepted = (jars or {}).get(job_path)
            jar = self._jars(f"{ARTIFACT}{accepted}" if accepted else job_path)
            named[job_path] = jar.sha256
            return jar

        resolved = self._admission.resolve(
            description, sites, find, inventory, observed, adopted, line_of
        )
        composition = resolved.composition
        leaving = self._leaving(composition, inventory)
        numbers = observe(self._connections, (), leaving & sites.keys()).brokers
        prepared = self._planned(
            scope,
            composition,
            inventory,
            replace(observed, brokers=numbers),
            resolved.warnings,
            adopted=adopted,
            drain=drain,
            leave=leave,
            stopped=stopped,
        )
        return replace(prepared, sites=sites, jars=named, files=resolved.jars, running=running)

    def accept(self, prepared: Prepared) -> None:
        """Keep the jars that a plan needs, and store which incarnations turned out to run.

        The latter only while no change is at work in their scope: its start may still fail, or
        it has gone on since they were looked at.
        """
        for sha256, file in prepared.files.items():
            self._artifacts.adopt(sha256, file)
        for (scope, name), deployed in prepared.running.items():
            with self.changes.resting(scope) as resting:
                if resting and self._records.incarnation(scope, name) == deployed:
                    self._records.write(self._records.put_incarnation(scope, _confirmed(deployed)))

    def jar_of(self, job_path: str) -> str:
        """The SHA-256 of what `job_path` names now. Raises InvalidError, NotFoundError."""
        return self._jars(job_path).sha256

    def prepare_removal(self, name: str, *, drain: bool = True) -> Prepared:
        """The plan that removes everything of a composition; `drain`: see
        `speck.deploy.planner`."""
        sites = self._records.sites()
        inventory = self._records.inventory(name)
        composition = Composition(name, ())
        leaving = self._leaving(composition, inventory)
        observed = self._observe(sites, inventory, set(), leaving)
        prepared = self._planned(name, composition, inventory, observed, (), drain=drain)
        return replace(prepared, sites=sites)

    def plan_anew(self, change: Change) -> tuple[Plan, Mapping[str, Site]]:
        """The plan from what is there now to what a change was accepted for, and the sites.

        Raises InvalidError, ConflictError, NotFoundError when that cannot be had any more.
        """
        if change.cause is Cause.REMOVE:
            prepared = self.prepare_removal(change.composition, drain=change.drain)
        else:
            description, jars = wanted_by(change, self._records)
            prepared = self.prepare(
                description,
                jars=jars,
                drain=change.drain,
                leave=change.leave,
                stopped=change.stopped,
            )
            self.accept(prepared)
        return prepared.plan, prepared.sites

    def _planned(
        self,
        scope: str,
        composition: Composition,
        inventory: Inventory,
        observed: Observation,
        warnings: Sequence[str],
        *,
        adopted: Sequence[str] = (),
        drain: bool = True,
        leave: frozenset[str] = frozenset(),
        stopped: frozenset[str] = frozenset(),
    ) -> Prepared:
        scopes = {scope, *map(composition_of_one, adopted)}
        known = self._records.sites().keys()
        engines = {d.job.site for d in inventory.jobs.values()} & known
        engines |= {job.site for job in composition.jobs}
        made = plan(
            composition,
            inventory,
            observed,
            self._records.installation,
            self._records.links_read_outside(scopes),
            self._records.sinks_outside(scopes),
            drain=drain,
            leave=leave,
            stopped=stopped,
            cannot_try=lacking(self._connections, EngineCapability.TRY_MAIN, engines),
            cannot_save=lacking(self._connections, EngineCapability.SAVEPOINTS, engines),
            apart=self._apart(composition, inventory),
        )
        return Prepared(scope, composition, made, {}, tuple(warnings))

    def _observe(
        self,
        sites: Mapping[str, Site],
        inventory: Inventory,
        named: Set[str],
        brokers: Set[str] = frozenset(),
    ) -> Observation:
        engines = {d.job.site for d in inventory.jobs.values()} | named
        return observe(self._connections, engines & sites.keys(), brokers & sites.keys())

    def _leaving(self, composition: Composition, inventory: Inventory) -> set[str]:
        """The sites whose brokers have links that a session leaves: only what is told of those
        matters to a plan."""
        kept = {
            (source_client_id(self._records.installation, job.job_name, job.source), job.source)
            for job in composition.jobs
        } | {(reader.client_id, reader.link) for reader in composition.readers}
        return {s.site for s in inventory.sessions if (s.client_id, s.link) not in kept}

    def _inventory(self, scope: str, adopted: Sequence[str]) -> Inventory:
        own = self._records.inventory(scope)
        for job_name in adopted:
            alone = self._records.inventory(composition_of_one(job_name))
            used = [i.attempts[job_name] for i in (own, alone) if job_name in i.attempts]
            attempts = {job_name: max(used)} if used else {}
            own = Inventory(
                {**own.jobs, **alone.jobs},
                (*own.sessions, *alone.sessions),
                {**own.attempts, **attempts},
            )
        return own

    def _apart(self, composition: Composition, inventory: Inventory) -> frozenset[tuple[str, str]]:
        """From where to where the state of a job would have to be carried."""
        return frozenset(
            (home, job.site)
            for job in composition.jobs
            if (deployed := inventory.jobs.get(job.job_name)) is not None
            for home in deployed.homes
            if not self._keeper.shares_storage(home, job.site)
        )


def _sites_named(description: CompositionDescription, sites: Mapping[str, Site]) -> set[str]:
    by_engine = {site.spe.address: name for name, site in sites.items()}
    named = {job.site or by_engine.get(job.engine_address or "") for job in description.jobs}
    return {name for name in named if name is not None}


def _turned_out_to_run(
    scope: str, inventory: Inventory, observed: Observation, adopted: Sequence[str]
) -> dict[tuple[str, str], Incarnation]:
    """Incarnations that were asked for and run, though nobody has seen that yet."""
    found = {}
    for name, deployed in inventory.jobs.items():
        seen = observed.job(deployed.job.site, deployed.engine_job_id)
        if seen is not None and not deployed.confirmed and seen.state is RunState.RUNNING:
            found[composition_of_one(name) if name in adopted else scope, name] = deployed
    return found


def _confirmed(deployed: Incarnation) -> Incarnation:
    return replace(deployed, start=StartState.CONFIRMED, base=None)
