"""Turns a description into a plan: observe, resolve, check, plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path

from speck.binding import EngineCapability, StateKeeper
from speck.config import Config
from speck.deploy.admission import Admission
from speck.deploy.adoption import read_inventory
from speck.deploy.capabilities import find_lacking
from speck.deploy.change_intent import read_desired_state
from speck.deploy.changes import Changes
from speck.deploy.planned_sites import PlannedSites
from speck.deploy.planner import plan
from speck.deploy.planner.queues import keep_queues
from speck.deploy.planner.situation import Conditions, Outside
from speck.deploy.planner.ways import group
from speck.deploy.reverting import (
    Reverting,
    describe_first,
    describe_no_way_back,
    find_reverting,
    list_idle,
    revert_first,
    warn_of_new_beginnings,
)
from speck.deploy.scheduler import THREADS, Scheduler
from speck.errors import ConflictError, InvalidError, NotFoundError
from speck.model.change import Cause, Change
from speck.model.composition import (
    Composition,
    CompositionDescription,
    composition_of_one,
    title,
    visible_name,
)
from speck.model.incarnation import Incarnation, Inventory
from speck.model.link import Link
from speck.model.observation import Observation
from speck.model.plan import Plan
from speck.model.site import Site
from speck.sites.connections import Connections
from speck.sites.identities import Identities
from speck.sites.pollers.polling import Polling
from speck.spec.addresses import engine_address
from speck.spec.job_files import ARTIFACT, JobFile, JobFileFinder
from speck.spec.resolve import LineOf
from speck.store.artifacts import Artifacts
from speck.store.records import Records


@dataclass(frozen=True, slots=True)
class PreparedPlan:
    """A plan made from the current observation, with what its acceptance needs.

    `sites` are the sites registered when it was made, `artifacts` the SHA-256 of the file that each
    `job_path` named. `files` gives the files' locations by SHA-256. `silent` are the sites whose
    engine or broker did not answer. `not_reverted` says why a revision that should be brought back
    first is not. `noticed` holds incarnations of which the observation shows
    more than is stored (they run, or have finished), as they are stored and as they are, by scope.
    Nothing is stored yet; see `accept`.
    """

    scope: str
    composition: Composition
    plan: Plan
    sites: Mapping[str, Site]
    warnings: tuple[str, ...] = ()
    artifacts: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Path] = field(default_factory=dict)
    silent: frozenset[str] = frozenset()
    not_reverted: str | None = None
    noticed: Mapping[str, Sequence[tuple[Incarnation, Incarnation]]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class _FilesOfJobs:
    """Finds the files of jobs, and remembers the SHA-256 of each by its `job_path`. What was
    `accepted` before, in the same form, is used again, whatever its path names now."""

    find_file: JobFileFinder
    accepted: Mapping[str, str]
    files: Mapping[str, Path]
    hashes: dict[str, str] = field(default_factory=dict)

    def find(self, job_path: str) -> JobFile:
        sha256 = self.accepted.get(job_path)
        path = f"{ARTIFACT}{sha256}" if sha256 else job_path
        known = self.files.get(path.removeprefix(ARTIFACT))
        file = JobFile(path.removeprefix(ARTIFACT), known) if known else self.find_file(path)
        self.hashes[job_path] = file.sha256
        return file


class Deployer:
    """Observes, resolves and plans for one scope; starts the change."""

    def __init__(
        self,
        config: Config,
        records: Records,
        connections: Connections,
        polling: Polling,
        artifacts: Artifacts,
        changes: Changes,
        keeper: StateKeeper,
        admission: Admission,
        identities: Identities,
        is_stuck: Callable[[str, Incarnation], bool] = lambda scope, incarnation: False,
        scheduler: Scheduler = THREADS,
    ):
        """`is_stuck` says whether an incarnation of a scope takes nothing, though it is listed by
        its engine."""
        self._records = records
        self._connections = connections
        self._artifacts = artifacts
        self._keeper = keeper
        self._admission = admission
        self._planned_sites = PlannedSites(records, connections, polling, identities, scheduler)
        self._is_stuck = is_stuck
        self.changes = changes
        self._find_file = JobFileFinder(config.jar_folders, artifacts.find)
        self._drain_limit_s = config.drain_limit_s

    def prepare(
        self,
        description: CompositionDescription,
        line_of: LineOf | None = None,
        adopted_jobs: Sequence[str] = (),
        artifacts: Mapping[str, str] | None = None,
        *,
        drop_queues: bool = False,
        drain_limit_s: float | None = None,
        leave: frozenset[str] = frozenset(),
        stopped: frozenset[str] = frozenset(),
        readers_stopped: frozenset[str] = frozenset(),
        has_read: frozenset[str] = frozenset(),
        sees: Callable[[str], bool] = lambda scope: True,
        change: Change | None = None,
    ) -> PreparedPlan:
        """Resolve and plan; nothing is written. Raises InvalidError with all problems; `line_of`
        gives the line of a problem's path in the request. `adopted_jobs` are jobs posted alone that
        count as the scope's own. `artifacts` gives, by `job_path`, the SHA-256 of files that were
        accepted before and are used again, whatever the path names now. Warnings name jobs of
        other compositions only if the user `sees` these. `drain_limit_s`: see `Config`. For
        `drop_queues`, `leave`, `stopped`, `readers_stopped` and `has_read` see `Conditions`.
        `change` is given if it is planned anew."""
        conditions = Conditions(
            self._find_limit(drop_queues, drain_limit_s),
            readers_stopped=readers_stopped,
            stopped_jobs=stopped,
            leave=leave,
            has_read=has_read,
        )
        reverting = find_reverting(description, self._records, change)
        if reverting is not None:
            conditions, back_conditions = replace(conditions, has_read=frozenset()), conditions
        ahead = self._prepare(description, artifacts or {}, conditions, adopted_jobs, line_of, sees)
        if reverting is None:
            return ahead
        return self._revert_first(description, ahead, reverting, back_conditions, adopted_jobs)

    def _revert_first(
        self,
        description: CompositionDescription,
        ahead: PreparedPlan,
        reverting: Reverting,
        conditions: Conditions,
        adopted_jobs: Sequence[str],
    ) -> PreparedPlan:
        """The plan `ahead`, behind one that brings back a revision, if anything is to be done for
        that."""
        name, number = ahead.scope, reverting.revision
        revision = self._records.compositions.revision(name, number)
        try:
            if revision is None:
                raise NotFoundError(f"cannot find revision {number} of {title(name)}")
            first, artifacts = describe_first(
                revision, description, ahead.artifacts, reverting.jobs
            )
            back = self._prepare(first, artifacts, conditions, files=ahead.files)
        except (InvalidError, ConflictError, NotFoundError) as error:
            return _go_on_without(ahead, describe_no_way_back(number, error))
        if back.plan.empty:
            return ahead
        silent = back.silent & frozenset[str]().union(*(step.sites for step in back.plan.steps))
        if conditions.drops and silent:
            why = f"no answer from {', '.join(sorted(silent))}"
            return _go_on_without(ahead, describe_no_way_back(number, why))
        if adopted_jobs:
            raise ConflictError(
                f"cannot apply {title(name)} and take in jobs: revision {number} has to be brought"
                " back first, since the change before this one ended early; apply that again or"
                f" roll back to {number}, then apply this with ?adopt=true"
            )
        idle = list_idle(back.composition, self._records.installation)
        there = read_inventory(self._records, name, ()).jobs.keys() & reverting.jobs
        return replace(
            ahead,
            plan=revert_first(back.plan, ahead.plan, reverting, idle),
            warnings=(*ahead.warnings, *warn_of_new_beginnings(revision, description, there)),
            files={**back.files, **ahead.files},
            noticed=back.noticed,
        )

    def _prepare(
        self,
        description: CompositionDescription,
        artifacts: Mapping[str, str],
        conditions: Conditions,
        adopted_jobs: Sequence[str] = (),
        line_of: LineOf | None = None,
        sees: Callable[[str], bool] = lambda scope: True,
        files: Mapping[str, Path] | None = None,
    ) -> PreparedPlan:
        """Resolve and plan. Of some SHA-256 the `files` are known."""
        scope = description.name
        sites = self._records.sites.all()
        stored = read_inventory(self._records, scope, adopted_jobs)
        # the engines answer while the description is resolved
        await_answers = self._planned_sites.begin(sites, stored, _find_sites(description, sites))

        look = cache(partial(self._planned_sites.look, stored, await_answers))
        job_files = _FilesOfJobs(self._find_file, artifacts, files or {})
        try:
            resolution = self._admission.resolve(
                description,
                sites,
                job_files.find,
                lambda: (look().inventory, look().observation),
                adopted_jobs,
                line_of,
                sees,
            )
        except BaseException:
            await_answers()  # no poll outlives its request
            raise
        seen = look()
        prepared_plan = self._make_plan(
            scope,
            resolution.composition,
            seen.inventory,
            self._planned_sites.add_left_brokers(seen, resolution.composition, sites),
            conditions,
            resolution.warnings,
            adopted_jobs,
        )
        return replace(
            prepared_plan,
            sites=sites,
            artifacts=job_files.hashes,
            files=resolution.files,
            noticed=group(
                (_present_scope(n, scope, adopted_jobs), (stored.jobs[n], each))
                for n, each in seen.noticed.items()
            ),
        )

    def accept(self, prepared_plan: PreparedPlan) -> None:
        """Keep the artifacts that a plan needs, and store which incarnations run or have finished.

        The latter only while no change is being carried out in their scope: it may have replaced
        the incarnation since it was observed.
        """
        for sha256, file in prepared_plan.files.items():
            self._artifacts.adopt(sha256, file)
        for scope, noticed in prepared_plan.noticed.items():
            with self.changes.resting(scope) as resting:
                find = partial(self._records.incarnations.get, scope)
                same = [each for each in noticed if find(each[0].job.job_name) == each[0]]
                if resting and same:
                    self._planned_sites.record(scope, same, self.changes.session_locks)

    def artifact_of(self, job_path: str) -> str:
        """The SHA-256 of what `job_path` names now. Raises InvalidError, NotFoundError."""
        return self._find_file(job_path).sha256

    def prepare_removal(
        self,
        name: str,
        *,
        drop_queues: bool = False,
        drain_limit_s: float | None = None,
        readers_stopped: frozenset[str] = frozenset(),
        has_read: frozenset[str] = frozenset(),
    ) -> PreparedPlan:
        """The plan that removes a whole composition. For the options see `prepare`."""
        sites = self._records.sites.all()
        inventory = self._records.inventory(name)
        composition = Composition(name, ())
        leaving = self._planned_sites.find_left_brokers(composition, inventory)
        await_answers = self._planned_sites.begin(sites, inventory, set(), leaving)
        seen = self._planned_sites.look(inventory, await_answers)
        prepared_plan = self._make_plan(
            name,
            composition,
            seen.inventory,
            seen.observation,
            Conditions(
                self._find_limit(drop_queues, drain_limit_s),
                readers_stopped=readers_stopped,
                has_read=has_read,
            ),
        )
        noticed = [(inventory.jobs[job_name], each) for job_name, each in seen.noticed.items()]
        return replace(prepared_plan, sites=sites, noticed={name: noticed} if noticed else {})

    def plan_anew(self, change: Change) -> tuple[Plan, Mapping[str, Site]]:
        """Plan a change again from the current observation; returns the plan and the sites.

        Raises InvalidError, ConflictError, NotFoundError when no plan can be made any more.
        """
        if change.cause is Cause.REMOVE:
            prepared_plan = self.prepare_removal(
                change.composition,
                drop_queues=change.drop_queues,
                drain_limit_s=change.drain_limit_s,
                readers_stopped=change.readers_stopped,
                has_read=change.has_read,
            )
        else:
            description, artifacts = read_desired_state(change, self._records)
            prepared_plan = self.prepare(
                description,
                artifacts=artifacts,
                drop_queues=change.drop_queues,
                drain_limit_s=change.drain_limit_s,
                leave=change.leave,
                stopped=change.stopped,
                readers_stopped=change.readers_stopped,
                has_read=change.has_read,
                change=change,
            )
        self.accept(prepared_plan)
        if prepared_plan.not_reverted is not None:
            _report(self._records, change, prepared_plan.not_reverted)
        result = prepared_plan.plan
        if change.cause is Cause.REPAIR:
            result = keep_queues(result) or result
        return result, prepared_plan.sites

    def _make_plan(
        self,
        scope: str,
        composition: Composition,
        inventory: Inventory,
        observation: Observation,
        asked: Conditions,
        warnings: Sequence[str] = (),
        adopted_jobs: Sequence[str] = (),
    ) -> PreparedPlan:
        scopes = {scope, *map(composition_of_one, adopted_jobs)}
        links = _find_links(composition, inventory)
        outside = Outside(
            self._records.sessions.links_read_outside(links, scopes),
            self._records.incarnations.sinks_outside(links, scopes),
        )
        sites = self._records.sites.all()
        engines = {d.job.engine for d in inventory.jobs.values() if d.job.site in sites}
        engines |= {job.engine for job in composition.jobs}
        conditions = replace(
            asked,
            stuck_jobs=frozenset(
                n
                for n, each in inventory.jobs.items()
                if self._is_stuck(_present_scope(n, scope, adopted_jobs), each)
            ),
            cannot_try=find_lacking(self._connections, EngineCapability.TRIAL, engines),
            cannot_save=find_lacking(self._connections, EngineCapability.STATE, engines),
            apart=self._find_unshared_storage(composition, inventory),
        )
        installation = self._records.installation
        result = plan(composition, inventory, observation, installation, outside, conditions)
        silent = frozenset(observation.unreachable)
        return PreparedPlan(scope, composition, result, {}, tuple(warnings), silent=silent)

    def _find_limit(self, drop_queues: bool, drain_limit_s: float | None) -> float | None:
        """`Conditions.limit_s` for a request."""
        if not drop_queues:
            return None
        return self._drain_limit_s if drain_limit_s is None else drain_limit_s

    def _find_unshared_storage(
        self, composition: Composition, inventory: Inventory
    ) -> frozenset[tuple[str, str]]:
        """The pairs (from, to) of sites between which a job's state would have to be
        transferred."""
        return frozenset(
            (home, job.site)
            for job in composition.jobs
            if (incarnation := inventory.jobs.get(job.job_name)) is not None
            for home in incarnation.homes
            if not self._keeper.shares_storage(home, job.site)
        )


def _report(records: Records, change: Change, message: str) -> None:
    composition = visible_name(change.composition)
    records.write(records.events.make("change", message, change=change.id, composition=composition))


def _go_on_without(ahead: PreparedPlan, why: str) -> PreparedPlan:
    """The plan without what should be brought back first."""
    return replace(ahead, warnings=(*ahead.warnings, why), not_reverted=why)


def _present_scope(job_name: str, scope: str, adopted_jobs: Sequence[str]) -> str:
    """The scope of a job before the plan is carried out."""
    return composition_of_one(job_name) if job_name in adopted_jobs else scope


def _find_links(composition: Composition, inventory: Inventory) -> set[Link]:
    """All links that a plan may be about."""
    links = {session.link for session in inventory.sessions}
    links.update(reader.link for reader in composition.readers)
    links.update(composition.inputs)
    for job in composition.jobs:
        links.update((job.source, *job.port))
    for incarnation in inventory.jobs.values():
        former: Incarnation | None = incarnation
        while former is not None:
            links.update((former.job.source, *former.job.port))
            links.update(stale.link for stale in former.stale)
            former = former.base
    return links


def _find_sites(description: CompositionDescription, sites: Mapping[str, Site]) -> set[str]:
    by_engine = {site.spe.address: name for name, site in sites.items() if site.spe.address}
    names = {job.site or by_engine.get(engine_address(job) or "") for job in description.jobs}
    return {name for name in names if name is not None}
