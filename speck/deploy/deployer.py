"""From a description to a plan: observed, resolved, checked, planned."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from speck.binding import BrokerCapability, EngineCapability, StateKeeper
from speck.config import Config
from speck.deploy.change_intent import wanted_by
from speck.deploy.changes import Changes
from speck.deploy.planner import plan
from speck.errors import (
    ConflictError,
    NotFoundError,
    PermanentError,
    Problem,
    SpeckError,
    TransientError,
)
from speck.model.change import Cause, Change
from speck.model.composition import Composition, CompositionDescription, composition_of_one
from speck.model.ids import source_client_id
from speck.model.incarnation import Incarnation, Inventory
from speck.model.job import Delivery, Job, Upgrade
from speck.model.observation import Observation, RunState
from speck.model.plan import Plan
from speck.model.site import Site
from speck.sites.connections import Connections
from speck.sites.observer import observe
from speck.spec.jars import ARTIFACT, Jar
from speck.spec.resolve import JarFinder, LineOf, refuse_problems, resolve
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
    ):
        self._records = records
        self._connections = connections
        self._artifacts = artifacts
        self._keeper = keeper
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
        known: dict[str, Any] = {
            "free_slots": {
                name: view.slots.free if view.slots else None
                for name, view in observed.engines.items()
            },
            "held_slots": _held_slots(inventory, observed),
            "brokers_mqtt5": self._brokers_mqtt5(description, sites),
            "others": self._jobs_outside({scope, *map(composition_of_one, adopted)}),
            "line_of": line_of,
        }
        named: dict[str, str] = {}

        def find(job_path: str) -> Jar:
            accepted = (jars or {}).get(job_path)
            jar = self._jars(f"{ARTIFACT}{accepted}" if accepted else job_path)
            named[job_path] = jar.sha256
            return jar

        resolved = resolve(description, sites, find, **known)
        composition = resolved.composition
        problems = self._state_that_cannot_travel(composition, inventory, description)
        problems += self._beyond_capabilities(composition, inventory)
        refuse_problems(problems, scope, line_of)
        self._refuse_readers_of_others(scope, composition)
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
                if resting and self._records.deployed(scope, name) == deployed:
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
            cannot_try=self._lacking(EngineCapability.TRY_MAIN, engines),
            cannot_save=self._lacking(EngineCapability.SAVEPOINTS, engines),
            apart=self._apart(composition, inventory),
        )
        return Prepared(scope, composition, made, {}, tuple(warnings))

    def _jobs_outside(self, scopes: Collection[str]) -> Iterator[Job]:
        """What runs, or is to, in all other scopes; looked up when it is asked for."""
        for (scope, _), deployed in self._records.all_incarnations().items():
            if scope not in scopes:
                yield deployed.job

    def _refuse_readers_of_others(self, scope: str, composition: Composition) -> None:
        """One client id has one session on a broker: who gave it up would end the other's."""
        held = self._records.readers_outside({scope})
        for reader in composition.readers:
            holder = held.get((reader.link.broker, reader.client_id))
            if holder is not None:
                raise ConflictError(
                    f"cannot reserve a session for client id {reader.client_id!r} at"
                    f" {reader.site}: composition {holder} has it; give another client_id"
                )

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

    def _lacking(self, capability: EngineCapability, sites: Iterable[str]) -> frozenset[str]:
        """The sites whose engine says that it cannot do something; no engine is asked."""
        found = set()
        for site in sites:
            with suppress(NotFoundError):  # removed meanwhile: the change will be refused
                if capability not in self._connections.engine(site).capabilities:
                    found.add(site)
        return frozenset(found)

    def _apart(self, composition: Composition, inventory: Inventory) -> frozenset[tuple[str, str]]:
        """From where to where the state of a job would have to be carried."""
        return frozenset(
            (home, job.site)
            for job in composition.jobs
            if (deployed := inventory.jobs.get(job.job_name)) is not None
            for home in _homes(deployed)
            if not self._keeper.shared(home, job.site)
        )

    def _state_that_cannot_travel(
        self, composition: Composition, inventory: Inventory, description: CompositionDescription
    ) -> list[Problem]:
        """Moves of jobs with their state to or from a site where nobody can carry it."""
        problems = []
        asked: dict[str, str | None] = {}
        for index, job in enumerate(composition.jobs):
            deployed = inventory.jobs.get(job.job_name)
            if deployed is None or job.upgrade is not Upgrade.SAVEPOINT or not _has_state(deployed):
                continue
            for home in sorted(_homes(deployed)):
                if self._keeper.shared(home, job.site):
                    continue
                why = self._nobody_carries(deployed, home, job.site, asked)
                if why is not None:
                    given = "site" if description.jobs[index].site is not None else "spe_address"
                    fault = (
                        f"cannot move {job.job_name} with its state from {home} to {job.site}:"
                        f" the two share no storage, and {why}; run `speck agent` at both, or"
                        " give both the same label state_uri, or set upgrade: stateless"
                    )
                    problems.append(Problem(f"jobs[{index}].{given}", fault))
        return problems

    def _nobody_carries(
        self, deployed: Incarnation, home: str, target: str, asked: dict[str, str | None]
    ) -> str | None:
        """Why no state can be carried between two sites; each site is `asked` once."""
        for site in (home, target):
            if site not in asked:
                asked[site] = self._no_carrier(site, deployed)
            if asked[site] is not None:
                return asked[site]
        return None

    def _no_carrier(self, site: str, deployed: Incarnation) -> str | None:
        """Why nobody at a site can carry states; an agent that is silent now may."""
        if self._keeper.folder(site) is None:
            return f"nobody knows where {site} keeps states"
        try:
            self._keeper.newest(site, deployed.engine_job_id)
        except TransientError:
            pass
        except PermanentError:
            return f"no agent runs at {site} to carry it"
        return None

    def _beyond_capabilities(self, composition: Composition, inventory: Inventory) -> list[Problem]:
        """What an engine or a broker cannot keep for a job, as problems of `jobs[n]`."""
        known = self._records.sites()
        engines = {d.job.site for d in inventory.jobs.values()} & known.keys()
        engines |= {job.site for job in composition.jobs}
        forgetful = self._lacking(EngineCapability.SAVEPOINTS, engines)
        links = {site for job in composition.jobs for site in (job.source_site, job.sink_site)}
        forgetting = {site for site in links if self._forgets(site)}
        problems = []
        for index, job in enumerate(composition.jobs):
            deployed = inventory.jobs.get(job.job_name)
            homes = [job.site, *([deployed.job.site] if deployed else [])]
            at = next((site for site in homes if site in forgetful), None)
            if at is not None and job.upgrade is Upgrade.SAVEPOINT:
                fault = f"the engine of site {at} keeps no state on request"
                problems.append(
                    Problem(f"jobs[{index}].upgrade", f"{fault}; set upgrade: stateless")
                )
            at = next((s for s in (job.source_site, job.sink_site) if s in forgetting), None)
            if at is not None and job.delivery is not Delivery.AT_MOST_ONCE:
                fault = f"the broker of site {at} keeps nothing for a reader that is away"
                problems.append(
                    Problem(f"jobs[{index}].delivery", f"{fault}; set delivery: at_most_once")
                )
        return problems

    def _forgets(self, site: str) -> bool:
        """Whether a site's broker says that it keeps no sessions; it is not asked."""
        try:
            capabilities = self._connections.broker(site).capabilities
        except SpeckError:  # without its credentials nothing is known of it yet
            return False
        return BrokerCapability.SESSIONS not in capabilities

    def _brokers_mqtt5(
        self, description: CompositionDescription, sites: Mapping[str, Site]
    ) -> dict[str, bool | None]:
        """Which brokers carry properties; asked only when something needs them."""
        if not any(
            job.delivery is Delivery.EXACTLY_ONCE or job.link.in_batches for job in description.jobs
        ):
            return {}
        answers: dict[str, bool | None] = {}
        for site in sites.values():
            try:
                broker = self._connections.broker(site.name)
                broker.reach()
                answers[site.broker.address] = BrokerCapability.NUMBERS in broker.capabilities
            except SpeckError:
                answers[site.broker.address] = None
        return answers


def _sites_named(description: CompositionDescription, sites: Mapping[str, Site]) -> set[str]:
    by_engine = {site.spe.address: name for name, site in sites.items()}
    named = {job.site or by_engine.get(job.engine_address or "") for job in description.jobs}
    return {name for name in named if name is not None}


def _held_slots(inventory: Inventory, observed: Observation) -> dict[str, int]:
    held: Counter[str] = Counter()
    for deployed in inventory.jobs.values():
        seen = observed.job(deployed.job.site, deployed.engine_job_id)
        if seen is not None and not seen.state.terminal and not deployed.ended:
            held[deployed.job.site] += deployed.job.parallelism
    return dict(held)


def _homes(deployed: Incarnation) -> set[str]:
    """The sites where the newest state of a job may lie."""
    homes = set() if deployed.void else {deployed.job.site}
    return homes | (_homes(deployed.base) if deployed.base is not None else set())


def _has_state(deployed: Incarnation) -> bool:
    return deployed.confirmed or deployed.base is not None


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
    return replace(deployed, confirmed=True, base=None)
