"""The policy: what lies within the scopes of a token.

One rule: a thing lies inside exactly if everything that it names does. A job names its composition
(one posted alone: itself), the sites of its engine and of both brokers, and both topics. A
composition names all that its newest revision and its deployed jobs name, and its inputs and
outputs. Only what lies inside is shown, changed or removed.

What is stored is decided on by its name (`has_job`, ...); what a request describes anew is
refused with its problems (`refuse_composition`, ...).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from speck.binding import normalise_address
from speck.errors import ConflictError, ForbiddenError, InvalidError, NotFoundError, Problem
from speck.model.analysis import Analysis, AnalysisHead
from speck.model.analysis_result import AnalysisResult
from speck.model.artifact import ArtifactUse, UsedArtifact
from speck.model.change import ChangeHead
from speck.model.composition import (
    CompositionDescription,
    Head,
    Port,
    composition_of_one,
    job_posted_alone,
    title,
)
from speck.model.event import Event
from speck.model.job import Job, JobDescription
from speck.model.plan_outline import OperationOutcome
from speck.model.scopes import Scopes
from speck.service.autopilot import AutopilotView
from speck.store.records import Records

_KEPT = 2000
"""Revisions of which the names are kept in memory."""


@dataclass(frozen=True, slots=True)
class _Name:
    """A site (by its name, or the address of its engine or broker) or a topic that a description
    names, and where: `field` is like `jobs[2].sink_topic`."""

    field: str
    kind: str  # site, engine, broker or topic
    value: str


class AccessPolicy:
    """Decides for all tokens."""

    def __init__(self, records: Records, operations: Callable[[str], Iterable[OperationOutcome]]):
        """`operations` returns the operations of a change by its id."""
        self.records = records
        self.operations = operations
        self._names: dict[tuple[str, int], dict[str, tuple[_Name, ...]]] = {}

    def reach_of(self, token: str | None, scopes: Scopes) -> Reach:
        """What a token may see and change."""
        return Reach(self, token, scopes)

    def names_in(self, scope: str, revision: int) -> Mapping[str, tuple[_Name, ...]] | None:
        """What a revision names, by job; under "" what its inputs and outputs name. None if there
        is no such revision."""
        names = self._names.get((scope, revision))
        if names is None:
            record = self.records.compositions.revision(scope, revision)
            if record is None:
                return None
            names = _collect_names(record.description)
            if len(self._names) >= _KEPT:
                self._names.clear()
            self._names[scope, revision] = names  # a revision never changes
        return names


@dataclass(frozen=True, slots=True)
class Reach:
    """What one token may see and change."""

    policy: AccessPolicy
    token: str | None
    scopes: Scopes

    @property
    def limited(self) -> bool:
        """Whether anything lies outside."""
        return self.scopes.limited

    # -- what is stored -------------------------------------------------------------------

    def has_site(self, name: str) -> bool:
        """Whether a site, registered or not, lies inside."""
        return self.scopes.has_site(name)

    def has_all_sites(self) -> bool:
        """Whether every registered site lies inside."""
        return all(map(self.has_site, self._records.sites.all()))

    def has_link(self, site: str, topic: str) -> bool:
        """Whether a link lies inside. A topic says nothing of a composition, so that a token which
        is limited to compositions, but not in its topics, has no links."""
        scopes = self.scopes
        if scopes.compositions is not None and scopes.topics is None:
            return False
        return scopes.has_site(site) and scopes.has_topic(topic)

    def has_composition(self, scope: str) -> bool:
        """Whether a composition is there and lies inside. `scope` may be the hidden name of a job
        posted alone."""
        if not self.limited:
            return True
        head = self._head(scope)
        if head is None or not self._has_name(scope):
            return False
        if self.scopes.topics is None and self.scopes.sites is None:
            return True
        names = self.policy.names_in(scope, head.revision)
        deployed = self._records.inventory(scope).jobs.values()
        return (
            names is not None
            and all(self._has_names(part) for part in names.values())
            and all(self._has_deployed(incarnation.job) for incarnation in deployed)
        )

    def has_job(self, job_name: str) -> bool:
        """Whether a job is there and lies inside."""
        if not self.limited:
            return True
        scope = self._records.compositions.owner(job_name)
        head = self._head(scope) if scope is not None else None
        if scope is None or head is None or not self._has_name(scope):
            return False
        names = self.policy.names_in(scope, head.revision) or {}
        incarnation = self._records.incarnations.get(scope, job_name)
        return self._has_names(names.get(job_name, ())) and (
            incarnation is None or self._has_deployed(incarnation.job)
        )

    def has_change(self, change_id: str) -> bool:
        """Whether a change is there and lies inside."""
        if not self.limited:
            return True
        head = self._records.changes.head(change_id)
        return head is not None and self.has_change_of(head)

    def has_change_of(self, head: ChangeHead) -> bool:
        """Whether a change lies inside, by its head: its composition's name, the sites of its
        operations, and what its revision names."""
        if not self.limited:
            return True
        scope, revision = head.scope, head.revision
        if not self._has_name(scope):
            return False
        if self.scopes.sites is not None and not all(
            self.has_site(operation.site)
            for operation in self.policy.operations(head.id)
            if operation.site
        ):
            return False
        names = self.policy.names_in(scope, revision) if revision is not None else None
        if names is not None:
            return all(self._has_names(part) for part in names.values())
        return self._vouches_for(scope) or (self.token is not None and head.by == self.token)

    def has_analysis(self, analysis_id: str) -> bool:
        """Whether an analysis is there and lies inside."""
        if not self.limited:
            return True
        head = self._records.analyses.get(analysis_id)
        return head is not None and self.has_analysis_of(head)

    def has_analysis_of(self, head: AnalysisHead) -> bool:
        """Whether an analysis lies inside: that of a composition. One of all jobs does not."""
        if not self.limited:
            return True
        return head.composition is not None and self.has_composition(head.composition)

    def show_analysis(self, analysis: Analysis) -> Analysis:
        """An analysis of a composition inside, without the sites outside and the forecasts of links
        that the composition does not join."""
        if not self.limited:
            return analysis
        result = analysis.result
        return replace(analysis, result=result and _show_result(self, result))

    def has_placement(self, placement_id: str) -> bool:
        """Whether a placement is there and lies inside."""
        if not self.limited:
            return True
        placement = self._records.placements.get(placement_id)
        return placement is not None and self.has_placement_of(placement.composition)

    def has_placement_of(self, composition: str) -> bool:
        """Whether a placement of a composition lies inside: it names every site."""
        if not self.limited:
            return True
        return self.has_all_sites() and self.has_composition(composition)

    def show_autopilot(self, autopilot: AutopilotView) -> AutopilotView:
        """An autopilot, without the log of its reasons unless every site lies inside: like
        placements, they name any site."""
        return autopilot if self.has_all_sites() else replace(autopilot, log=())

    def has_artifact(self, sha256: str) -> bool:
        """Whether an artifact is there and lies inside: those that this token has sent."""
        if not self.limited:
            return True
        artifact = self._records.artifacts.get(sha256)
        return artifact is not None and self.token is not None and artifact.by == self.token

    def has_use(self, use: ArtifactUse) -> bool:
        """Whether what uses an artifact lies inside."""
        if use.composition is not None:
            return self.has_composition(use.composition)
        return self.has_job(use.job_name or "")

    def show_artifact(self, artifact: UsedArtifact) -> UsedArtifact:
        """An artifact with those of its uses that lie inside; of its sender only this token is
        named."""
        if not self.limited:
            return artifact
        by = artifact.by if artifact.by == self.token else None
        return replace(artifact, by=by, uses=tuple(filter(self.has_use, artifact.uses)))

    def has_event(self, event: Event) -> bool:
        """Whether an event lies inside: all that it is about. One about nothing of these is about
        the installation."""
        if not self.limited:
            return True
        composition, job_name = event.composition, event.job_name
        site, change_id = event.site, event.change
        if site is not None and not self.has_site(site):
            return False
        if composition is not None:
            return self._has_or_had(composition)
        if job_name is not None:
            owner = self._records.compositions.owner(job_name)
            return self._has_or_had(owner or composition_of_one(job_name))
        return self.has_change(change_id) if change_id is not None else site is not None

    # -- what a request describes ---------------------------------------------------------

    def require_composition(self, name: str) -> None:
        """Raises NotFoundError, as for a name that is not there."""
        if not self.has_composition(name):
            raise NotFoundError(f"cannot find composition {name!r}")

    def require_analysis(self, analysis_id: str) -> None:
        """Raises NotFoundError, as for an id that is not there."""
        if not self.has_analysis(analysis_id):
            raise NotFoundError(f"cannot find analysis {analysis_id!r}")

    def require_all_sites(self, what: str) -> None:
        """Raises ForbiddenError unless every site lies inside; `what` completes "cannot"."""
        if self.limited and not self.has_all_sites():
            raise ForbiddenError(
                f"cannot {what} with token {self.token!r}: jobs may be moved to any site, and its"
                " scopes do not hold all of them"
            )

    def refuse_composition(self, description: CompositionDescription) -> None:
        """Raises ForbiddenError with every problem when a description, or what it would replace,
        does not lie inside; ConflictError for a name or client id that is taken; InvalidError for
        a site that is not there.

        Whether anything outside exists makes no difference to what is raised, except that names
        of jobs and client ids are one for all.
        """
        if not self.limited:
            return
        scope = description.name
        alone = job_posted_alone(scope)
        refusal = f"cannot change {title(scope)} with token {self.token!r}"
        if not self._has_name(scope):
            patterns = " ".join(self.scopes.compositions or ())
            raise ForbiddenError(f"{refusal}: its name is outside the token's scope {patterns!r}")
        self._refuse_names(refusal, _collect_names(description), alone)
        self._refuse_taken_names(description)
        self._refuse_taken_client_ids(description)
        if self._head(scope) is not None and not self.has_composition(scope):
            if not self._vouches_for(scope):
                raise ConflictError(
                    f"cannot use the name {alone or scope!r}: it is taken; choose another"
                )
            raise ForbiddenError(
                f"{refusal}: it uses topics or sites outside the token's scopes; an administrator,"
                " or a token without these limits, may change it"
            )

    def _refuse_names(
        self, refusal: str, names: Mapping[str, tuple[_Name, ...]], alone: str | None
    ) -> None:
        outside, unknown = [], []
        for name in (each for part in names.values() for each in part):
            field = name.field if alone is None else name.field.removeprefix("jobs[0].")
            if not self._has_names((name,)):
                outside.append(Problem(field, self._explain(name)))
            elif name.kind == "site" and name.value not in self._records.sites.all():
                unknown.append(Problem(field, f"no registered site is named {name.value}"))
        if outside:
            more = f" (and {len(outside) - 1} more)" if len(outside) > 1 else ""
            raise ForbiddenError(f"{refusal}: {outside[0]}{more}", outside)
        # `resolve` would suggest a name that is like it, which may be that of another's site
        if unknown and self.scopes.sites is not None:
            raise InvalidError(f"{refusal}: {unknown[0]}", unknown)

    def _explain(self, name: _Name) -> str:
        if name.kind in ("engine", "broker"):
            return f"no site within the token's scopes has the {name.kind} {name.value}"
        patterns = self.scopes.topics if name.kind == "topic" else self.scopes.sites
        scope = " ".join(patterns or ())
        return f"{name.kind} {name.value!r} is outside the token's scope {scope!r}"

    def _refuse_taken_names(self, description: CompositionDescription) -> None:
        for job in description.jobs:
            owner = self._records.compositions.owner(job.job_name)
            if owner is None or owner == description.name:
                continue
            if not self.has_composition(owner):
                raise ConflictError(
                    f"cannot use the job name {job.job_name!r}: it is taken; choose another name"
                )

    def _refuse_taken_client_ids(self, description: CompositionDescription) -> None:
        wanted = {port.client_id for port in description.outputs if port.client_id}
        for client_id in sorted(wanted):
            holders = {scope for scope, _ in self._records.sessions.of_client(client_id)}
            if not all(map(self.has_composition, holders - {description.name})):
                raise ConflictError(
                    f"cannot use the client id {client_id!r}: it is taken; choose another"
                )

    # -- names ----------------------------------------------------------------------------

    @property
    def _records(self) -> Records:
        return self.policy.records

    def _head(self, scope: str) -> Head | None:
        return self._records.compositions.head(scope)

    def _has_name(self, scope: str) -> bool:
        return self.scopes.has_composition(job_posted_alone(scope) or scope)

    def _has_or_had(self, scope: str) -> bool:
        """Whether a composition lies inside; one that is gone is judged by its name."""
        if self._head(scope) is not None:
            return self.has_composition(scope)
        return self._vouches_for(scope)

    def _vouches_for(self, scope: str) -> bool:
        """Whether the name alone says that something belongs to the token's user."""
        return self.scopes.compositions is not None and self._has_name(scope)

    def _has_names(self, names: Iterable[_Name]) -> bool:
        return all(
            self.scopes.has_topic(name.value) if name.kind == "topic" else self._has_place(name)
            for name in names
        )

    def _has_place(self, name: _Name) -> bool:
        if self.scopes.sites is None:
            return True
        if name.kind == "site":
            return self.has_site(name.value)
        address = normalise_address(name.value)
        return any(
            address == (site.spe if name.kind == "engine" else site.broker).address
            for site in self._records.sites.all().values()
            if self.has_site(site.name)
        )

    def _has_deployed(self, job: Job) -> bool:
        topics = (job.source.topic, *(link.topic for link in job.port))
        sites = (job.site, *job.link_sites)
        return all(map(self.scopes.has_topic, topics)) and all(map(self.has_site, sites))


def _show_result(reach: Reach, result: AnalysisResult) -> AnalysisResult:
    """The result of an analysis without the rows of sites and links outside."""
    links = {(each.broker_site, each.topic) for each in result.links}
    forecast = result.forecast
    return replace(
        result,
        sites=tuple(each for each in result.sites if reach.has_site(each.name)),
        bottlenecks=tuple(
            each for each in result.bottlenecks if each.kind != "site" or reach.has_site(each.name)
        ),
        forecast=forecast and tuple(each for each in forecast if (each.site, each.topic) in links),
        ranking=tuple(
            each for each in result.ranking if each.edge is None or reach.has_site(each.edge)
        ),
    )


def _collect_names(description: CompositionDescription) -> dict[str, tuple[_Name, ...]]:
    """What a description names, by job; under "" its inputs and outputs."""
    names = {
        job.job_name: tuple(_names_of(job, f"jobs[{index}]", _OF_JOB))
        for index, job in enumerate(description.jobs)
    }
    ports = [
        name
        for noun, some in (("inputs", description.inputs), ("outputs", description.outputs))
        for index, port in enumerate(some)
        for name in _names_of(port, f"{noun}[{index}]", _OF_PORT)
    ]
    return {**names, "": tuple(ports)}


def _names_of(entry: JobDescription | Port, path: str, kinds: Mapping[str, str]) -> Iterator[_Name]:
    for field, kind in kinds.items():
        value = getattr(entry, field)
        if value is not None:
            yield _Name(f"{path}.{field}", kind, value)


_OF_JOB = {
    "site": "site",
    "spe_address": "engine",
    "source_site": "site",
    "source_broker": "broker",
    "sink_site": "site",
    "sink_broker": "broker",
    "source_topic": "topic",
    "sink_topic": "topic",
}
_OF_PORT = {"site": "site", "broker": "broker", "topic": "topic"}
