"""Incarnations in the store: the newest of each job, and the highest attempt of each ever used."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from speck.model.ids import sink_client_id
from speck.model.incarnation import Incarnation
from speck.model.link import Link
from speck.store.scoped_index import Key, ScopedIndex
from speck.store.tables import Batch, Tables


@dataclass(frozen=True, slots=True)
class Attempts:
    n: int


class IncarnationRecords:
    """All incarnations. `inv/<scope>/<job>`, `att/<scope>/<job>`."""

    def __init__(self, tables: Tables, installation: str):
        self._installation = installation
        self._index = ScopedIndex[Incarnation]()
        self._incarnations = tables.table("inv", Incarnation, on_write=self._index_incarnation)
        self._attempts = tables.kept("att", Attempts)
        self._sinks: tuple[int, Mapping[Link, Sequence[str]]] = (-1, {})

    def get(self, scope: str, job_name: str) -> Incarnation | None:
        """The newest incarnation of a job."""
        return self._index.get(scope, job_name)

    def of_scope(self, scope: str) -> Mapping[str, Incarnation]:
        """Job name -> incarnation of one scope, in order of names; not a copy."""
        return self._index.of_scope(scope)

    def all(self) -> Mapping[Key, Incarnation]:
        """(scope, job name) -> incarnation, over all scopes, in this order; not a copy."""
        return self._index.all()

    def at_engine_of(self, site: str) -> Mapping[Key, Incarnation]:
        """(scope, job name) -> incarnation, of those at the engine of one site."""
        return self._index.at_site(site)

    @property
    def writes(self) -> int:
        """A number that changes whenever an incarnation does."""
        return self._index.writes

    def writes_at(self, site: str) -> int:
        """A number that changes whenever an incarnation at the engine of a site does."""
        return self._index.writes_at(site)

    def uses_artifact(self, sha256: str) -> bool:
        """Whether an incarnation was started from an artifact."""
        return self._index.has_mark(sha256)

    def put(self, scope: str, incarnation: Incarnation) -> Batch:
        """Store an incarnation and the highest attempt of its job. The attempt of an adopted one
        may be lower than that of an earlier job of the same name in this scope."""
        name = incarnation.job.job_name
        highest = max(incarnation.attempt, self.attempts(scope, name))
        stored = self._incarnations.put(incarnation, scope, name)
        return {**stored, **self.put_attempts(scope, name, highest)}

    def drop(self, scope: str, job_name: str) -> Batch:
        """Delete an incarnation; the highest attempt of its job stays."""
        return self._incarnations.drop(scope, job_name)

    # -- attempts -------------------------------------------------------------------------

    def attempts(self, scope: str, job_name: str) -> int:
        """The highest attempt that a job ever used; 0 if there was none."""
        stored = self._attempts.get(scope, job_name)
        return stored.n if stored is not None else 0

    def attempts_of_scope(self, scope: str) -> dict[str, int]:
        """Job name -> the highest attempt ever used, of one scope."""
        return {job_name: stored.n for job_name, stored in self._attempts.items(scope)}

    def all_attempts(self) -> dict[Key, int]:
        """(scope, job name) -> the highest attempt ever used, over all scopes."""
        attempts = {}
        for identity, stored in self._attempts.items():
            scope, _, job_name = identity.partition("/")
            attempts[scope, job_name] = stored.n
        return attempts

    def put_attempts(self, scope: str, job_name: str, highest: int) -> Batch:
        return self._attempts.put(Attempts(highest), scope, job_name)

    # -- sinks ----------------------------------------------------------------------------

    def sinks_outside(
        self, links: Iterable[Link], scopes: Collection[str]
    ) -> dict[Link, list[str]]:
        """Link -> client ids of the sinks that write to it, in scopes except `scopes`; of those of
        the links to which any does."""
        sinks: defaultdict[Link, list[str]] = defaultdict(list)
        for link in links:
            for (scope, job_name), incarnation in self._index.marked(link):
                if scope not in scopes:
                    source = incarnation.job.source
                    sinks[link].append(sink_client_id(self._installation, job_name, source, link))
        return dict(sinks)

    def sinks(self) -> Mapping[Link, Sequence[str]]:
        """Link -> client ids of the sinks that fed it, in all scopes, former ones too; not a
        copy."""
        writes = self.writes
        if self._sinks[0] != writes:
            sinks: defaultdict[Link, list[str]] = defaultdict(list)
            for incarnation in self.all().values():
                job = incarnation.job
                for link in job.port:
                    own = sink_client_id(self._installation, job.job_name, job.source, link)
                    sinks[link] += (own, *incarnation.former_sinks_of(link))
            self._sinks = writes, sinks
        return self._sinks[1]

    def stopped_sinks(self, link: Link, sinks: Iterable[str]) -> list[str]:
        """Those of the client ids, of sinks that write or wrote to a link, whose last number is
        final: their jobs have stopped with their state, or have left the link."""
        open_sinks = {
            sink_client_id(self._installation, job_name, each.job.source, link)
            for (_, job_name), each in self._index.marked(link)
            if not each.ended or each.savepoint is None or each.is_forgotten
        }
        return [each for each in sinks if each not in open_sinks]

    def _index_incarnation(self, identity: str, incarnation: Incarnation | None) -> None:
        scope, _, job_name = identity.partition("/")
        if incarnation is None:
            self._index.drop((scope, job_name))
        else:
            job = incarnation.job
            self._index.put((scope, job_name), incarnation, job.site, *job.port, job.artifact)
