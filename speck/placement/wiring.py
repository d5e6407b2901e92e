"""A composition as placement sees it: jobs at sites, joined by links at sites. Pure.

A broker belongs to one site, so a link is a (site, topic). What may move and what may not is
decided here: a link that something outside the composition feeds or reads stays where it is.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from speck.errors import InvalidError
from speck.model.composition import CompositionDescription, Port
from speck.model.job import DesiredState, JobDescription
from speck.model.site import Site, normalise_address


@dataclass(frozen=True, slots=True, order=True)
class At:
    """A topic at the broker of a site."""

    site: str
    topic: str

    def __str__(self) -> str:
        return f"{self.topic} at {self.site}"


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
    """Jobs, and the links that something outside the composition uses (`fixed`)."""

    jobs: tuple[WiredJob, ...]
    fixed: frozenset[At]

    @cached_property
    def writers(self) -> dict[At, tuple[WiredJob, ...]]:
        """Jobs by the link that they write, in the order of the YAML."""
        return _by(self.jobs, lambda job: job.sink)

    @cached_property
    def readers(self) -> dict[At, tuple[WiredJob, ...]]:
        """Jobs by the link that they read."""
        return _by(self.jobs, lambda job: job.source)

    @cached_property
    def links(self) -> tuple[At, ...]:
        """Every link, sorted."""
        return tuple(sorted({*self.writers, *self.readers}))

    @cached_property
    def order(self) -> tuple[WiredJob, ...]:
        """Jobs, each behind all that feed it. A composition has no cycles once accepted."""
        done: dict[str, WiredJob] = {}
        waiting = list(self.jobs)
        while waiting:
            ready = [
                job
                for job in waiting
                if all(writer.name in done for writer in self.writers.get(job.source, ()))
            ]
            if not ready:
                names = ", ".join(job.name for job in waiting)
                raise InvalidError(f"cannot place jobs in a cycle: {names}")
            done |= {job.name: job for job in ready}
            waiting = [job for job in waiting if job.name not in done]
        return tuple(done.values())

    def open(self, link: At) -> bool:
        """Whether the link may lie elsewhere: only jobs of the composition use it, and all run.

        What a job that stands still is owed waits in its session.
        """
        writers, readers = self.writers.get(link, ()), self.readers.get(link, ())
        still = any(job.stopped for job in (*writers, *readers))
        return link not in self.fixed and bool(writers and readers) and not still

    def held(self, links: Collection[At], sites: Collection[str]) -> Wiring:
        """The same with these links where they are, and with all that is at these sites there:
        what runs at a site that does not answer can be neither stopped nor rewired."""
        jobs = tuple(replace(job, pinned=True) if job.site in sites else job for job in self.jobs)
        fixed = {*self.fixed, *links}
        fixed.update(link for job in jobs if job.site in sites for link in (job.source, job.sink))
        fixed.update(link for link in self.links if link.site in sites)
        return Wiring(jobs, frozenset(fixed))


def wire(
    description: CompositionDescription,
    sites: Mapping[str, Site],
    foreign: Collection[At] = (),
) -> Wiring:
    """The wiring of a description that was accepted against `sites`.

    `foreign` are links that jobs outside the composition read or write. Raises InvalidError
    naming what belongs to no registered site.
    """
    known = _Known(sites)
    jobs = tuple(known.job(job, index) for index, job in enumerate(description.jobs))
    ports = {known.port(port) for port in (*description.inputs, *description.outputs)}
    return Wiring(jobs, frozenset(ports | set(foreign)))


class _Known:
    """The registered sites by name and by address."""

    def __init__(self, sites: Mapping[str, Site]):
        self._sites = sites
        self._engines = {site.spe.address: name for name, site in sites.items()}
        self._brokers = {site.broker.address: name for name, site in sites.items()}

    def job(self, job: JobDescription, index: int) -> WiredJob:
        site = self._named(job.site) if job.site else self._engine(job)
        return WiredJob(
            name=job.job_name,
            index=index,
            site=site,
            source=At(self._side(job.source_site, job.source_broker, site), job.source_topic),
            sink=At(self._side(job.sink_site, job.sink_broker, site), job.sink_topic),
            slots=0 if job.state is DesiredState.STOPPED else job.parallelism,
            pinned=job.pinned,
            stopped=job.state is DesiredState.STOPPED,
        )

    def port(self, port: Port) -> At:
        site = self._named(port.site) if port.site else self._broker(port.broker or "")
        return At(site, port.topic)

    def _side(self, site: str | None, broker: str | None, default: str) -> str:
        if site is not None:
            return self._named(site)
        return self._broker(broker) if broker is not None else default

    def _named(self, name: str) -> str:
        if name not in self._sites:
            raise InvalidError(f"cannot place jobs: no registered site is named {name}")
        return name

    def _engine(self, job: JobDescription) -> str:
        address = job.engine_address or ""
        if address not in self._engines:
            raise InvalidError(f"cannot place jobs: no registered site has the engine {address}")
        return self._engines[address]

    def _broker(self, broker: str) -> str:
        address = normalise_address(broker)
        if address not in self._brokers:
            raise InvalidError(f"cannot place jobs: no registered site has the broker {address}")
        return self._brokers[address]


def _by(
    jobs: tuple[WiredJob, ...], link: Callable[[WiredJob], At]
) -> dict[At, tuple[WiredJob, ...]]:
    found: dict[At, tuple[WiredJob, ...]] = {}
    for job in jobs:
        found[link(job)] = (*found.get(link(job), ()), job)
    return found
