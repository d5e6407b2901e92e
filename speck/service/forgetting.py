"""Removes jobs, compositions and sites from the store alone, when they cannot be removed otherwise.

No engine and no broker is called: what runs there goes on, and its sessions keep filling. Whatever
is left is named. The highest attempt of each job is kept, so that no engine job id is used again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

from speck.deploy.change_intent import put_removal
from speck.deploy.changes import ChangeRunner, Changes
from speck.errors import ConflictError, NotFoundError
from speck.model.composition import composition_of_one, title, visible_name
from speck.model.incarnation import Incarnation, Session
from speck.model.shown import Shown
from speck.service.agents import Agents
from speck.service.composition_locks import CompositionLocks
from speck.service.job_list import JobList
from speck.sites.connections import Connections
from speck.sites.site_polls import SitePolls
from speck.store.records import Records
from speck.store.tables import Batch

_NAMED = 10
"""The most leftovers that a refusal names."""


@dataclass(frozen=True, slots=True)
class LeftJob:
    """An engine job that may still run."""

    job_name: str
    site: str
    engine_job_id: Annotated[str, Shown("its id at the engine, where it may still run")]


@dataclass(frozen=True, slots=True)
class LeftSession:
    """A session whose queue keeps filling."""

    site: Annotated[str, Shown("the site of the broker")]
    client_id: str
    topic: str


@dataclass(slots=True)
class Leftovers:
    """What stays behind at engines, at brokers and in the service's folder of artifacts."""

    engine_jobs: list[LeftJob] = field(default_factory=list)
    sessions: list[LeftSession] = field(default_factory=list)
    artifacts: Annotated[frozenset[str], Shown("SHA-256 of each artifact")] = frozenset()

    def add(self, incarnations: Iterable[Incarnation], sessions: Iterable[Session]) -> None:
        for newest in incarnations:
            for each in _list_chain(newest):
                self.artifacts |= {each.job.artifact}
                if not each.ended and not each.void:
                    job = each.job
                    self.engine_jobs.append(LeftJob(job.job_name, job.site, each.engine_job_id))
        self.sessions += [
            LeftSession(each.site, each.client_id, each.link.topic) for each in sessions
        ]

    def __str__(self) -> str:
        parts = [
            *(f"engine job {j.engine_job_id} ({j.job_name}) at {j.site}" for j in self.engine_jobs),
            *(f"session {s.client_id} at {s.site}" for s in self.sessions),
            *(f"artifact {sha256[:8]}" for sha256 in sorted(self.artifacts)),
        ]
        more = [f"{len(parts) - _NAMED} more"] if len(parts) > _NAMED else []
        return ", ".join([*parts[:_NAMED], *more]) or "nothing"


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A job, composition or site that was forgotten, the changes that were ended for it, and what
    is left behind."""

    kind: Literal["job", "composition", "site"]
    name: str
    changes: Annotated[tuple[str, ...], Shown("ids of the changes that were ended for it")]
    left: Leftovers


class Forgetting:
    """Forgets by force. Each use case ends the changes under way that concern the object first, at
    their next safe point.

    Raises NotFoundError; ConflictError without `force`, naming what would be left, or while a call
    of a change is still under way.
    """

    def __init__(
        self,
        records: Records,
        changes: Changes,
        runner: ChangeRunner,
        locks: CompositionLocks,
        jobs: JobList,
        connections: Connections,
        polls: SitePolls,
        agents: Agents,
    ):
        self._records = records
        self._changes = changes
        self._runner = runner
        self._locks = locks
        self._jobs = jobs
        self._connections = connections
        self._polls = polls
        self._agents = agents

    def composition(self, name: str, *, force: bool, by: str | None = None) -> Forgotten:
        """Forget a composition, all its jobs and their sessions."""
        if visible_name(name) is None:
            raise NotFoundError(f"cannot find composition {name!r}")
        return self._forget_scope(name, "composition", name, force, by)

    def job(self, name: str, *, force: bool, by: str | None = None) -> Forgotten:
        """Forget a job. One of a composition stays part of its description: the next apply starts
        it as a new job, unless it is left out."""
        owner = self._jobs.owner(name)
        if owner is None:
            raise NotFoundError(f"cannot find job {name!r}")
        if owner == composition_of_one(name):
            return self._forget_scope(owner, "job", name, force, by)
        with self._locks.all_of([owner]):
            inventory = self._records.inventory(owner)
            sessions = [s for s in inventory.sessions if s.job_name == name]
            incarnation = inventory.jobs.get(name)
            leftovers = Leftovers()
            leftovers.add([incarnation] if incarnation else [], sessions)
            _refuse_unforced(f"job {name!r}", leftovers, force)
            ended = self._end_changes([owner])
            with self._noting([owner]):
                batch = self._records.incarnations.drop(owner, name)
                batch |= self._drop_sessions(owner, sessions)
                return self._write("job", name, batch, ended, leftovers, by, composition=owner)

    def site(self, name: str, *, force: bool, by: str | None = None) -> Forgotten:
        """Forget a site with the jobs at its engine and the sessions at its broker. Jobs of other
        sites stay known, also those that read or write its broker: an apply rewires them."""
        self._connections.site(name)
        scopes = self._find_scopes_using(name)
        with self._locks.all_of(scopes):
            leftovers = Leftovers()
            for scope in scopes:
                inventory = self._records.inventory(scope)
                here = [i for i in inventory.jobs.values() if name in _list_sites(i)]
                leftovers.add(
                    [each for each in here if each.job.site == name],
                    [session for session in inventory.sessions if session.site == name],
                )
            _refuse_unforced(f"site {name!r}", leftovers, force)
            ended = self._end_changes(scopes)
            with self._changes.placing, self._noting(scopes):
                batch: Batch = self._records.drop_site(name)
                for scope in scopes:
                    batch |= self._drop_at_site(scope, name)
                record = self._write("site", name, batch, ended, leftovers, by, site=name)
            self._polls.forget(name)
            self._agents.forget(name)
            return record

    # -- parts ----------------------------------------------------------------------------

    def _forget_scope(
        self,
        scope: str,
        kind: Literal["job", "composition"],
        name: str,
        force: bool,
        by: str | None,
    ) -> Forgotten:
        with self._locks.all_of([scope]):
            head = self._records.compositions.head(scope)
            if head is None:
                raise NotFoundError(f"cannot find {title(scope)}")
            inventory = self._records.inventory(scope)
            leftovers = Leftovers()
            leftovers.add(inventory.jobs.values(), inventory.sessions)
            _refuse_unforced(title(scope), leftovers, force)
            ended = self._end_changes([scope])
            with self._noting([scope]):
                inventory = self._records.inventory(scope)
                last_head = self._records.compositions.last_head(scope) or head
                batch = put_removal(self._records, last_head)
                for job_name in inventory.jobs:
                    batch |= self._records.incarnations.drop(scope, job_name)
                batch |= self._drop_sessions(scope, inventory.sessions)
                about = {"composition": name} if kind == "composition" else {"job_name": name}
                return self._write(kind, name, batch, ended, leftovers, by, **about)

    def _noting(self, scopes: Iterable[str]) -> AbstractContextManager[None]:
        """Hold the records of all sessions of these scopes."""
        sessions = (each for scope in scopes for each in self._records.sessions.of_scope(scope))
        return self._changes.session_locks.writing.all_of(each.client_id for each in sessions)

    def _end_changes(self, scopes: Iterable[str]) -> list[str]:
        """End the changes under way in these scopes; returns their ids."""
        changes = [self._runner.abandon(scope) for scope in scopes]
        return [change.id for change in changes if change is not None]

    def _find_scopes_using(self, site: str) -> list[str]:
        records = self._records
        scopes = {
            scope
            for (scope, _), incarnation in records.incarnations.all().items()
            if site in _list_sites(incarnation)
        }
        scopes |= {scope for scope, _ in records.sessions.at_broker_of(site)}
        return sorted(scopes | self._changes.find_scopes_using(site))

    def _drop_at_site(self, scope: str, site: str) -> Batch:
        """Drop the incarnations and sessions at a site. One elsewhere that has not run yet loses
        the incarnation before it, and with it the state, if that was at the site."""
        batch: Batch = {}
        inventory = self._records.inventory(scope)
        for job_name, incarnation in inventory.jobs.items():
            if incarnation.job.site == site:
                batch |= self._records.incarnations.drop(scope, job_name)
            elif site in incarnation.homes:
                stripped = _strip_bases(incarnation, site)
                batch |= self._records.incarnations.put(scope, stripped)
        sessions = [session for session in inventory.sessions if session.site == site]
        return batch | self._drop_sessions(scope, sessions)

    def _drop_sessions(self, scope: str, sessions: Collection[Session]) -> Batch:
        """Drop sessions, and what others of the scope know of them."""
        batch: Batch = {}
        gone = {session.client_id for session in sessions}

        def keep(name: str | None) -> str | None:
            return None if name in gone else name

        for session in self._records.sessions.of_scope(scope):
            if session in sessions:
                identity = (session.client_id, session.site)
                batch |= self._records.sessions.drop(scope, *identity)
                continue
            rest = replace(
                session,
                follows=keep(session.follows),
                followed_by=keep(session.followed_by),
                former=keep(session.former),
                instead_of=keep(session.instead_of),
            )
            if rest != session:
                batch |= self._records.sessions.put(scope, rest)
        return batch

    def _write(
        self,
        kind: Literal["job", "composition", "site"],
        name: str,
        batch: Batch,
        ended: list[str],
        leftovers: Leftovers,
        by: str | None,
        **about: str,
    ) -> Forgotten:
        who = f" by {by}" if by else ""
        message = f"{kind} {name} was forgotten{who}; left behind: {leftovers}"
        self._records.write(batch, self._records.events.make(kind, message, by=by, **about))
        return Forgotten(kind, name, tuple(ended), leftovers)


def _refuse_unforced(what: str, leftovers: Leftovers, force: bool) -> None:
    if not force:
        raise ConflictError(
            f"cannot forget {what} without --force (?force=true): it leaves behind {leftovers};"
            " a removal leaves nothing"
        )


def _list_chain(newest: Incarnation) -> Iterator[Incarnation]:
    """An incarnation and those before it whose state is still needed."""
    each: Incarnation | None = newest
    while each is not None:
        yield each
        each = each.base


def _list_sites(incarnation: Incarnation) -> set[str]:
    job = incarnation.job
    return {job.site, job.source_site, job.sink_site, *incarnation.homes}


def _strip_bases(incarnation: Incarnation, site: str) -> Incarnation:
    base = incarnation.base
    if base is None:
        return incarnation
    rest = _strip_bases(base, site)
    return replace(incarnation, base=rest.base if rest.job.site == site else rest)
