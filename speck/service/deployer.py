"""From a description to a running change: what compositions and jobs posted alone share."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from speck.binding import BrokerCapability
from speck.config import Config
from speck.connections import Connections
from speck.errors import InvalidError, Problem, SpeckError
from speck.inventory import Deployed, Inventory
from speck.model import Composition, CompositionDescription, Delivery, Job, Site, Upgrade
from speck.observed import Observation
from speck.observer import observe
from speck.plan import Plan
from speck.planner import plan
from speck.records import Records, scope_of
from speck.resolve import JarFinder, LineOf, resolve, resolve_job
from speck.service.artifacts import Artifacts
from speck.service.changes import Changes


@dataclass(frozen=True, slots=True)
class Prepared:
    """A plan that was made from what is there now, and what to tell about it."""

    scope: str
    composition: Composition
    plan: Plan
    warnings: tuple[str, ...] = ()


class Deployer:
    """Observes, resolves and plans for one scope; starts the change."""

    def __init__(
        self,
        config: Config,
        records: Records,
        connections: Connections,
        artifacts: Artifacts,
        changes: Changes,
    ):
        self._records = records
        self._connections = connections
        self._artifacts = artifacts
        self.changes = changes
        self._jars = JarFinder(config.jar_folders, artifacts.find)

    def prepare(
        self,
        scope: str,
        description: CompositionDescription,
        line_of: LineOf | None = None,
        adopted: Sequence[str] = (),
    ) -> Prepared:
        """Resolve and plan. Raises InvalidError with every fault found; `line_of` gives the
        line of a fault's path in what the user sent. Jobs posted alone that are `adopted`
        count as the scope's own."""
        sites = self._records.sites()
        inventory = self._inventory(scope, adopted)
        observed = self._observe(sites, inventory, _sites_named(description, sites))
        inventory = self._confirm(scope, inventory, observed, adopted)
        known: dict[str, Any] = {
            "free_slots": {
                name: view.slots.free if view.slots else None
                for name, view in observed.engines.items()
            },
            "held_slots": _held_slots(inventory, observed),
            "brokers_mqtt5": self._brokers_mqtt5(description, sites),
            "line_of": line_of,
        }
        if scope.startswith("~"):
            resolved = resolve_job(description.jobs[0], sites, self._jars, **known)
            composition = replace(resolved.composition, name=None)
        else:
            resolved = resolve(description, sites, self._jars, **known)
            composition = resolved.composition
        _refuse_state_that_cannot_travel(composition, inventory, sites)
        for sha256, file in resolved.jars.items():
            self._artifacts.adopt(sha256, file)
        return self._planned(
            scope, composition, inventory, observed, resolved.warnings, adopted=adopted
        )

    def prepare_removal(self, scope: str, name: str | None, *, drain: bool = True) -> Prepared:
        """The plan that removes everything of the scope; see `speck.planner.plan` for `drain`."""
        inventory = self._records.inventory(scope)
        observed = self._observe(self._records.sites(), inventory, set())
        return self._planned(scope, Composition(name, ()), inventory, observed, (), drain=drain)

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
    ) -> Prepared:
        scopes = {scope, *(scope_of(None, job_name) for job_name in adopted)}
        made = plan(
            composition,
            inventory,
            observed,
            self._records.installation,
            self._records.links_read_outside(scopes),
            drain=drain,
        )
        return Prepared(scope, composition, made, tuple(warnings))

    def _observe(
        self, sites: Mapping[str, Site], inventory: Inventory, named: set[str]
    ) -> Observation:
        engines = {d.job.site for d in inventory.jobs.values()} | named
        brokers = {session.site for session in inventory.sessions}
        return observe(self._connections, engines & sites.keys(), brokers & sites.keys())

    def _inventory(self, scope: str, adopted: Sequence[str]) -> Inventory:
        own = self._records.inventory(scope)
        for job_name in adopted:
            alone = self._records.inventory(scope_of(None, job_name))
            used = [i.attempts[job_name] for i in (own, alone) if job_name in i.attempts]
            attempts = {job_name: max(used)} if used else {}
            own = Inventory(
                {**own.jobs, **alone.jobs},
                (*own.sessions, *alone.sessions),
                {**own.attempts, **attempts},
            )
        return own

    def _confirm(
        self, scope: str, inventory: Inventory, observed: Observation, adopted: Sequence[str]
    ) -> Inventory:
        """Adopt incarnations that were asked for, and turn out to run."""
        jobs: dict[str, Deployed] = dict(inventory.jobs)
        for name, deployed in inventory.jobs.items():
            seen = observed.job(deployed.job.site, deployed.engine_job_id)
            if seen is not None and not deployed.confirmed and not seen.state.terminal:
                jobs[name] = replace(deployed, confirmed=True, base=None)
                home = scope_of(None, name) if name in adopted else scope
                self._records.write(self._records.put_deployed(home, jobs[name]))
        return replace(inventory, jobs=jobs)

    def _brokers_mqtt5(
        self, description: CompositionDescription, sites: Mapping[str, Site]
    ) -> dict[str, bool | None]:
        """Which brokers carry properties; asked only when something needs them."""
        if all(job.delivery is not Delivery.EXACTLY_ONCE for job in description.jobs):
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


def _refuse_state_that_cannot_travel(
    composition: Composition, inventory: Inventory, sites: Mapping[str, Site]
) -> None:
    problems = []
    for index, job in enumerate(composition.jobs):
        deployed = inventory.jobs.get(job.job_name)
        if deployed is None or not _must_travel(deployed, job):
            continue
        old, new = sites.get(deployed.job.site), sites[job.site]
        if old is None or old.state_uri is None or old.state_uri != new.state_uri:
            problems.append(
                Problem(
                    f"jobs[{index}].site",
                    f"cannot move {job.job_name} with its state from {deployed.job.site} to"
                    f" {job.site}: the two share no storage; give both sites the same label"
                    " state_uri, or set upgrade: stateless",
                )
            )
    if problems:
        raise InvalidError("cannot apply this composition", problems)


def _must_travel(deployed: Deployed, job: Job) -> bool:
    return (
        job.site != deployed.job.site
        and job.upgrade is Upgrade.SAVEPOINT
        and (deployed.confirmed or deployed.base is not None)
    )
