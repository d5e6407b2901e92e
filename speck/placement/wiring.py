"""A composition as placement sees it: jobs at sites, joined by links at sites. Pure.

A broker belongs to one site, so a link is a (site, topic). This module decides what can move: a
link that something outside the composition feeds or reads stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from speck.errors import InvalidError
from speck.model.composition import CompositionDescription, Port
from speck.model.job import DesiredState, JobDescription
from speck.model.site import Site
from speck.model.values import cut
from speck.spec.addresses import engine_address, normalise_address


@dataclass(frozen=True, slots=True, order=True)
class At:
    """A topic at the broker of a site."""

    site: str
    topic: str

    def __str__(self) -> str:
        return f"{cut(self.topic)} at {self.site}"


@dataclass(frozen=True, slots=True)
class WiredJob:
    """A job with its engine's site and its links' sites; `index` is its place in the YAML."""

    name: str
    index: int
    site: str
    source: At
    sink: At
    slots: int
    pinned: bool
    stopped: bool


@dataclass(frozen=True)
class Wiring:
    """Jobs, and the links that cannot move since something outside the composition uses them."""

    jobs: tuple[WiredJob, ...]
    fixed_links: frozenset[At]

    @cached_property
    def writers(self) -> dict[At, tuple[WiredJob, ...]]:
        """Jobs by their sink link, in the order of the YAML."""
        return _group_by(self.jobs, lambda job: job.sink)

    @cached_property
    def readers(self) -> dict[At, tuple[WiredJob, ...]]:
        """Jobs by their source link, in the order of the YAML."""
        return _group_by(self.jobs, lambda job: job.source)

    @cached_property
    def links(self) -> tuple[At, ...]:
        """Every link, sorted."""
        return tuple(sorted({*self.writers, *self.readers}))

    @cached_property
    def order(self) -> tuple[WiredJob, ...]:
        """Jobs in topological order. An accepted composition has no cycles."""
        sorted_jobs: dict[str, WiredJob] = {}
        remaining = list(self.jobs)
        while remaining:
            ready_jobs = [
                job
                for job in remaining
                if all(writer.name in sorted_jobs for writer in self.writers.get(job.source, ()))
            ]
            if not ready_jobs:
                names = ", ".join(job.name for job in remaining)
                raise InvalidError(f"cannot place jobs in a cycle: {names}")
            sorted_jobs |= {job.name: job for job in ready_jobs}
            remaining = [job for job in remaining if job.name not in sorted_jobs]
        return tuple(sorted_jobs.values())

    def is_movable(self, link: At) -> bool:
        """Whether the link can move: only jobs of the composition use it, and all of them run.

        The unread messages of a stopped job are stored in its session at the link's broker.
        """
        writers, readers = self.writers.get(link, ()), self.readers.get(link, ())
        has_stopped_job = any(job.stopped for job in (*writers, *readers))
        return link not in self.fixed_links and bool(writers and readers) and not has_stopped_job

    def fix(self, links: Collection[At], sites: Collection[str]) -> Wiring:
        """Return this wiring with these links, and everything at these sites, fixed where it is.

        Jobs at a site that does not answer can be neither stopped nor rewired.
        """
        jobs = tuple(replace(job, pinned=True) if job.site in sites else job for job in self.jobs)
        fixed_links = {*self.fixed_links, *links}
        fixed_links.update(
            link for job in jobs if job.site in sites for link in (job.source, job.sink)
        )
        fixed_links.update(link for link in self.links if link.site in sites)
        return Wiring(jobs, frozenset(fixed_links))


def wire(
    description: CompositionDescription,
    sites: Mapping[str, Site],
    foreign: Collection[At] = (),
) -> Wiring:
    """Wire a description that was accepted against `sites`.

    `foreign`: links that jobs outside the composition read or write. Raises InvalidError, which
    names the address or site that is not registered.
    """
    site_index = _SiteIndex(sites)
    jobs = tuple(site_index.wire_job(job, index) for index, job in enumerate(description.jobs))
    ports = {site_index.find_link(port) for port in (*description.inputs, *description.outputs)}
    return Wiring(jobs, frozenset(ports | set(foreign)))


class _SiteIndex:
    """The registered sites by name and by address."""

    def __init__(self, sites: Mapping[str, Site]):
        self._sites = sites
        self._engines = {site.spe.address: name for name, site in sites.items() if site.spe.address}
        self._brokers = {site.broker.address: name for name, site in sites.items()}

    def wire_job(self, job: JobDescription, index: int) -> WiredJob:
        site = self._check_site(job.site) if job.site else self._find_engine_site(job)
        return WiredJob(
            name=job.job_name,
            index=index,
            site=site,
            source=At(
                self._site_of_end(job.source_site, job.source_broker, site), job.source_topic
            ),
            sink=At(self._site_of_end(job.sink_site, job.sink_broker, site), job.sink_topic),
            slots=0 if job.state is DesiredState.STOPPED else job.parallelism,
            pinned=job.pinned,
            stopped=job.state is DesiredState.STOPPED,
        )

    def find_link(self, port: Port) -> At:
        site = (
            self._check_site(port.site) if port.site else self._find_broker_site(port.broker or "")
        )
        return At(site, port.topic)

    def _site_of_end(self, site: str | None, broker: str | None, default: str) -> str:
        if site is not None:
            return self._check_site(site)
        return self._find_broker_site(broker) if broker is not None else default

    def _check_site(self, name: str) -> str:
        if name not in self._sites:
            raise InvalidError(f"cannot place jobs: no registered site is named {name}")
        return name

    def _find_engine_site(self, job: JobDescription) -> str:
        address = engine_address(job) or ""
        if address not in self._engines:
            raise InvalidError(f"cannot place jobs: no registered site has the engine {address}")
        return self._engines[address]

    def _find_broker_site(self, broker: str) -> str:
        address = normalise_address(broker)
        if address not in self._brokers:
            raise InvalidError(f"cannot place jobs: no registered site has the broker {address}")
        return self._brokers[address]


def _group_by(
    jobs: tuple[WiredJob, ...], link: Callable[[WiredJob], At]
) -> dict[At, tuple[WiredJob, ...]]:
    groups: dict[At, tuple[WiredJob, ...]] = {}
    for job in jobs:
        groups[link(job)] = (*groups.get(link(job), ()), job)
    return groups
