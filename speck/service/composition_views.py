"""What is shown of compositions: their revisions, what is deployed of them, plans and drift."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from speck.deploy.changes import Changes
from speck.deploy.deployer import Deployer
from speck.errors import NotFoundError
from speck.model.composition import (
    CompositionDescription,
    Head,
    Revision,
    title,
    visible_name,
)
from speck.model.incarnation import Incarnation
from speck.model.plan_outline import PlanOutline
from speck.model.shown import Shown
from speck.monitor.requirements import Verdict
from speck.monitor.requirements_watch import Requirements
from speck.service.job_list import JobList
from speck.service.status import JobView
from speck.spec.addresses import with_addresses
from speck.spec.topology import Graph
from speck.store.records import Records


@dataclass(frozen=True, slots=True)
class DriftEntry:
    """A job that differs from the newest revision though no change is under way."""

    job_name: str
    kind: str
    expected: str
    observed: str


@dataclass(frozen=True, slots=True)
class RevisionEntry:
    """A revision of a composition, without its description."""

    revision: int
    at: str
    by: Annotated[str | None, Shown("name of the token that requested it")]


@dataclass(frozen=True, slots=True)
class DeployedJob:
    """The newest incarnation of a job."""

    job_name: str
    site: str
    engine_job_id: str
    attempt: int
    artifact: str
    ended: bool

    @classmethod
    def of(cls, incarnation: Incarnation) -> DeployedJob:
        job = incarnation.job
        return cls(
            job.job_name,
            job.site,
            incarnation.engine_job_id,
            incarnation.attempt,
            job.artifact,
            incarnation.ended,
        )


@dataclass(frozen=True, slots=True)
class CompositionView:
    """A composition: its newest revision, what is deployed, its jobs with their states, and what is
    known of its requirements."""

    head: Head
    desired: CompositionDescription
    deployed: tuple[DeployedJob, ...]
    jobs: tuple[JobView, ...]
    requirements: tuple[Verdict, ...]


class CompositionViews:
    """Reads compositions. All use cases raise NotFoundError for a name that users do not know."""

    def __init__(
        self,
        records: Records,
        deployer: Deployer,
        jobs: JobList,
        changes: Changes,
        requirements: Requirements,
    ):
        self._records = records
        self._deployer = deployer
        self._jobs = jobs
        self._changes = changes
        self._requirements = requirements

    def all(self) -> list[Head]:
        """The heads of all compositions, by name."""
        return [head for head in self._records.compositions.heads() if visible_name(head.name)]

    def get(self, name: str) -> CompositionView:
        """A composition: what is desired, what is deployed, and how its jobs are."""
        head = self.head(name)
        desired = self._revision(name, head.revision).description
        deployed = self._records.incarnations.of_scope(name)
        return CompositionView(
            head=head,
            desired=desired,
            deployed=tuple(DeployedJob.of(each) for each in deployed.values()),
            jobs=tuple(self._jobs.of_composition(head)),
            requirements=tuple(self._requirements.of(name, desired.requirements)),
        )

    def head(self, name: str) -> Head:
        """Where a composition stands."""
        head = self._records.compositions.head(name)
        if head is None or visible_name(name) is None:
            raise NotFoundError(f"cannot find composition {name!r}")
        return head

    def refresh(self, name: str) -> None:
        """Poll the engines of a composition's jobs, so that their states are those of now."""
        self._jobs.refresh(lambda scope, _: scope == name)

    def revision(self, name: str) -> int:
        """The number of the newest revision, for an ETag."""
        return self.head(name).revision

    def plan(self, name: str) -> PlanOutline:
        """The plan from what is observed to the newest revision."""
        newest = self._revision(name, self.head(name).revision)
        prepared = self._deployer.prepare(newest.description, artifacts=newest.artifacts)
        return PlanOutline.of(prepared.plan)

    def graph(self, name: str) -> Graph:
        """The graph of the newest revision."""
        sites = self._records.sites.all()
        return Graph.of_description(with_addresses(self.description(name), sites))

    def drift(self, name: str) -> list[DriftEntry]:
        """The jobs that differ from the newest revision though no change is under way."""
        head = self.head(name)
        if self._changes.under_way(name) is not None:
            return []
        return list(self._list_drift(head))

    def _list_drift(self, head: Head) -> Iterator[DriftEntry]:
        description = self._revision(head.name, head.revision).description
        expected_states = {job.job_name: str(job.state) for job in description.jobs}
        for job in self._jobs.of_composition(head):
            state, expected = str(job.state), expected_states.get(job.job_name)
            is_known = state not in ("finished", "unknown") or expected != "running"
            if state != expected and is_known:
                kind = state if expected else "leftover"
                yield DriftEntry(job.job_name, kind, expected or "removed", job.error or state)

    def revisions(self, name: str) -> list[RevisionEntry]:
        """Oldest first; also of a removed composition."""
        if visible_name(name) is None or self._records.compositions.last_head(name) is None:
            raise NotFoundError(f"cannot find {title(name)}")
        stored = self._records.compositions.revisions(name)
        return [RevisionEntry(number, each.at, each.by) for number, each in stored]

    def description(self, name: str, revision: int | None = None) -> CompositionDescription:
        """A revision as it was accepted (the newest by default)."""
        head = self.head(name)
        return self._revision(name, revision or head.revision).description

    def _revision(self, name: str, number: int) -> Revision:
        revision = self._records.compositions.revision(name, number)
        if revision is None:
            raise NotFoundError(f"cannot find revision {number} of {title(name)}")
        return revision
