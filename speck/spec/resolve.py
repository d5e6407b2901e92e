"""Descriptions -> resolved jobs: every address known, every jar named by its content.

All that would make a composition fail later and can be known now is found here, before
anything moves, and all of it is told at once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from speck.errors import InvalidError, NotFoundError, Problem, meant
from speck.model.composition import (
    Composition,
    CompositionDescription,
    Port,
    Reader,
    job_posted_alone,
)
from speck.model.job import Delivery, DesiredState, Job, JobDescription
from speck.model.link import Link
from speck.model.site import Site, normalise_address
from speck.spec.jars import Jar, JarFinder, class_fault
from speck.spec.job_contract import args_faults, link_fault, tells_numbers
from speck.spec.topology import End, Graph, Node, described_end, described_node

__all__ = ["Jar", "JarFinder", "Resolved", "refuse_problems", "resolve"]

FindJar = Callable[[str], Jar]
LineOf = Callable[[str], int | None]
_REGISTER = "register it (speck site add, or POST /sites)"


@dataclass(frozen=True, slots=True)
class _Known:
    """What has been observed, as `resolve` is told."""

    free_slots: Mapping[str, int | None] | None
    held_slots: Mapping[str, int]
    brokers_mqtt5: Mapping[str, bool | None] | None


@dataclass(frozen=True, slots=True)
class Resolved:
    """A composition ready to be planned; `jars` are its files by SHA-256."""

    composition: Composition
    warnings: list[str]
    jars: Mapping[str, Path]
    graph: Graph


def resolve(
    description: CompositionDescription,
    sites: Mapping[str, Site],
    find_jar: FindJar,
    *,
    free_slots: Mapping[str, int | None] | None = None,
    held_slots: Mapping[str, int] | None = None,
    brokers_mqtt5: Mapping[str, bool | None] | None = None,
    others: Iterable[Job] = (),
    line_of: LineOf | None = None,
) -> Resolved:
    """Resolve a composition against the registered `sites`.

    `free_slots` by site, None for a site that did not tell; `held_slots` by site are those
    that this composition's own jobs hold now; `brokers_mqtt5` by normalised broker address,
    None for a broker that did not tell. What is not given at all is not checked. `others` are
    jobs of elsewhere that may share links with these. `line_of` gives the lines of problems (see
    `schema.load_document`). Raises InvalidError with every problem found.
    """
    resolver = _Resolver(sites, find_jar, _Known(free_slots, held_slots or {}, brokers_mqtt5))
    jobs = [resolver.job(job, index) for index, job in enumerate(description.jobs)]
    for index, port in enumerate(description.inputs):
        resolver.end("input", port, index)
    for index, port in enumerate(description.outputs):
        resolver.end("output", port, index)
    names = {site.broker.address: site.name for site in sites.values()}
    graph = Graph(tuple(resolver.nodes), tuple(resolver.ends), names)
    resolver.problems += graph.problems()
    resolver.check_slots(jobs)
    resolver.check_batches([job for job in jobs if job is not None], others)
    refuse_problems(resolver.problems, description.name, line_of)
    composition = Composition(
        name=description.name,
        jobs=tuple(job for job in jobs if job is not None),
        readers=tuple(resolver.readers()),
        inputs=tuple(end.link for end in resolver.ends if end.kind == "input"),
    )
    # the links of a job posted alone are open at both ends
    of_graph = graph.warnings() if job_posted_alone(description.name) is None else []
    warnings = [*of_graph, *resolver.warnings]
    return Resolved(composition, warnings, resolver.jars, graph)


def refuse_problems(problems: Iterable[Problem], name: str, line_of: LineOf | None) -> None:
    """Raises InvalidError if there are any, by the paths and lines of what the user sent; a job
    posted alone is all of the document."""
    alone = job_posted_alone(name)
    found = []
    for problem in problems:
        path = problem.path if alone is None else _OF_ONE.sub("", problem.path)
        found.append(replace(problem, path=path, line=line_of(path) if line_of else problem.line))
    if found:
        more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
        noun = f"composition {name}" if alone is None else f"job {alone}"
        raise InvalidError(f"cannot accept {noun}: {found[0]}{more}", found)


_OF_ONE = re.compile(r"^jobs\[0\]\.?")


class _Resolver:
    """Collects problems, warnings and the graph while jobs are resolved one by one."""

    def __init__(self, sites: Mapping[str, Site], find_jar: FindJar, known: _Known) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.nodes: list[Node] = []
        self.ends: list[End] = []
        self.jars: dict[str, Path] = {}
        self._sites = sites
        self._engines = {site.spe.address: site for site in sites.values()}
        self._brokers = {site.broker.address: site for site in sites.values()}
        self._find_jar = find_jar
        self._found: dict[str, Jar | str] = {}
        self._known = known

    def job(self, job: JobDescription, index: int) -> Job | None:
        """The resolved job, or None when something about it is wrong."""
        path = f"jobs[{index}]"
        before = len(self.problems)
        site = self._site(path, job)
        source = self._broker_site(path, "source", job.source_broker, job.source_site, site)
        sink = self._broker_site(path, "sink", job.sink_broker, job.sink_site, site)
        jar = self._jar(path, job)
        self._check_args(path, job)
        self._check_delivery(path, job, source, sink)
        self._check_link(job, sink)
        self._add_node(job, index, site, source, sink)
        if len(self.problems) > before or not (site and source and sink and jar):
            return None
        self.jars[jar.sha256] = jar.file
        resolved = Job(
            job_name=job.job_name,
            site=site.name,
            spe_address=site.spe.address,
            source=Link(source.broker.address, job.source_topic),
            sink=Link(sink.broker.address, job.sink_topic),
            source_site=source.name,
            sink_site=sink.name,
            entry_class=job.entry_class,
            jar=jar.sha256,
            **job.options(),
        )
        if not tells_numbers(resolved):
            self.warnings.append(
                f"job {job.job_name} has placeholders in its args: unless it tells its numbers all"
                " the same, speck cannot tell when its links are drained, how far it lags, or"
                " what came twice"
            )
        return resolved

    def end(self, kind: str, port: Port, index: int) -> None:
        """Resolve a declared input or output."""
        path = f"{kind}s[{index}]"
        if port.site is not None:
            site = self._named(f"{path}.site", port.site)
        else:
            site = self._at_broker(f"{path}.broker", port.broker or "")
        end = described_end(kind, port, index)
        if site is not None:
            end = replace(end, link=Link(site.broker.address, port.topic))
        self.ends.append(end)

    def readers(self) -> Iterable[Reader]:
        """The sessions outside speck that are to be reserved."""
        for end in self.ends:
            if end.client_id is not None:
                yield Reader(end.client_id, end.link, self._brokers[end.link.broker].name)

    def check_slots(self, jobs: Iterable[Job | None]) -> None:
        """Whether each site's engine can hold the running jobs that it is to have."""
        if self._known.free_slots is None:
            return
        needed: dict[str, int] = {}
        over: dict[str, int] = {}
        for index, job in enumerate(jobs):
            if job is None or job.state is DesiredState.STOPPED:
                continue
            needed[job.site] = needed.get(job.site, 0) + job.parallelism
            free = self._known.free_slots.get(job.site)
            if free is not None and needed[job.site] > free + self._held(job.site):
                over.setdefault(job.site, index)
        for site, index in over.items():
            usable = (self._known.free_slots[site] or 0) + self._held(site)
            message = (
                f"too few free slots at site {site}: its jobs need {needed[site]}, "
                f"{usable} are free or held by this composition"
            )
            self.problems.append(Problem(f"jobs[{index}].parallelism", message))
        for site in sorted(needed):
            if self._known.free_slots.get(site) is None:
                self.warnings.append(
                    f"slots of site {site} are not known; its jobs need {needed[site]}"
                )

    def _held(self, site: str) -> int:
        return self._known.held_slots.get(site, 0)

    def _problem(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    def _site(self, path: str, job: JobDescription) -> Site | None:
        if job.site is not None:
            return self._named(f"{path}.site", job.site)
        address = normalise_address(job.spe_address or "")
        site = self._engines.get(address)
        if site is None:
            message = f"no registered site has the engine {address}; {_REGISTER}"
            self._problem(f"{path}.spe_address", message)
        return site

    def _broker_site(
        self, path: str, side: str, address: str | None, name: str | None, default: Site | None
    ) -> Site | None:
        """The site whose broker is meant; without any word, that of the job's own site."""
        if name is not None:
            return self._named(f"{path}.{side}_site", name)
        if address is not None:
            return self._at_broker(f"{path}.{side}_broker", address)
        return default

    def _named(self, path: str, name: str) -> Site | None:
        site = self._sites.get(name)
        if site is None:
            hint = meant(name, self._sites, _REGISTER)
            self._problem(path, f"no registered site is named {name}; {hint}")
        return site

    def _at_broker(self, path: str, address: str) -> Site | None:
        address = normalise_address(address)
        site = self._brokers.get(address)
        if site is None:
            self._problem(path, f"no registered site has the broker {address}; {_REGISTER}")
        return site

    def _jar(self, path: str, job: JobDescription) -> Jar | None:
        """The jar, looked for once for each job_path, if it holds the entry class."""
        if job.job_path not in self._found:
            try:
                self._found[job.job_path] = self._find_jar(job.job_path)
            except (InvalidError, NotFoundError) as exc:
                self._found[job.job_path] = str(exc)
        jar = self._found[job.job_path]
        if isinstance(jar, str):
            self._problem(f"{path}.job_path", jar)
            return None
        if (fault := class_fault(jar, job.entry_class)) is not None:
            self._problem(f"{path}.entry_class", fault)
            return None
        return jar

    def _check_args(self, path: str, job: JobDescription) -> None:
        for index, fault in args_faults(job.args).items():
            self._problem(f"{path}.args[{index}]", fault)
        if (unheard := link_fault(job.link, job.args)) is not None:
            self._problem(f"{path}.link", unheard)

    def _check_delivery(
        self, path: str, job: JobDescription, source: Site | None, sink: Site | None
    ) -> None:
        if job.delivery is not Delivery.EXACTLY_ONCE or self._known.brokers_mqtt5 is None:
            return
        addresses = dict.fromkeys(site.broker.address for site in (source, sink) if site)
        for address in addresses:
            speaks = self._known.brokers_mqtt5.get(address)
            if speaks is None:
                self.warnings.append(
                    f"whether the broker {address} speaks MQTT 5 is not known; "
                    f"job {job.job_name} needs it for exactly_once"
                )
            elif not speaks:
                message = f"exactly_once needs MQTT 5, which the broker {address} does not speak"
                self._problem(f"{path}.delivery", message)

    def _check_link(self, job: JobDescription, sink: Site | None) -> None:
        if job.link.linger_ms and job.link.batch_records == 1:
            self.warnings.append(
                f"job {job.job_name} waits for nothing: linger_ms of its link is of no meaning"
                " while batch_records is 1"
            )
        if not job.link.in_batches or sink is None:
            return
        if (self._known.brokers_mqtt5 or {}).get(sink.broker.address) is False:
            self.warnings.append(
                f"job {job.job_name} sends its records one by one: batches need MQTT 5, which"
                f" the broker {sink.broker.address} does not speak"
            )

    def check_batches(self, own: Sequence[Job], others: Iterable[Job]) -> None:
        """Whether anybody reads batches who may not know them."""
        if not any(job.link.in_batches or not tells_numbers(job) for job in own):
            return
        everybody = [*own, *others]
        names = {job.job_name for job in own}
        outside = {end.link for end in self.ends if end.kind == "output"}
        foreign = [job for job in everybody if not tells_numbers(job)]
        take_apart = "must take them apart (speck.model.batches does, see docs/guarantees.md)"
        for job in everybody:
            if not job.link.in_batches:
                continue
            sends = f"job {job.job_name} sends batches to {job.sink.topic} at {job.sink_site}"
            if job.sink in outside:
                self.warnings.append(f"{sends}, an output: its readers {take_apart}")
            self.warnings += [
                f"{sends}, which job {reader.job_name} reads: having placeholders in its args, it"
                f" {take_apart} by itself"
                for reader in foreign
                if reader.source == job.sink and names & {job.job_name, reader.job_name}
            ]

    def _add_node(
        self,
        job: JobDescription,
        index: int,
        site: Site | None,
        source: Site | None,
        sink: Site | None,
    ) -> None:
        """The job in the graph; what is not resolved stays as its user wrote it."""
        node = described_node(job, index)
        if site is not None:
            node = replace(node, site=site.name)
        if source is not None:
            node = replace(node, source=Link(source.broker.address, job.source_topic))
        if sink is not None:
            node = replace(node, sink=Link(sink.broker.address, job.sink_topic))
        self.nodes.append(node)
