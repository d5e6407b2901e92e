"""Descriptions -> resolved jobs: every address checked, every artifact identified by its content.

Every fault that can be detected before anything changes is detected here, and all faults are
reported together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path

from speck.binding import (
    Artifact,
    ArtifactKind,
    find_taker,
    judge_artifact,
    normalise_address,
    topic_fault,
)
from speck.errors import MOST_PROBLEMS, InvalidError, NotFoundError, Problem, suggest
from speck.model.composition import (
    Composition,
    CompositionDescription,
    Port,
    Reader,
    job_posted_alone,
)
from speck.model.job import Delivery, DesiredState, Job, JobDescription
from speck.model.link import Link
from speck.model.site import Site
from speck.model.values import cut
from speck.spec.artifacts import find_kind
from speck.spec.job_contract import args_faults, link_fault, rendered_fault, reports_numbers
from speck.spec.job_files import JobFile
from speck.spec.topology import NO_LINKS, End, Graph, LinksElsewhere, Node, end_of, node_of

__all__ = ["Resolved", "Slots", "refuse_problems", "resolve"]

FindFile = Callable[[str], JobFile]
LineOf = Callable[[str], int | None]
_REGISTER = "register it (speck site add, or POST /sites)"


@dataclass(frozen=True, slots=True)
class Slots:
    """Slots by site: `free` holds None where they are not known, `held` are those that this
    composition's own jobs hold now."""

    free: Mapping[str, int | None]
    held: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Resolved:
    """A composition that can be planned; `files` are those of its artifacts by SHA-256."""

    composition: Composition
    warnings: list[str]
    files: Mapping[str, Path]
    graph: Graph


def resolve(
    description: CompositionDescription,
    sites: Mapping[str, Site],
    find_file: FindFile,
    *,
    find_slots: Callable[[], Slots] | None = None,
    number_carriers: Mapping[str, bool | None] | None = None,
    others: Iterable[Job] = (),
    links: LinksElsewhere = NO_LINKS,
    line_of: LineOf | None = None,
) -> Resolved:
    """Resolve a composition against the registered `sites`.

    `find_slots` is called last, since it may wait for the engines. `number_carriers` holds by
    normalised broker address whether it has the capability `numbers` (None: not known). What is not
    given at all is not checked. `others` are jobs of other compositions, which may share links with
    these; `links` tells which links jobs of others read and write. `line_of` returns the lines of
    problems (see `schema.load_document`). Raises InvalidError with every problem.
    """
    resolver = _Resolver(sites, find_file, number_carriers)
    jobs = []
    for index, job in enumerate(description.jobs):
        jobs.append(resolver.job(job, index))
        _stop_at_many(resolver.problems, description.name, line_of)
    for kind, ports in (("input", description.inputs), ("output", description.outputs)):
        for index, port in enumerate(ports):
            resolver.end(kind, port, index)
            _stop_at_many(resolver.problems, description.name, line_of)
    graph = Graph(tuple(resolver.nodes), tuple(resolver.ends))
    resolver.problems += graph.problems()
    resolver.check_batches([job for job in jobs if job is not None], others)
    resolver.warn_of_artifacts()
    if find_slots is not None:
        resolver.check_slots(jobs, find_slots())
    refuse_problems(resolver.problems, description.name, line_of)
    composition = Composition(
        name=description.name,
        jobs=tuple(job for job in jobs if job is not None),
        readers=tuple(resolver.readers()),
        inputs=tuple(end.link for end in resolver.ends if end.kind == "input"),
    )
    # the links of a job posted alone always lead outside
    graph_warnings = graph.warnings(links) if job_posted_alone(description.name) is None else []
    warnings = [*graph_warnings, *resolver.warnings]
    return Resolved(composition, warnings, resolver.files, graph)


def _stop_at_many(problems: Sequence[Problem], name: str, line_of: LineOf | None) -> None:
    if len(problems) >= MOST_PROBLEMS:
        refuse_problems(problems, name, line_of)


def refuse_problems(problems: Iterable[Problem], name: str, line_of: LineOf | None) -> None:
    """Raise InvalidError if there are any problems. Their paths and lines refer to the user's
    document, which for a job posted alone is the job itself."""
    alone = job_posted_alone(name)
    located = []
    for problem in islice(problems, MOST_PROBLEMS):
        path = problem.path if alone is None else _OF_ONE.sub("", problem.path)
        located.append(replace(problem, path=path, line=line_of(path) if line_of else problem.line))
    if located:
        more = f" (and {len(located) - 1} more)" if len(located) > 1 else ""
        noun = f"composition {name}" if alone is None else f"job {alone}"
        raise InvalidError(f"cannot accept {noun}: {located[0]}{more}", located)


_ENTRY_HINTS = 3
"""In so many faults of a document entries are suggested: files may hold many, with long names."""

_OF_ONE = re.compile(r"^jobs\[0\]\.?")


class _Resolver:
    """Collects problems, warnings and the graph while jobs are resolved one by one."""

    def __init__(
        self,
        sites: Mapping[str, Site],
        find_file: FindFile,
        number_carriers: Mapping[str, bool | None] | None,
    ) -> None:
        self.problems: list[Problem] = []
        self.warnings: list[str] = []
        self.nodes: list[Node] = []
        self.ends: list[End] = []
        self.files: dict[str, Path] = {}
        self._sites = sites
        self._engines = {site.spe.address: site for site in sites.values() if site.spe.address}
        self._brokers = {site.broker.address: site for site in sites.values()}
        self._find_file = find_file
        self._files_by_path: dict[str, JobFile | str] = {}
        self._number_carriers = number_carriers
        self._entry_faults = 0
        self._judged: dict[tuple[str, str], list[str]] = {}

    def job(self, job: JobDescription, index: int) -> Job | None:
        """Resolve a job; None if it has a problem."""
        path = f"jobs[{index}]"
        before = len(self.problems)
        site = self._site(path, job)
        source = self._broker_site(path, "source", job.source_broker, job.source_site, site)
        sink = self._broker_site(path, "sink", job.sink_broker, job.sink_site, site)
        artifact = self._artifact(path, job, site)
        self._check_args(path, job)
        self._check_topic(f"{path}.source_topic", source, job.source_topic)
        self._check_topic(f"{path}.sink_topic", sink, job.sink_topic)
        self._check_delivery(path, job, source, sink)
        self._check_link(job, sink)
        self._add_node(job, index, site, source, sink)
        if len(self.problems) > before or not (site and source and sink and artifact):
            return None
        self.files[artifact.sha256] = artifact.file
        resolved = Job(
            job_name=job.job_name,
            site=site.name,
            source=Link(source.name, job.source_topic),
            sink=Link(sink.name, job.sink_topic),
            source_broker=source.broker.address,
            sink_broker=sink.broker.address,
            entry_class=job.entry_class,
            artifact=artifact.sha256,
            artifact_kind=artifact.kind,
            **job.options(),
        )
        if (fault := rendered_fault(resolved)) is not None:
            self._problem(f"{path}.args", fault)
            return None
        if not reports_numbers(resolved):
            self.warnings.append(
                f"job {job.job_name} has placeholders in its args: unless it reports its sequence"
                " numbers anyway, speck cannot determine when its links are drained, how far it"
                " lags, or which messages came twice"
            )
        return resolved

    def end(self, kind: str, port: Port, index: int) -> None:
        """Resolve a declared input or output."""
        path = f"{kind}s[{index}]"
        if port.site is not None:
            site = self._find_site(f"{path}.site", port.site)
        else:
            site = self._find_site_of_broker(f"{path}.broker", port.broker or "")
        end = end_of(kind, port, index)
        if site is not None:
            end = replace(end, link=Link(site.name, port.topic))
        self._check_topic(f"{path}.topic", site, port.topic)
        self.ends.append(end)

    def readers(self) -> Iterable[Reader]:
        """The outside readers whose sessions are to be reserved."""
        for end in self.ends:
            if end.client_id is not None:
                yield Reader(end.client_id, end.link, end.link.site)

    def check_slots(self, jobs: Iterable[Job | None], slots: Slots) -> None:
        """Check that each site's engine has enough slots for its jobs."""
        needed: dict[str, int] = {}
        overfull: dict[str, int] = {}
        for index, job in enumerate(jobs):
            if job is None or job.state is DesiredState.STOPPED or self._runs_beside(job):
                continue
            needed[job.site] = needed.get(job.site, 0) + job.parallelism
            free = slots.free.get(job.site)
            if free is not None and needed[job.site] > free + slots.held.get(job.site, 0):
                overfull.setdefault(job.site, index)
        for site, index in overfull.items():
            usable = (slots.free[site] or 0) + slots.held.get(site, 0)
            message = (
                f"too few free slots at site {site}: its jobs need {needed[site]}, "
                f"{usable} are free or held by this composition"
            )
            self.problems.append(Problem(f"jobs[{index}].parallelism", message))
        for site in sorted(needed):
            if slots.free.get(site) is None:
                self.warnings.append(
                    f"slots of site {site} are not known; its jobs need {needed[site]}"
                )

    def _runs_beside(self, job: Job) -> bool:
        """Whether a job takes no slots of its site's engine, since another runs it."""
        engine = self._sites[job.site].spe
        return find_taker(engine, job.artifact_kind) is not engine

    def _problem(self, path: str, message: str) -> None:
        self.problems.append(Problem(path, message))

    def _site(self, path: str, job: JobDescription) -> Site | None:
        if job.site is not None:
            return self._find_site(f"{path}.site", job.site)
        address = normalise_address(job.spe_address or "")
        site = self._engines.get(address)
        if site is None:
            message = f"no registered site has the engine {address}; {_REGISTER}"
            self._problem(f"{path}.spe_address", message)
        return site

    def _broker_site(
        self, path: str, side: str, address: str | None, name: str | None, default: Site | None
    ) -> Site | None:
        """The site of the job's source or sink broker; by default the job's own site."""
        if name is not None:
            return self._find_site(f"{path}.{side}_site", name)
        if address is not None:
            return self._find_site_of_broker(f"{path}.{side}_broker", address)
        return default

    def _find_site(self, path: str, name: str) -> Site | None:
        site = self._sites.get(name)
        if site is None:
            hint = suggest(name, self._sites, _REGISTER)
            self._problem(path, f"no registered site is named {name}; {hint}")
        return site

    def _find_site_of_broker(self, path: str, address: str) -> Site | None:
        address = normalise_address(address)
        site = self._brokers.get(address)
        if site is None:
            self._problem(path, f"no registered site has the broker {address}; {_REGISTER}")
        return site

    def _artifact(self, path: str, job: JobDescription, site: Site | None) -> Artifact | None:
        """Find the file, once for each job_path; None unless its engine can start a job from it."""
        if job.job_path not in self._files_by_path:
            try:
                self._files_by_path[job.job_path] = self._find_file(job.job_path)
            except (InvalidError, NotFoundError) as exc:
                self._files_by_path[job.job_path] = str(exc)
        file = self._files_by_path[job.job_path]
        if isinstance(file, str):
            self._problem(f"{path}.job_path", file)
            return None
        kind = find_kind(file.sha256, file.file)
        if kind is None:
            self._problem(f"{path}.job_path", "the file is nothing that an engine could run")
            return None
        artifact = Artifact(file.sha256, file.file, kind)
        return artifact if site is None or self._can_start(path, job, site, artifact) else None

    def _can_start(self, path: str, job: JobDescription, site: Site, artifact: Artifact) -> bool:
        """Have the engine's binder judge the file."""
        hint = self._entry_faults < _ENTRY_HINTS
        engine = find_taker(site.spe, artifact.kind)
        if job.engine is not None and job.engine != engine.kind:
            why = _describe_other(job.engine, site, artifact.kind, engine.kind)
            self._problem(f"{path}.engine", why)
            return False
        judgement = judge_artifact(engine.kind, artifact, job.entry_class, hint=hint)
        if judgement.fault is not None:
            self._entry_faults += judgement.at_entry
            where = "entry_class" if judgement.at_entry else "job_path"
            self._problem(f"{path}.{where}", judgement.fault)
            return False
        if judgement.warning is not None:
            key = job.job_path, judgement.warning
            self._judged.setdefault(key, []).append(job.job_name)
        return True

    def _check_topic(self, path: str, site: Site | None, topic: str) -> None:
        """Whether the broker of a site takes a topic; its kind decides."""
        if site is not None and (fault := topic_fault(site.broker.kind, topic)) is not None:
            self._problem(path, fault)

    def _check_args(self, path: str, job: JobDescription) -> None:
        for index, fault in args_faults(job.args).items():
            self._problem(f"{path}.args[{index}]", fault)
        if (link_problem := link_fault(job.link, job.args)) is not None:
            self._problem(f"{path}.link", link_problem)

    def _check_delivery(
        self, path: str, job: JobDescription, source: Site | None, sink: Site | None
    ) -> None:
        if job.delivery is not Delivery.EXACTLY_ONCE or self._number_carriers is None:
            return
        addresses = dict.fromkeys(site.broker.address for site in (source, sink) if site)
        for address in addresses:
            carries_numbers = self._number_carriers.get(address)
            if carries_numbers is None:
                self.warnings.append(
                    f"whether the broker {address} has the capability `numbers` is not known; "
                    f"job {job.job_name} needs it for exactly_once"
                )
            elif not carries_numbers:
                message = (
                    f"exactly_once needs the capability `numbers`, which the broker {address} does"
                    " not have"
                )
                self._problem(f"{path}.delivery", message)

    def _check_link(self, job: JobDescription, sink: Site | None) -> None:
        if job.link.linger_ms and job.link.batch_records == 1:
            self.warnings.append(
                f"job {job.job_name} sends each record at once: linger_ms of its link has no"
                " effect while batch_records is 1"
            )
        if not job.link.in_batches or sink is None:
            return
        if (self._number_carriers or {}).get(sink.broker.address) is False:
            self.warnings.append(
                f"job {job.job_name} sends its records one by one: batches need the capability"
                f" `numbers`, which the broker {sink.broker.address} does not have"
            )

    def warn_of_artifacts(self) -> None:
        """Say once for each file what the engines' binders say of it."""
        for (job_path, warning), names in islice(self._judged.items(), MOST_PROBLEMS):
            others = f" and {len(names) - 1} more" if len(names) > 1 else ""
            self.warnings.append(f"the file of job {names[0]}{others} ({cut(job_path)}) {warning}")

    def check_batches(self, own: Sequence[Job], others: Iterable[Job]) -> None:
        """Warn about readers of batched links that may be unable to split batches."""
        if not any(job.link.in_batches or not reports_numbers(job) for job in own):
            return
        warnings = self._warn_of_batches([*own, *others], {job.job_name for job in own})
        self.warnings += islice(warnings, MOST_PROBLEMS)

    def _warn_of_batches(self, jobs: Sequence[Job], own: Set[str]) -> Iterator[str]:
        """A warning for each output, and for each pair of a writer and a reader of which one is
        among `own`: there may be very many."""
        outside = {end.link for end in self.ends if end.kind == "output"}
        foreign: dict[Link, list[Job]] = {}
        for job in jobs:
            if not reports_numbers(job):
                foreign.setdefault(job.source, []).append(job)
        must_split = "must split them (docs/guarantees.md says how)"
        for job in jobs:
            if not job.link.in_batches:
                continue
            sends = f"job {job.job_name} sends batches to {job.sink.topic} at {job.sink_site}"
            if job.sink in outside:
                yield f"{sends}, an output: its readers {must_split}"
            for reader in foreign.get(job.sink, ()):
                if job.job_name in own or reader.job_name in own:
                    yield (
                        f"{sends}, which job {reader.job_name} reads: since it has placeholders in"
                        f" its args, it {must_split} by itself"
                    )

    def _add_node(
        self,
        job: JobDescription,
        index: int,
        site: Site | None,
        source: Site | None,
        sink: Site | None,
    ) -> None:
        """Add the job to the graph; what cannot be resolved stays as its user wrote it."""
        node = node_of(job, index)
        if site is not None:
            node = replace(node, site=site.name)
        if source is not None:
            node = replace(node, source=Link(source.name, job.source_topic))
        if sink is not None:
            node = replace(node, port=(Link(sink.name, job.sink_topic),))
        self.nodes.append(node)


def _describe_other(wanted: str, site: Site, kind: ArtifactKind, taker: str) -> str:
    """Why a job does not run on the engine that it names."""
    if wanted in (each.kind for each in site.spe.all):
        return f"at site {site.name} an engine of kind {taker} runs files of kind {kind}"
    return (
        f"site {site.name} has no engine of kind {wanted}; one that is reached through the site's"
        f" agent is added with `speck site update {site.name} --beside {wanted}`"
    )
