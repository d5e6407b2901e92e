"""Everything that is refused before a change starts, in this order:

1. a revision that is not the newest one, as If-Match names it (412);
2. a job that another composition owns, or that was posted alone and is not to be adopted (409), and
   descriptions that are too large together (413);
3. a job to adopt that is being changed (409);
4. a composition with a change under way that a newer request may not end (409,
   `Changes.find_in_the_way`, which also finds the change that it may end);
5. the removal of more than half of the deployed jobs, unless that is forced (409);
6. every problem of the description itself, checked against the registered sites and the artifacts
   (422, all problems in one answer, `speck.spec.resolve`);
7. state that cannot be transferred to the job's new site, and guarantees that an engine or a
   broker cannot keep for a job (422, `speck.deploy.feasibility`);
8. a reader outside speck whose client id another composition holds a session for (409), or whose
   client id only an administrator may name (422, `refuse_foreign_clients`);
9. a cycle of links through jobs of other compositions, or through bridges between brokers (422);
   Then 2, 3 and 9 once more, under the lock under which names are taken: another request may have
   come in between;
10. a site of the plan that was removed or changed since, and a service that is stopping (409, 503,
   `ChangeRunner.start`: both are checked under the lock under which a change is registered).

Nothing is written here, so a dry run and a plan pass the same checks.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

from speck.binding import StateKeeper
from speck.deploy.bridges import Bridges, find_loops, find_repeated_topics, warn_of_repeats
from speck.deploy.capabilities import warn_of_missing
from speck.deploy.changes import Changes
from speck.deploy.cycles import find_cycles_through, iterate_links, list_links
from speck.deploy.feasibility import Feasibility
from speck.errors import (
    ConflictError,
    InvalidError,
    Problem,
    StaleRevisionError,
)
from speck.model.composition import (
    Composition,
    CompositionDescription,
    Head,
    composition_of_one,
    job_posted_alone,
    title,
)
from speck.model.ids import OUTSIDE_READER
from speck.model.incarnation import Inventory
from speck.model.job import Job
from speck.model.link import JobLinks, Link
from speck.model.observation import Observation
from speck.model.site import Site
from speck.sites.connections import Connections
from speck.spec.resolve import FindFile, LineOf, Resolved, Slots, refuse_problems, resolve
from speck.store.link_index import LinkIndex
from speck.store.records import Records

MAX_DESCRIBED_BYTES = 64 << 20
"""Of the newest revisions of all compositions, and of all jobs posted alone: 130 000 usual jobs."""


class Admission:
    """Checks a request (`check_request`), then what it describes (`resolve`)."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        keeper: StateKeeper,
        changes: Changes,
        client_ids: Sequence[str] = (),
        find_bridges: Callable[[Set[str]], Mapping[str, frozenset[str]]] = lambda sites: {},
    ):
        """`client_ids` are patterns (as in `fnmatch`) of client ids that any deployer may give to
        outside readers. `find_bridges` returns the names of the bridges of all brokers that are
        known to have any; those of these sites are asked."""
        self._client_ids = (f"{OUTSIDE_READER}*", *client_ids)
        self._records = records
        self._connections = connections
        self._feasibility = Feasibility(records, connections, keeper)
        self._changes = changes
        self._find_bridges = find_bridges

    # -- the request ------------------------------------------------------------------------

    def check_revision(self, name: str, head: Head | None, if_match: int | None) -> None:
        """Raises StaleRevisionError when a composition has a newer revision than its user knew."""
        newest = head.revision if head is not None else 0
        if if_match is not None and if_match != newest:
            raise StaleRevisionError(
                f"cannot change {title(name)}: its newest revision is {newest}, not"
                f" {if_match} as in If-Match; it was changed meanwhile: plan and apply again"
            )

    def check_owners(self, description: CompositionDescription, *, adopt: bool) -> None:
        """Raises ConflictError for a job that belongs to another composition, or that was posted
        alone, unless `adopt` allows the composition to take it in."""
        for job in description.jobs:
            owner = self._records.compositions.owner(job.job_name)
            if owner is None or owner == description.name:
                continue
            if job_posted_alone(description.name) is not None:
                raise make_owned_error(job.job_name, owner)
            refusal = f"cannot apply {title(description.name)}"
            if job_posted_alone(owner) is None:
                raise ConflictError(
                    f"{refusal}: composition {owner!r} owns job {job.job_name!r}; choose another"
                    " name"
                )
            if not adopt:
                raise ConflictError(
                    f"{refusal}: job {job.job_name!r} was posted alone; apply with ?adopt=true to"
                    " take it in"
                )

    def refuse_too_large(self, name: str, size: int) -> None:
        """Raises InvalidError (413) if this description of `size` bytes and the newest ones of all
        other compositions are too large together: the service remembers them."""
        others = sum(head.bytes for head in self._records.compositions.heads() if head.name != name)
        if others + size > MAX_DESCRIBED_BYTES:
            fault = (
                f"has {size} bytes with its defaults written out, those that are there {others}; at"
                f" most {MAX_DESCRIBED_BYTES} are taken together"
            )
            raise InvalidError(
                f"cannot accept {title(name)}: it {fault}; remove some with `speck destroy`",
                [Problem("", fault)],
                status=413,
            )

    def find_posted_alone(self, description: CompositionDescription) -> dict[str, str]:
        """Jobs of the description that were posted alone (`check_owners` allowed them), with the
        newest change of each. Raises ConflictError for one that is being changed."""
        changes = {}
        for job in description.jobs:
            alone = composition_of_one(job.job_name)
            head = self._records.compositions.head(alone)
            if head is None or alone == description.name:
                continue
            busy = self._changes.under_way(alone)
            if busy is not None:
                raise ConflictError(
                    f"cannot adopt job {job.job_name!r}: it is being changed", change=busy.change.id
                )
            changes[job.job_name] = head.last_change
        return changes

    def refuse_cycles(
        self,
        composition: Composition,
        adopted_jobs: Iterable[str],
        line_of: LineOf | None,
        sees: Callable[[str], bool] = lambda scope: True,
    ) -> None:
        """Raises InvalidError if messages would come back to a job through jobs of other
        compositions; it names only those that the user `sees`. Cycles within the composition are
        problems of its description.

        The jobs of others count as long as they may run: also those that are stopped, being
        removed, or about to be replaced by a change that has not ended.
        """
        scopes = {composition.name, *map(composition_of_one, adopted_jobs)}
        own = list_links(composition)
        others = self._records.compositions.links.find_downstream(_list_sinks(own), scopes)
        problems = find_cycles_through(own, others, sees)
        refuse_problems(problems, composition.name, line_of)

    def refuse_loops_over_bridges(
        self,
        composition: Composition,
        adopted_jobs: Iterable[str],
        line_of: LineOf | None,
        *,
        ask: bool = True,
    ) -> list[str]:
        """Raises InvalidError if bridges between brokers may bring back to a job what it has sent;
        returns warnings about what they may bring twice. Without `ask` the brokers have been asked
        just before, and none is waited for."""
        scopes = {composition.name, *map(composition_of_one, adopted_jobs)}
        index, own = self._records.compositions.links, list_links(composition)
        others = [job for _, job in index.find_downstream(_list_sinks(own), scopes)]
        ends = (*composition.inputs, *(reader.link for reader in composition.readers))
        links = {*iterate_links(own), *ends}
        sites = find_repeated_topics({*links, *iterate_links(others)})
        names = self._find_bridges(sites if ask else set())
        bridges = Bridges.of(names, self._records.sites.all())
        if not bridges.groups:
            return []
        others = self._find_beyond(bridges, own, scopes)
        refuse_problems(find_loops(own, others, bridges), composition.name, line_of)
        return list(warn_of_repeats(links, bridges))

    def _find_beyond(
        self, bridges: Bridges, own: Sequence[JobLinks], scopes: Collection[str]
    ) -> list[JobLinks]:
        """The jobs of others to which messages of the `own` ones may flow, over bridges too."""
        reached: set[Link] = set()
        others: list[JobLinks] = []
        while True:
            sinks = _list_sinks((*own, *others))
            joined = {Link(at, sink.topic) for sink in sinks for at in bridges.find_joined(sink)}
            if joined <= reached:
                return others
            reached |= joined
            others = [
                job for _, job in self._records.compositions.links.find_downstream(reached, scopes)
            ]

    # -- what it describes --------------------------------------------------------------------

    def resolve(
        self,
        description: CompositionDescription,
        sites: Mapping[str, Site],
        find_file: FindFile,
        look: Callable[[], tuple[Inventory, Observation]],
        adopted_jobs: Sequence[str] = (),
        line_of: LineOf | None = None,
        sees: Callable[[str], bool] = lambda scope: True,
    ) -> Resolved:
        """Resolve the description and check it against what is deployed and observed, which `look`
        returns; it may wait for the engines, and is called when all else is resolved.
        `adopted_jobs` are jobs posted alone that join the composition; `sees` says which others
        may be named in warnings. Raises InvalidError,
        ConflictError."""
        result = resolve(
            description,
            sites,
            find_file,
            find_slots=lambda: _count_slots(*look()),
            number_carriers=self._feasibility.find_number_carriers(description, sites),
            others=self._iterate_jobs_outside(
                {description.name, *map(composition_of_one, adopted_jobs)}, sees
            ),
            links=_LinksOutside(
                self._records.compositions.links,
                frozenset({description.name, *map(composition_of_one, adopted_jobs)}),
            ),
            line_of=line_of,
        )
        composition = result.composition
        inventory, _ = look()
        problems = self._feasibility.find_problems(composition, inventory, description)
        refuse_problems(problems, description.name, line_of)
        self._refuse_readers_of_others(description.name, composition)
        missing = warn_of_missing(self._connections, composition.jobs)
        return replace(result, warnings=[*result.warnings, *missing]) if missing else result

    def _iterate_jobs_outside(
        self, scopes: Collection[str], sees: Callable[[str], bool]
    ) -> Iterator[Job]:
        """The jobs deployed in all other scopes that the user sees, read lazily."""
        for (scope, _), incarnation in self._records.incarnations.all().items():
            if scope not in scopes and sees(scope):
                yield incarnation.job

    def _refuse_readers_of_others(self, scope: str, composition: Composition) -> None:
        """A client id has one session on a broker: if one composition released it, the other's
        reader would lose its messages."""
        for reader in composition.readers:
            for holder, session in self._records.sessions.of_client(reader.client_id):
                if holder != scope and session.link.site == reader.link.site:
                    raise ConflictError(
                        f"cannot reserve a session for client id {reader.client_id!r} at"
                        f" {reader.site}: {title(holder)} has it; give another client_id"
                    )

    def refuse_foreign_clients(
        self, description: CompositionDescription, composition: Composition, line_of: LineOf | None
    ) -> None:
        """Raises InvalidError for readers whose client id speck has not created for this
        composition and may not create for everybody.

        A broker lists neither clients nor sessions, and to look whether there is one of an id is to
        connect under that id, which throws its holder out. So speck never looks: without this, a
        deployer could end any client's connection and session on a registered broker.
        """
        own = {
            (s.link.site, s.client_id) for s in self._records.sessions.of_scope(composition.name)
        }
        foreign = {
            reader.client_id
            for reader in composition.readers
            if (reader.link.site, reader.client_id) not in own
            and not any(fnmatchcase(reader.client_id, pattern) for pattern in self._client_ids)
        }
        fault = (
            "may be the id of a client that speck did not create, whose session it would take over;"
            f" choose an id that begins with {OUTSIDE_READER}, or have an administrator apply this"
            " composition or add the id to SPECK_OUTPUT_CLIENT_IDS"
        )
        problems = [
            Problem(f"outputs[{index}].client_id", f"{port.client_id!r} {fault}")
            for index, port in enumerate(description.outputs)
            if port.client_id in foreign
        ]
        refuse_problems(problems, description.name, line_of)


@dataclass(frozen=True, slots=True)
class _LinksOutside:
    """The links of other compositions than `scopes`; see `speck.spec.topology.LinksElsewhere`."""

    index: LinkIndex
    scopes: frozenset[str]

    def is_read(self, link: Link) -> bool:
        return self.index.is_read(link, self.scopes)

    def is_written(self, link: Link) -> bool:
        return self.index.is_written(link, self.scopes)


def make_owned_error(job_name: str, owner: str) -> ConflictError:
    """The error for an attempt to change, by itself, a job that a composition owns."""
    return ConflictError(
        f"cannot change job {job_name!r} alone: composition {owner!r} owns it;"
        " apply a new version of that"
    )


def find_mass_removal(description: CompositionDescription, records: Records) -> list[str]:
    """The deployed jobs that are missing in the description, if they are at least two and more than
    half of the deployed ones; otherwise none."""
    jobs = records.inventory(description.name).jobs
    job_names = sorted(jobs.keys() - {job.job_name for job in description.jobs})
    return job_names if len(job_names) >= 2 and 2 * len(job_names) > len(jobs) else []


def refuse_mass_removal(name: str, job_names: list[str], force: bool) -> None:
    """Raises ConflictError if `find_mass_removal` found jobs, unless the removal is forced."""
    if job_names and not force:
        raise ConflictError(
            f"cannot apply composition {name!r}: {describe_removal(job_names)}; to remove them,"
            " apply with --force (?force=true)"
        )


def describe_removal(job_names: list[str]) -> str:
    """Describe an apply that removes these jobs."""
    return f"it removes more than half of the deployed jobs ({', '.join(job_names)})"


def _count_slots(inventory: Inventory, observation: Observation) -> Slots:
    held: Counter[str] = Counter()
    for incarnation in inventory.jobs.values():
        view = observation.engines.get(incarnation.job.site)
        engine_job = view.jobs.get(incarnation.engine_job_id) if view is not None else None
        if view is None or incarnation.job.artifact_kind in view.beside:
            continue
        if engine_job is not None and not engine_job.state.terminal and not incarnation.ended:
            held[incarnation.job.site] += incarnation.job.parallelism
    free = {site: v.slots.free if v.slots else None for site, v in observation.engines.items()}
    return Slots(free, held)


def _list_sinks(jobs: Iterable[JobLinks]) -> list[Link]:
    return [link for job in jobs for link in job.port]
