"""The desired state: which jobs should run, by the newest accepted revision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from speck.binding import normalise_address
from speck.model.change import Cause
from speck.model.composition import Drift, Head, Port
from speck.model.job import DesiredState, JobDescription
from speck.model.link import Link
from speck.store.records import Records


@dataclass(frozen=True, slots=True)
class Marks:
    """Options of a job that do not affect its incarnation."""

    pinned: bool = False
    stateful: bool | None = None


@dataclass(frozen=True, slots=True)
class _Newest:
    """What is wanted of a scope's newest revision."""

    repairs: Mapping[str, bool | None] = field(default_factory=dict)
    marks: Mapping[str, Marks] = field(default_factory=dict)
    inputs: frozenset[Link] = frozenset()


class DesiredJobs:
    """The desired jobs of each scope; parses each revision once."""

    def __init__(self, records: Records):
        self._records = records
        self._parsed: dict[str, tuple[object, _Newest]] = {}

    def is_removing(self, scope: str) -> bool:
        """Whether a user has requested the removal of a scope."""
        head = self._records.compositions.last_head(scope)
        return head is not None and head.removing

    def last_change(self, scope: str) -> str | None:
        """Return the id of a scope's newest change."""
        head = self._records.compositions.last_head(scope)
        return head.last_change if head is not None else None

    def is_last_change_repair(self, scope: str) -> bool:
        """Whether the newest change of a scope was a repair."""
        last = self.last_change(scope)
        change = self._records.changes.head(last) if last is not None else None
        return change is not None and change.cause is Cause.REPAIR

    def jobs(self, scope: str) -> Mapping[str, bool | None]:
        """Every job of a scope's newest revision, to whether speck repairs it when it does not run;
        None for a job that should be stopped."""
        return self._newest(scope).repairs

    def marks(self, scope: str) -> Mapping[str, Marks]:
        """The marks of every job of a scope's newest revision."""
        return self._newest(scope).marks

    def is_input(self, scope: str, link: Link) -> bool:
        """Whether a scope's newest revision declares the link as fed from outside."""
        return link in self._newest(scope).inputs

    def _newest(self, scope: str) -> _Newest:
        head = self._records.compositions.head(scope)
        if head is None:
            self._parsed.pop(scope, None)
            return _Newest()
        entry = self._parsed.get(scope)
        version = head.revision, self._records.sites.writes  # inputs may name addresses
        if entry is None or entry[0] != version:
            entry = self._parsed[scope] = version, self._load(head)
        return entry[1]

    def _load(self, head: Head) -> _Newest:
        revision = self._records.compositions.revision(head.name, head.revision)
        if revision is None:
            return _Newest()
        description = revision.description
        return _Newest(
            {job.job_name: _is_repaired(job, description.drift) for job in description.jobs},
            {job.job_name: Marks(job.pinned, job.stateful) for job in description.jobs},
            frozenset(self._list_inputs(description.inputs)),
        )

    def _list_inputs(self, ports: Iterable[Port]) -> Iterator[Link]:
        """The links that a description declares as fed from outside."""
        names = {site.broker.address: site.name for site in self._records.sites.all().values()}
        for port in ports:
            name = port.site
            if name is None and port.broker is not None:
                name = names.get(normalise_address(port.broker))
            if name is not None:
                yield Link(name, port.topic)


def _is_repaired(job: JobDescription, drift: Drift) -> bool | None:
    if job.state is not DesiredState.RUNNING:
        return None
    return drift is Drift.MEND
