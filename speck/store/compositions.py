"""Compositions in the store: heads, revisions, whose each job is, and the links of jobs.

A job posted alone is a composition of one, under its hidden name (`composition_of_one`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from speck.model.composition import Head, Revision
from speck.model.link import JobLinks
from speck.store.link_index import LinkIndex, StoredLinks
from speck.store.tables import Batch, Tables


@dataclass(frozen=True, slots=True)
class JobOwner:
    composition: str


@dataclass(frozen=True, slots=True)
class BrokenRequirements:
    broken: tuple[str, ...]


class CompositionRecords:
    """All compositions. `head/<name>`, `rev/<name>/<revision>`, `own/<job>`, `links/<name>`,
    `required/<name>`."""

    def __init__(self, tables: Tables):
        self._heads = tables.kept("head", Head)
        self._revisions = tables.table("rev", Revision, digits=8)
        self._owners = tables.kept("own", JobOwner)
        self._broken = tables.kept("required", BrokenRequirements)
        self.links = LinkIndex()
        self._links = tables.table("links", StoredLinks, on_write=self._index_links)
        self._artifacts_of: dict[tuple[str, int], frozenset[str]] = {}
        self.artifact_writes: Counter[str] = Counter()
        """SHA-256 of an artifact -> how many revisions that name it were written or read."""
        for identity, data in self._revisions.scan():
            self._index_artifacts(identity, data["artifacts"])
        tables.inform("rev", self._index_revision)

    # -- heads ----------------------------------------------------------------------------

    @property
    def writes(self) -> int:
        """A number that changes whenever a head does."""
        return self._heads.writes

    def head(self, name: str) -> Head | None:
        """The head of a composition that is there."""
        head = self._heads.get(name)
        return None if head is None or head.deleted else head

    def last_head(self, name: str) -> Head | None:
        """The head of a composition that is there, or was."""
        return self._heads.get(name)

    def heads(self, starting: str = "") -> Iterator[Head]:
        """The heads of all compositions that are there, whose names start so, by name."""
        return (head for _, head in self._heads.items(starting=starting) if not head.deleted)

    def last_heads(self) -> Iterator[Head]:
        """The heads of all compositions that are there or were, by name."""
        return self._heads.values()

    def put_head(self, head: Head) -> Batch:
        return self._heads.put(head, head.name)

    # -- revisions ------------------------------------------------------------------------

    def revision(self, name: str, number: int) -> Revision | None:
        """A revision of a composition; of a job posted alone only the newest is stored."""
        return self._revisions.get(name, number)

    def newest(self, name: str) -> Revision | None:
        """The newest revision of a composition that is there."""
        head = self.head(name)
        return self.revision(name, head.revision) if head is not None else None

    def revisions(self, name: str) -> Iterator[tuple[int, Revision]]:
        """(number, revision) of all of a composition that is there or was, oldest first."""
        return ((int(number), record) for number, record in self._revisions.items(name))

    def put_revision(self, name: str, number: int, revision: Revision) -> Batch:
        return self._revisions.put(revision, name, number)

    def drop_revision(self, head: Head) -> Batch:
        """Delete the newest revision: nobody can name it any more."""
        return self._revisions.drop(head.name, head.revision)

    def artifacts_of_revisions(self) -> Mapping[tuple[str, int], frozenset[str]]:
        """(composition, revision) -> the SHA-256 of the artifacts that it names."""
        return self._artifacts_of.copy()

    # -- jobs -----------------------------------------------------------------------------

    def owner(self, job_name: str) -> str | None:
        """The composition that names this job, or named it and still removes it."""
        owner = self._owners.get(job_name)
        return owner.composition if owner is not None else None

    def owners(self) -> Iterator[tuple[str, str]]:
        """(job name, composition that names it) of all jobs, by name."""
        return ((job_name, owner.composition) for job_name, owner in self._owners.items())

    def put_owner(self, job_names: Iterable[str], name: str) -> Batch:
        """The jobs are those of a composition now."""
        owner = JobOwner(name)
        return {self._owners.key(job_name): owner for job_name in job_names}

    def drop_owner(self, job_names: Iterable[str]) -> Batch:
        """The jobs are nobody's any more."""
        return {self._owners.key(job_name): None for job_name in job_names}

    # -- requirements ---------------------------------------------------------------------

    def broken_requirements(self, name: str) -> tuple[str, ...]:
        """Which of a composition's requirements have been missed for a while, by name."""
        stored = self._broken.get(name)
        return stored.broken if stored is not None else ()

    def put_broken_requirements(self, name: str, broken: Iterable[str]) -> Batch:
        names = tuple(sorted(broken))
        return {self._broken.key(name): BrokenRequirements(names) if names else None}

    # -- links ----------------------------------------------------------------------------

    def put_links(self, name: str, jobs: Iterable[JobLinks]) -> Batch:
        """Store the links of a composition's newest revision. Those stored so far are kept until
        `settle_links`: jobs may still run with them."""
        newest = tuple(sorted(set(jobs)))
        earlier = tuple(sorted(set(self.links.of(name)) - set(newest)))
        return self._links.put(StoredLinks(newest, earlier), name)

    def settle_links(self, name: str) -> Batch:
        """Drop the links of earlier revisions: no job runs with them any more."""
        stored = self._links.get(name)
        if stored is None or not stored.earlier:
            return {}
        return self._links.put(StoredLinks(stored.newest), name)

    def drop_links(self, name: str) -> Batch:
        return self._links.drop(name)

    # -- what is kept in memory -----------------------------------------------------------

    def _index_links(self, name: str, stored: StoredLinks | None) -> None:
        self.links.put(name, (*stored.newest, *stored.earlier) if stored else ())

    def _index_revision(self, identity: str, revision: Revision | None) -> None:
        self._index_artifacts(identity, revision.artifacts if revision is not None else None)

    def _index_artifacts(self, identity: str, artifacts: Mapping[str, str] | None) -> None:
        name, _, number = identity.rpartition("/")
        if artifacts is None:
            self._artifacts_of.pop((name, int(number)), None)
        else:
            self._artifacts_of[name, int(number)] = frozenset(artifacts.values())
            self.artifact_writes.update(self._artifacts_of[name, int(number)])
