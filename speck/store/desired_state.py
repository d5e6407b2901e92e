"""The desired state: which jobs should run, by the newest accepted revision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from speck.binding import normalise_address
from speck.model.change import Cause
from speck.model.composition import Drift, Head, Port
from speck.model.job import DesiredState, Job, JobDescription
from speck.model.link import Link
from speck.store.records import Records


@dataclass(frozen=True, slots=True)
class Marks:
    """Options of a job that do not affect its incarnation."""

    pinned: bool = False
    stateful: bool | None = None


_End = tuple[str | None, str]
"""The site, if that is known, and the topic of a link."""


@dataclass(frozen=True, slots=True)
class _Newest:
    """What is wanted of a scope's newest revision."""

    repairs: Mapping[str, bool | None] = field(default_factory=dict)
    marks: Mapping[str, Marks] = field(default_factory=dict)
    inputs: frozenset[Link] = frozenset()
    ends: Mapping[str, tuple[_End, _End]] = field(default_factory=dict)
    """The source and the sink of each job."""


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

    def is_rewired(self, scope: str, job: Job) -> bool:
        """Whether a scope's newest revision gives a job other links than it has."""
        ends = self._newest(scope).ends.get(job.job_name)
        if ends is None:
            return False
        return any(
            topic != link.topic or site not in (None, link.site)
            for (site, topic), link in zip(ends, (job.source, job.sink), strict=True)
        )

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
        sites = self._records.sites.all().values()
        names = {site.broker.address: site.name for site in sites}
        return _Newest(
            {job.job_name: _is_repaired(job, description.drift) for job in description.jobs},
            {job.job_name: Marks(job.pinned, job.stateful) for job in description.jobs},
            frozenset(_list_inputs(description.inputs, names)),
            {job.job_name: _find_ends(job, names) for job in description.jobs},
        )


def _list_inputs(ports: Iterable[Port], names: Mapping[str, str]) -> Iterator[Link]:
    """The links that a description declares as fed from outside."""
    for port in ports:
        site = _find_site(port.site, port.broker, names)
        if site is not None:
            yield Link(site, port.topic)


def _find_ends(job: JobDescription, names: Mapping[str, str]) -> tuple[_End, _End]:
    def find(site: str | None, broker: str | None) -> str | None:
        return job.site if site is None and broker is None else _find_site(site, broker, names)

    source = find(job.source_site, job.source_broker)
    return (source, job.source_topic), (find(job.sink_site, job.sink_broker), job.sink_topic)


def _find_site(site: str | None, broker: str | None, names: Mapping[str, str]) -> str | None:
    """The site of a broker, which is named or has one of the addresses in `names`."""
    if site is not None or broker is None:
        return site
    return names.get(normalise_address(broker))


def _is_repaired(job: JobDescription, drift: Drift) -> bool | None:
    if job.state is not DesiredState.RUNNING:
        return None
    return drift is Drift.MEND
