"""The list of all jobs, of compositions and posted alone."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

from speck.errors import NotFoundError
from speck.model.composition import Head
from speck.model.job import JobDescription
from speck.model.job_state import JobState
from speck.service.status import JobView, StatusViews
from speck.sites.site_polls import SitePolls
from speck.store.records import Records

AT_ONCE = 256
"""Jobs of a list that are looked at together."""
_FEW_READ = 64
"""Descriptions that are remembered before it is looked which of them are of removed jobs."""


class JobList:
    """Reads jobs, and whose they are."""

    def __init__(self, records: Records, views: StatusViews, polls: SitePolls):
        self._records = records
        self._status = views
        self._polls = polls
        self._all: tuple[tuple[int, int], Sequence[tuple[str, str]]] = ((-1, -1), ())
        self._read: dict[str, tuple[object, Mapping[str, JobDescription]]] = {}
        self._forget_at = _FEW_READ

    def all(self, site: str | None = None, state: str | None = None) -> list[JobView]:
        """Every job by name; filtered."""
        return list(self.behind("", site, state, at_once=1_000_000))

    def behind(
        self,
        after: str,
        site: str | None = None,
        state: str | None = None,
        at_once: int = AT_ONCE,
    ) -> Iterator[JobView]:
        """The jobs whose names follow `after`; filtered. They are judged `at_once` at a time, so
        that a caller who takes a few of many does not wait for the rest."""
        names = self._sorted_names()
        names = names[bisect_right(names, after, key=itemgetter(0)) :]
        for first in range(0, len(names), at_once):
            scopes: dict[str, list[str]] = {}
            for name, scope in names[first : first + at_once]:
                scopes.setdefault(scope, []).append(name)
            jobs = [job for scope, some in scopes.items() for job in self._some(scope, some)]
            for job in sorted(jobs, key=lambda job: job.job_name):
                if site in (None, job.site) and job.is_in_state(state):
                    yield job

    def count_states(self) -> Counter[JobState]:
        """How many jobs are in each state."""
        counts: Counter[JobState] = Counter()
        for head in self._records.compositions.heads():
            jobs = self._descriptions(head)
            counts += self._status.count_states(jobs, head.name, head.last_change)
        return counts

    def refresh(self, wants: Callable[[str, str], bool], site: str | None = None) -> None:
        """Poll the engines of jobs, so that their states are those of now: of those that are wanted
        by scope and name, at one site or at any."""
        sites = {
            incarnation.job.site
            for key, incarnation in self._records.incarnations.all().items()
            if site in (None, incarnation.job.site) and wants(*key)
        }
        self._polls.refresh(sites & self._records.sites.all().keys())

    def refresh_unknown(self, composition: str) -> None:
        """Poll the engines of a composition's jobs that were never polled."""
        inventory = self._records.incarnations.of_scope(composition).values()
        sites = {incarnation.job.site for incarnation in inventory if not incarnation.ended}
        self._polls.refresh_unknown(sites & self._records.sites.all().keys())

    def _sorted_names(self) -> Sequence[tuple[str, str]]:
        """(name, composition) of every job, by name; computed once for each change of them."""
        version = self._records.incarnations.writes, self._records.compositions.writes
        if self._all[0] != version:
            self._all = version, sorted(self._names())
        return self._all[1]

    def _names(self) -> Iterator[tuple[str, str]]:
        """(name, composition) of every job, including those that are still being removed."""
        incarnations: defaultdict[str, set[str]] = defaultdict(set)
        for composition, name in self._records.incarnations.all():
            incarnations[composition].add(name)
        for head in self._records.compositions.heads():
            for name in self._descriptions(head).keys() | incarnations[head.name]:
                yield name, head.name

    def _some(self, composition: str, names: Collection[str]) -> list[JobView]:
        """Some jobs of one composition; none of those that are gone by now."""
        head = self._records.compositions.head(composition)
        if head is None:
            return []
        return self.of_composition(head, names)

    def of_composition(
        self,
        head: Head,
        only: Collection[str] | None = None,
    ) -> list[JobView]:
        """The jobs of a composition's newest revision, or `only` some of them."""
        return self._status.jobs(
            self._descriptions(head),
            head.name,
            head.revision,
            last_change=head.last_change,
            only=only,
        )

    def take_over(self, name: str, revision: int, jobs: Iterable[JobDescription]) -> None:
        """Take over the jobs of a revision that is stored now, so that they are not parsed again
        when they are read."""
        version = revision, self._records.sites.writes
        self._read[name] = version, {job.job_name: job for job in jobs}
        if len(self._read) >= self._forget_at:
            self._forget_removed()

    def _forget_removed(self) -> None:
        for name in list(self._read):
            if self._records.compositions.head(name) is None:
                self._read.pop(name, None)
        self._forget_at = 2 * len(self._read) + _FEW_READ

    def _descriptions(self, head: Head) -> Mapping[str, JobDescription]:
        """Of the newest revision, by name. A revision is read once, and again when a site has
        changed: addresses in it may have, too.

        That of a job posted alone may be gone by now, replaced or removed: then the head is read
        again, and there is none once the job is removed.
        """
        name, number = head.name, head.revision
        known, version = self._read.get(name), (number, self._records.sites.writes)
        if known is None or known[0] != version:
            revision = self._records.compositions.revision(name, number)
            if revision is None:
                newer = self._records.compositions.head(name)
                return {} if newer in (None, head) else self._descriptions(newer)
            jobs = revision.description.jobs
            known = self._read[name] = version, {job.job_name: job for job in jobs}
        return known[1]

    def get(self, name: str) -> JobView:
        """A job. Raises NotFoundError."""
        owner = self.owner(name)
        for job in self._some(owner, [name]) if owner is not None else ():
            return job
        raise NotFoundError(f"cannot find job {name!r}")

    def owner(self, name: str) -> str | None:
        """The composition that names this job, or named it and still removes it."""
        return self._records.compositions.owner(name)
