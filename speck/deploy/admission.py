"""Everything that is refused before a change starts, in this order:

1. a revision that is not the newest one, as If-Match names it (412);
2. a job that another composition owns, or that was posted alone and is not to be adopted (409);
3. a job to adopt that is being changed (409);
4. a composition with a change under way that a newer wish may not end (409, `Changes.in_the_way`,
   which also finds the one that it may end);
5. the removal of more than half of the deployed jobs, unless that is forced (409);
6. what is wrong with the description itself, against the registered sites and the jars, all of it
   at once (422, `speck.spec.resolve`);
7. state that nobody can carry to where its job is to go, and what an engine or a broker cannot
   keep for a job (422);
8. a reader outside speck whose client id another composition holds a session for (409);
9. a site of the plan that was removed or changed since, and a service that is stopping (409, 503,
   `ChangeRunner.start`: both are looked up under the lock under which a change is registered).

Nothing is written here, so a dry run and a plan are checked in the same way.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence

from speck.binding import BrokerCapability, EngineCapability, StateKeeper
from speck.deploy.capabilities import keeps_no_sessions, lacking
from speck.deploy.changes import Changes
from speck.errors import (
    ConflictError,
    PermanentError,
    Problem,
    SpeckError,
    StaleRevisionError,
    TransientError,
)
from speck.model.composition import (
    Composition,
    CompositionDescription,
    composition_of_one,
    job_posted_alone,
    title,
)
from speck.model.incarnation import Incarnation, Inventory
from speck.model.job import Delivery, Job, Upgrade
from speck.model.observation import Observation
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.sites.connections import Connections
from speck.spec.resolve import FindJar, LineOf, Resolved, refuse_problems, resolve
from speck.store.records import Records


class Admission:
    """Checks a request (`check_request`), then what it describes (`resolve`)."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        keeper: StateKeeper,
        changes: Changes,
    ):
        self._records = records
        self._connections = connections
        self._keeper = keeper
        self._changes = changes

    # -- the request ------------------------------------------------------------------------

    def check_revision(self, name: str, head: JsonObject | None, if_match: int | None) -> None:
        """Raises StaleRevisionError when a composition has a newer revision than its user knew."""
        newest = head["revision"] if head else 0
        if if_match is not None and if_match != newest:
            raise StaleRevisionError(
                f"cannot change {title(name)}: its newest revision is {newest}, not"
                f" {if_match} as in If-Match: somebody else changed it; plan and apply again"
            )

    def check_owners(self, description: CompositionDescription, *, adopt: bool) -> None:
        """Raises ConflictError for a job that belongs elsewhere; with `adopt` one that was
        posted alone may be taken in."""
        for job in description.jobs:
            record = self._records.owners.get(job.job_name)
            owner = record["composition"] if record else description.name
            if owner == description.name:
                continue
            if job_posted_alone(description.name) is not None:
                raise owned(job.job_name, owner)
            refused = f"cannot apply {title(description.name)}"
            if job_posted_alone(owner) is None:
                raise ConflictError(
                    f"{refused}: composition {owner!r} owns job {job.job_name!r}; choose another"
                    " name"
                )
            if not adopt:
                raise ConflictError(
                    f"{refused}: job {job.job_name!r} was posted alone; apply with ?adopt=true to"
                    " take it in"
                )

    def posted_alone(self, description: CompositionDescription) -> dict[str, str]:
        """Jobs of the description that were posted alone (`check_owners` let them pass), with
        the newest change of each."""
        changes = {}
        for job in description.jobs:
            alone = composition_of_one(job.job_name)
            head = self._records.heads.get(alone)
            if head is None or head.get("deleted") or alone == description.name:
                continue
            busy = self._changes.under_way(alone)
            if busy is not None:
                raise ConflictError(
                    f"cannot adopt job {job.job_name!r}: it is being changed", change=busy.change.id
                )
            changes[job.job_name] = head["last_change"]
        return changes

    # -- what it describes --------------------------------------------------------------------

    def resolve(
        self,
        description: CompositionDescription,
        sites: Mapping[str, Site],
        find_jar: FindJar,
        inventory: Inventory,
        observed: Observation,
        adopted: Sequence[str] = (),
        line_of: LineOf | None = None,
    ) -> Resolved:
        """The description, resolved and checked against what is deployed and observed; `adopted`
        are jobs posted alone that come to it. Raises InvalidError, ConflictError."""
        resolved = resolve(
            description,
            sites,
            find_jar,
            free_slots={
                name: view.slots.free if view.slots else None
                for name, view in observed.engines.items()
            },
            held_slots=_held_slots(inventory, observed),
            brokers_mqtt5=self._brokers_mqtt5(description, sites),
            others=self._jobs_outside({description.name, *map(composition_of_one, adopted)}),
            line_of=line_of,
        )
        composition = resolved.composition
        problems = self._state_that_cannot_travel(composition, inventory, description)
        problems += self._beyond_capabilities(composition, inventory)
        refuse_problems(problems, description.name, line_of)
        self._refuse_readers_of_others(description.name, composition)
        return resolved

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

    def _state_that_cannot_travel(
        self, composition: Composition, inventory: Inventory, description: CompositionDescription
    ) -> list[Problem]:
        """Moves of jobs with their state to or from a site where nobody can carry it."""
        problems = []
        asked: dict[str, str | None] = {}
        for index, job in enumerate(composition.jobs):
            deployed = inventory.jobs.get(job.job_name)
            if deployed is None or job.upgrade is not Upgrade.SAVEPOINT or not deployed.has_state:
                continue
            for home in sorted(deployed.homes):
                if self._keeper.shares_storage(home, job.site):
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
        forgetful = lacking(self._connections, EngineCapability.SAVEPOINTS, engines)
        links = {site for job in composition.jobs for site in (job.source_site, job.sink_site)}
        forgetting = {site for site in links if keeps_no_sessions(self._connections, site)}
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


def owned(job_name: str, owner: str) -> ConflictError:
    """Refuses to change a job by itself that a composition owns."""
    return ConflictError(
        f"cannot change job {job_name!r} alone: composition {owner!r} owns it;"
        " apply a new version of that"
    )


def most_removed(description: CompositionDescription, records: Records) -> list[str]:
    """The deployed jobs that the description names no more, if they are more than half of
    the deployed ones and at least two; else none."""
    deployed = records.inventory(description.name).jobs
    removed = sorted(deployed.keys() - {job.job_name for job in description.jobs})
    return removed if len(removed) >= 2 and 2 * len(removed) > len(deployed) else []


def refuse_removing_most(name: str, removed: list[str], force: bool) -> None:
    """Raises ConflictError for what `most_removed` found, unless that is forced."""
    if removed and not force:
        raise ConflictError(
            f"cannot apply composition {name!r}: {removes(removed)}; if you mean it, apply with"
            " --force (?force=true)"
        )


def removes(removed: list[str]) -> str:
    """What an apply that removes these jobs does, in words."""
    return f"it removes more than half of the deployed jobs ({', '.join(removed)})"


def _held_slots(inventory: Inventory, observed: Observation) -> dict[str, int]:
    held: Counter[str] = Counter()
    for deployed in inventory.jobs.values():
        seen = observed.job(deployed.job.site, deployed.engine_job_id)
        if seen is not None and not seen.state.terminal and not deployed.ended:
            held[deployed.job.site] += deployed.job.parallelism
    return dict(held)
