"""What the engines, brokers and agents of its sites cannot do for a composition.

Step 7 of `speck.deploy.admission`: problems of the description, before anything is changed.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress

from speck.binding import BrokerCapability, EngineCapability, StateKeeper, find_taker
from speck.deploy.capabilities import find_lacking, keeps_no_sessions, name_engine
from speck.errors import PermanentError, Problem, SpeckError, TransientError
from speck.model.composition import Composition, CompositionDescription
from speck.model.engines import EngineAt
from speck.model.incarnation import Incarnation, Inventory
from speck.model.job import Delivery, Job, Upgrade
from speck.model.site import Site
from speck.sites.connections import Connections
from speck.sites.hosting import explain_shortage
from speck.spec.job_contract import list_secrets
from speck.store.records import Records


class Feasibility:
    """Finds what a composition asks for in vain."""

    def __init__(self, records: Records, connections: Connections, keeper: StateKeeper):
        self._records = records
        self._connections = connections
        self._keeper = keeper

    def find_problems(
        self, composition: Composition, inventory: Inventory, description: CompositionDescription
    ) -> list[Problem]:
        """Machines that are too small, state that cannot be transferred or has another parallelism,
        capabilities and secrets that are missing."""
        return [
            *self._find_small_machines(composition, inventory, description),
            *self._find_stuck_state(composition, inventory, description),
            *self._find_fixed_state(composition, inventory),
            *self._find_missing_capabilities(composition, inventory),
            *self._find_missing_secrets(composition),
        ]

    def _find_small_machines(
        self, composition: Composition, inventory: Inventory, description: CompositionDescription
    ) -> list[Problem]:
        """Find jobs that would begin at a site whose machine has too little memory for their
        engine. One that runs there already may go on."""
        sites, problems = self._records.sites.all(), []
        for index, job in enumerate(composition.jobs):
            before, stored = inventory.jobs.get(job.job_name), self._records.sites.report(job.site)
            runs_there = before and not before.ended and before.job.engine == job.engine
            if runs_there or stored is None or job.site not in sites:
                continue
            kind = find_taker(sites[job.site].spe, job.artifact_kind).kind
            why = explain_shortage(kind, stored.body)
            if why is not None:
                field = "site" if description.jobs[index].site is not None else "spe_address"
                fault = f"cannot run {job.job_name} at {job.site}: {why}; choose a larger site"
                problems.append(Problem(f"jobs[{index}].{field}", fault))
        return problems

    def _find_stuck_state(
        self, composition: Composition, inventory: Inventory, description: CompositionDescription
    ) -> list[Problem]:
        """Find jobs that move with their state between sites where nothing can transfer it."""
        problems = []
        reason_by_engine: dict[EngineAt, str | None] = {}
        for index, job in enumerate(composition.jobs):
            incarnation = inventory.jobs.get(job.job_name)
            if (
                incarnation is None
                or job.upgrade is not Upgrade.SAVEPOINT
                or not incarnation.has_state
            ):
                continue
            for home in sorted(incarnation.homes):
                if self._keeper.shares_storage(home, job.site):
                    continue
                why = self._explain_no_transfer(incarnation, home, job.site, reason_by_engine)
                if why is not None:
                    field = "site" if description.jobs[index].site is not None else "spe_address"
                    fault = (
                        f"cannot move {job.job_name} with its state from {home} to {job.site}:"
                        f" the two share no storage, and {why}; run `speck agent` at both, or"
                        " give both the same label state_uri, or set upgrade: stateless"
                    )
                    problems.append(Problem(f"jobs[{index}].{field}", fault))
        return problems

    def _find_fixed_state(self, composition: Composition, inventory: Inventory) -> list[Problem]:
        """Find jobs with a state that can go on with its own parallelism only. An engine that does
        not answer refuses them at their start."""
        problems = []
        for index, job in enumerate(composition.jobs):
            before = inventory.jobs.get(job.job_name)
            if (
                before is None
                or before.job.parallelism == job.parallelism
                or job.upgrade is not Upgrade.SAVEPOINT
                or not before.has_state
            ):
                continue
            fixed = self._find_parallelism(before)
            if fixed is not None and fixed != job.parallelism:
                fault = (
                    f"cannot run {job.job_name} with parallelism {job.parallelism}: its state was"
                    f" made with parallelism {fixed}, which its engine cannot change; describe it"
                    " so, or set upgrade: stateless"
                )
                problems.append(Problem(f"jobs[{index}].parallelism", fault))
        return problems

    def _find_parallelism(self, incarnation: Incarnation) -> int | None:
        with suppress(SpeckError):
            engine = self._connections.engine_of(incarnation.job.engine)
            if EngineCapability.STATE in engine.capabilities:
                checkpointing = engine.checkpointing(incarnation.engine_job_id)
                return checkpointing.parallelism if checkpointing is not None else None
        return None

    def _explain_no_transfer(
        self,
        incarnation: Incarnation,
        home: str,
        target: str,
        reason_by_engine: dict[EngineAt, str | None],
    ) -> str | None:
        """Explain why state cannot be transferred between two sites; each engine is checked once,
        with the answers kept in `reason_by_engine`."""
        for site in (home, target):
            engine = EngineAt(site, incarnation.job.artifact_kind)
            if engine not in reason_by_engine:
                reason_by_engine[engine] = self._explain_no_carrier(engine, incarnation)
            if reason_by_engine[engine] is not None:
                return reason_by_engine[engine]
        return None

    def _explain_no_carrier(self, engine: EngineAt, incarnation: Incarnation) -> str | None:
        """Explain why no agent beside an engine can transfer state; one that does not answer now
        may do so later."""
        site = engine.site
        if self._keeper.folder(site) is None:
            return f"{site} has no known folder for states"
        try:
            self._keeper.newest(engine, incarnation.engine_job_id)
        except TransientError:
            pass
        except PermanentError:
            return f"no agent runs at {site} to carry it"
        return None

    def _find_missing_capabilities(
        self, composition: Composition, inventory: Inventory
    ) -> list[Problem]:
        """Find what an engine or a broker cannot do for a job, as problems of `jobs[n]`."""
        sites = self._records.sites.all()
        engines = {d.job.engine for d in inventory.jobs.values() if d.job.site in sites}
        engines |= {job.engine for job in composition.jobs}
        forgetful = find_lacking(self._connections, EngineCapability.STATE, engines)
        limited = {job.engine for job in composition.jobs if job.memory_mb is not None}
        unlimited = find_lacking(self._connections, EngineCapability.MEMORY, limited)
        links = {site for job in composition.jobs for site in job.link_sites}
        forgetting = {site for site in links if keeps_no_sessions(self._connections, site)}
        problems = []
        for index, job in enumerate(composition.jobs):
            incarnation = inventory.jobs.get(job.job_name)
            homes = [job.engine, *([incarnation.job.engine] if incarnation else [])]
            home = next((engine for engine in homes if engine in forgetful), None)
            if home is not None and job.upgrade is Upgrade.SAVEPOINT:
                fault = f"{name_engine(self._connections, home)} has no capability `state`"
                problems.append(
                    Problem(f"jobs[{index}].upgrade", f"{fault}; set upgrade: stateless")
                )
            elif (foreign := _explain_foreign_state(sites, job, incarnation)) is not None:
                problems.append(Problem(f"jobs[{index}].upgrade", foreign))
            if job.memory_mb is not None and job.engine in unlimited:
                fault = f"{name_engine(self._connections, job.engine)} has no capability `memory`"
                problems.append(
                    Problem(
                        f"jobs[{index}].memory_mb",
                        f"{fault}: it limits no single job; leave memory_mb out",
                    )
                )
            at = next((s for s in job.link_sites if s in forgetting), None)
            if at is not None and job.delivery is not Delivery.AT_MOST_ONCE:
                fault = (
                    f"the broker of site {at} has no capability `sessions`: it keeps no messages"
                    " for a reader that is disconnected"
                )
                problems.append(
                    Problem(f"jobs[{index}].delivery", f"{fault}; set delivery: at_most_once")
                )
        return problems

    def _find_missing_secrets(self, composition: Composition) -> list[Problem]:
        problems = []
        for index, job in enumerate(composition.jobs):
            try:
                self._connections.secrets(job.site, list_secrets(job.args))
            except SpeckError as error:
                problems.append(Problem(f"jobs[{index}].args", str(error)))
        return problems

    def find_number_carriers(
        self, description: CompositionDescription, sites: Mapping[str, Site]
    ) -> dict[str, bool | None]:
        """Whether each broker has the capability `numbers`, None for one that does not answer;
        empty if no job needs them."""
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


def _explain_foreign_state(
    sites: Mapping[str, Site], job: Job, incarnation: Incarnation | None
) -> str | None:
    """Why the engine that is to take a job cannot go on with its state: another kind wrote it."""
    if incarnation is None or not incarnation.has_state or job.upgrade is not Upgrade.SAVEPOINT:
        return None
    kinds = {
        find_taker(sites[engine.site].spe, engine.artifact).kind: None
        for engine in (incarnation.job.engine, job.engine)
        if engine.site in sites
    }
    if len(kinds) < 2:
        return None
    before, now = kinds
    return (
        f"an engine of kind {now} cannot read its state, which one of kind {before} has written;"
        " set upgrade: stateless"
    )
