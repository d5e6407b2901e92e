"""Jobs posted alone (the paper's Job Management API), and the list of all jobs.

Each is a scope of its own and goes through the same planner and executor as a composition.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import NamedTuple

from speck.binding import EngineCapability
from speck.clock import Clock, rfc3339
from speck.deploy.changes import Running
from speck.deploy.deployer import Deployer
from speck.deploy.locks import NamedLocks
from speck.errors import (
    ConflictError,
    EngineRefusedError,
    NotFoundError,
    PermanentError,
    SpeckError,
    at_site,
)
from speck.model.change import Cause, Change, ChangeState
from speck.model.composition import CompositionDescription
from speck.model.incarnation import Incarnation
from speck.model.job import JobDescription
from speck.model.values import JsonObject
from speck.service.status import StatusViews
from speck.sites.connections import Connections
from speck.sites.poll_cache import PATIENCE_S, fresh_for
from speck.spec.resolve import LineOf
from speck.spec.schema import dump_job, job_from_data
from speck.store.records import Records, scope_of
from speck.store.tables import Batch

AT_ONCE = 256
"""Jobs of a list that are looked at together."""


class Answer(NamedTuple):
    """A use case's result as HTTP knows it."""

    status: int
    body: JsonObject
    location: str | None = None


class Jobs:
    """All jobs; those posted alone can be changed here."""

    def __init__(
        self,
        records: Records,
        connections: Connections,
        deployer: Deployer,
        views: StatusViews,
        clock: Clock,
        measured: Callable[[Incarnation], JsonObject],
    ):
        """`measured` gives what was last collected of an incarnation's work."""
        self._records = records
        self._connections = connections
        self._deployer = deployer
        self._status = views
        self._clock = clock
        self._measured = measured
        self._locks = NamedLocks()
        self._read: dict[str, tuple[int, Mapping[str, JobDescription]]] = {}
        self.owning = threading.RLock()
        """Held while a name is checked to be free and taken, by a job or a composition."""

    # -- reading --------------------------------------------------------------------------

    def all(self, site: str | None = None, state: str | None = None) -> list[JsonObject]:
        """Every job by name; filtered."""
        return list(self.behind("", site, state, at_once=1_000_000))

    def behind(
        self,
        after: str,
        site: str | None = None,
        state: str | None = None,
        at_once: int = AT_ONCE,
    ) -> Iterator[JsonObject]:
        """Those whose names follow `after`; filtered. They are looked at `at_once`: who wants few
        of many does not wait for the others."""
        names = sorted((name, scope) for name, scope in self._named() if name > after)
        # all of them: looks as old as those at all sites, waited for once
        few = at_once <= AT_ONCE
        fresh_s = 0.0 if few else fresh_for(len(self._records.sites()))
        until = None if few else self._clock.monotonic() + PATIENCE_S
        for first in range(0, len(names), at_once):
            scopes: dict[str, list[str]] = {}
            for name, scope in names[first : first + at_once]:
                scopes.setdefault(scope, []).append(name)
            found = [
                job
                for scope, some in scopes.items()
                for job in self._some(scope, some, fresh_s, until)
            ]
            for job in sorted(found, key=lambda job: str(job["job_name"])):
                if site in (None, job["site"]) and state in (None, job["state"]):
                    yield job

    def _named(self) -> Iterator[tuple[str, str]]:
        """(name, scope) of every job, those of compositions that are still being removed too."""
        for name, _ in self._records.alone_jobs.items():
            yield name, scope_of(None, name)
        for head in self._records.heads.values():
            if not head.get("deleted"):
                left = self._records.inventory(head["name"]).jobs.keys()
                for name in self._descriptions(head).keys() | left:
                    yield name, head["name"]

    def _some(
        self,
        scope: str,
        names: Collection[str],
        fresh_s: float = 0.0,
        until: float | None = None,
    ) -> list[JsonObject]:
        """The Job shape of some jobs of one scope; of those that are gone by now, none. `fresh_s`,
        `until`: as for `StatusViews.jobs`."""
        if scope.startswith("~"):
            record = self._records.alone_jobs.get(scope[1:])
            if record is None:
                return []
            return self._status.jobs(
                {scope[1:]: job_from_data(record["description"])},
                None,
                record["revision"],
                last_change=record["last_change"],
                fresh_s=fresh_s,
                until=until,
            )
        head = self._records.heads.get(scope)
        if head is None or head.get("deleted"):
            return []
        return self.of_composition(head, names, fresh_s, until)

    def of_composition(
        self,
        head: JsonObject,
        only: Collection[str] | None = None,
        fresh_s: float = 0.0,
        until: float | None = None,
    ) -> list[JsonObject]:
        """The jobs of a composition's newest revision, or `only` some of them; `fresh_s`, `until`:
        as for `StatusViews.jobs`."""
        return self._status.jobs(
            self._descriptions(head),
            head["name"],
            head["revision"],
            last_change=head.get("last_change"),
            only=only,
            fresh_s=fresh_s,
            until=until,
        )

    def _descriptions(self, head: JsonObject) -> Mapping[str, JobDescription]:
        """Of the newest revision, by name; a revision never changes, and is read once."""
        name, number = head["name"], head["revision"]
        known = self._read.get(name)
        if known is None or known[0] != number:
            revision = self._records.revisions.get(name, number)
            assert revision is not None
            jobs = [job_from_data(data) for data in revision["description"]["jobs"]]
            known = self._read[name] = number, {job.job_name: job for job in jobs}
        return known[1]

    def get(self, name: str) -> JsonObject:
        """The Job shape. Raises NotFoundError."""
        owner = self.owner(name)
        for scope in (scope_of(None, name), owner):
            for job in self._some(scope, [name]) if scope is not None else ():
                return job
        raise NotFoundError(f"cannot find job {name!r}")

    def owner(self, name: str) -> str | None:
        """The composition whose newest revision names this job."""
        record = self._records.owners.get(name)
        return str(record["composition"]) if record else None

    def exceptions(self, name: str) -> list[JsonObject]:
        """The engine's own words on the job's failures, newest first."""
        deployed = self._deployed(name)
        with _named(deployed.job.site):
            engine = self._connections.engine(deployed.job.site)
            found = engine.exceptions(deployed.engine_job_id)
        return [
            {
                "at": rfc3339(datetime.fromtimestamp(failure.at_ms / 1000, UTC)),
                "name": failure.name,
                "trace": failure.trace,
                "task": failure.task,
                "reason": failure.reason,
            }
            for failure in found
        ]

    def metrics(self, name: str) -> JsonObject:
        """`{job_name, site, metrics, ...}`: the engine's counters by operator-scoped name, and
        the rates that were last collected (see `Sampler.job`)."""
        deployed = self._deployed(name)
        with _named(deployed.job.site):
            engine = self._connections.engine(deployed.job.site)
            metrics = dict(engine.metrics(deployed.engine_job_id))
        told = self._measured(deployed)
        about = {"job_name": name, "composition": self.owner(name), "site": deployed.job.site}
        return {**about, **told, "metrics": metrics}

    def savepoint(self, name: str, wait_s: float) -> Answer:
        """Take a savepoint of a running job and wait for it."""
        deployed = self._deployed(name)
        site = self._connections.site(deployed.job.site)
        trigger = self._clock.new_id()
        target = (
            f"{site.state_uri.rstrip('/')}/savepoints/{name}/{trigger}" if site.state_uri else None
        )
        with _named(site.name):
            engine = self._connections.engine(site.name)
            if EngineCapability.SAVEPOINTS not in engine.capabilities:
                raise ConflictError(
                    f"cannot take a savepoint of {name}: the engine of site {site.name} keeps no"
                    " state on request"
                )
            engine.savepoint(deployed.engine_job_id, target, trigger)
            until = self._clock.monotonic() + wait_s
            while True:
                progress = engine.savepoint_progress(deployed.engine_job_id, trigger)
                body = {"job_name": name, "id": trigger, "location": progress.location}
                if progress.location is not None:
                    return Answer(201, {**body, "state": "done"})
                if progress.done:
                    raise EngineRefusedError(
                        f"cannot take a savepoint of {name}: {progress.failure}"
                    )
                if self._clock.monotonic() > until:
                    return Answer(202, {**body, "state": "running"})
                self._clock.wait(0.1)

    def _deployed(self, name: str) -> Incarnation:
        scope = scope_of(self.owner(name), name)
        deployed = self._records.deployed(scope, name)
        if deployed is None:
            self.get(name)
            raise ConflictError(f"cannot ask the engine about {name}: it was not started yet")
        return deployed

    # -- changing -------------------------------------------------------------------------

    def post(
        self, description: JobDescription, wait_s: float, line_of: LineOf | None = None
    ) -> Answer:
        """201 running, 202 under way, 200 the same is there and nothing is to be done for it.

        One that is there and does not run as it should is started again. Raises ConflictError
        when another is there.
        """
        name = description.job_name
        with self._locks[name]:
            self._refuse_owned(name)
            record = self._records.alone_jobs.get(name)
            if record is not None:
                self._refuse_another(description, record)
            running = self._deployer.changes.under_way(scope_of(None, name))
            if running is None or record is None:
                made = self._start(description, record, line_of)
                if made is None:
                    return Answer(200, self.get(name))
                running = made
        return self._settled(running, name, wait_s, created=True, new=record is None)

    def _refuse_another(self, description: JobDescription, record: JsonObject) -> None:
        """Raises ConflictError unless the job that is there is the same, with the same jar."""
        name, another = description.job_name, None
        if record["description"] != dump_job(description):
            another = "another of that name is there"
        elif "jar" in record and record["jar"] != self._deployer.jar_of(description.job_path):
            another = "it is there with another jar of the same path"
        if another is not None:
            raise ConflictError(
                f"cannot add job {name!r}: {another}; change it with PUT /jobs/{name}"
            )

    def put(
        self,
        name: str,
        description: JobDescription,
        wait_s: float,
        line_of: LineOf | None = None,
    ) -> Answer:
        """Update or move. Raises NotFoundError, ConflictError for a composition's job."""
        with self._locks[name]:
            self._refuse_owned(name)
            record = self._records.alone_jobs.get(name)
            if record is None:
                raise NotFoundError(f"cannot find job {name!r}; add it with POST /jobs")
            running = self._start(description, record, line_of)
        if running is None:
            return Answer(200, self.get(name), f"/jobs/{name}")
        return self._settled(running, name, wait_s, created=False)

    def delete(self, name: str, wait_s: float) -> Answer:
        """204 when it is gone, 202 while that is under way."""
        with self._locks[name]:
            self._refuse_owned(name)
            if self._records.alone_jobs.get(name) is None:
                raise NotFoundError(f"cannot find job {name!r}")
            running = self._remove(name)
        if not running.ended(wait_s):
            return Answer(202, _accepted(running.change), f"/changes/{running.change.id}")
        if running.change.state is not ChangeState.DONE:
            raise running.failure or PermanentError(f"cannot remove {name}: {running.change.error}")
        return Answer(204, {})

    def _start(
        self, description: JobDescription, record: JsonObject | None, line_of: LineOf | None
    ) -> Running | None:
        """Plan and start; None when there is nothing to do and nothing new to remember."""
        name = description.job_name
        scope = scope_of(None, name)
        changes = self._deployer.changes
        changes.in_the_way(scope, _what(name))
        alone = CompositionDescription(name=name, jobs=(description,))
        prepared = self._deployer.prepare(scope, alone, line_of)
        superseded = changes.make_way(scope, _what(name))
        if superseded is not None:  # what it did until its end counts
            prepared = self._deployer.prepare(scope, alone, line_of, stopped=superseded.stopped)
        self._deployer.accept(prepared)
        told = {
            "description": dump_job(description),
            "jar": prepared.jars[description.job_path],
        }
        same = record is not None and all(record.get(key) == told[key] for key in told)
        if same and prepared.plan.empty and superseded is None:
            return None
        before = record["revision"] if record else self._last_revision(name)
        revision = before if same else before + 1
        stopped = superseded.stopped if superseded else frozenset()
        change = changes.new(prepared.plan, revision, name, left_stopped=stopped)
        accepted: Batch = {
            self._records.alone_jobs.key(name): {
                **told,
                "revision": revision,
                "at": rfc3339(self._clock.now()),
                "last_change": change.id,
            },
            self._records.alone_revisions.key(name): {"revision": revision},
            **changes.superseded(superseded, change),
        }
        with self.owning:
            self._refuse_owned(name)
            return changes.start(change, accepted, prepared.sites)

    def _last_revision(self, name: str) -> int:
        record = self._records.alone_revisions.get(name)
        return int(record["revision"]) if record else 0

    def _remove(self, name: str) -> Running:
        scope = scope_of(None, name)
        changes = self._deployer.changes
        superseded = changes.make_way(scope, _what(name))
        record = self._records.alone_jobs.get(name)
        prepared = self._deployer.prepare_removal(scope, None)
        change = changes.new(prepared.plan, None, name, Cause.REMOVE)
        leaving = {**(record or {}), "last_change": change.id, "removing": True}
        told: Batch = {self._records.alone_jobs.key(name): leaving} if record else {}
        accepted = told | changes.superseded(superseded, change)
        with self.owning:
            self._refuse_owned(name)  # a composition may have taken it in meanwhile
            return changes.start(change, accepted, prepared.sites)

    def mend(self, name: str) -> Running | None:
        """Bring a job posted alone back to how it was accepted last; see `Compositions.mend`."""
        scope, changes = scope_of(None, name), self._deployer.changes
        with self._locks[name]:
            record = self._records.alone_jobs.get(name)
            if record is None or record.get("removing") or changes.under_way(scope):
                return None
            if changes.was_cancelled(record["last_change"]):
                return None
            description = job_from_data(record["description"])
            alone = CompositionDescription(name=name, jobs=(description,))
            jars = {description.job_path: record["jar"]}
            prepared = self._deployer.prepare(scope, alone, jars=jars)
            self._deployer.accept(prepared)
            if prepared.plan.empty:
                return None
            change = changes.new(prepared.plan, record["revision"], name, Cause.REPAIR)
            told: Batch = {self._records.alone_jobs.key(name): {**record, "last_change": change.id}}
            with self.owning:
                if self.owner(name) is not None:  # a composition has taken it in meanwhile
                    return None
                return changes.start(change, told, prepared.sites)

    def _settled(
        self, running: Running, name: str, wait_s: float, *, created: bool, new: bool = False
    ) -> Answer:
        """What became of a change; of a `new` job that could not be started nothing is left."""
        change = running.change
        if not running.ended(wait_s):
            return Answer(202, _accepted(change), f"/changes/{change.id}")
        if change.state is ChangeState.DONE:
            return Answer(201 if created else 200, self.get(name), f"/jobs/{name}")
        error: SpeckError = running.failure or ConflictError(
            change.error or f"cannot start {name}: change {change.id} was cancelled",
            change=change.id,
        )
        if new:
            self._clean_up(name, change)
        raise error

    def _clean_up(self, name: str, failed: Change) -> None:
        """Leave nothing of a job that could not be started."""
        with self._locks[name], suppress(ConflictError):  # or another request changes it by now
            record = self._records.alone_jobs.get(name)
            if record is None or record["last_change"] != failed.id:
                return
            running = self._remove(name)
            running.over.wait(10.0)

    def _refuse_owned(self, name: str) -> None:
        owner = self.owner(name)
        if owner is not None:
            raise ConflictError(
                f"cannot change job {name!r} alone: composition {owner!r} owns it;"
                " apply a new version of that"
            )


@contextmanager
def _named(site: str) -> Iterator[None]:
    """Let what the site's engine raises name the site."""
    try:
        yield
    except SpeckError as error:
        raise at_site(error, site) from error


def _what(name: str) -> str:
    return f"job {name!r}"


def _accepted(change: Change) -> JsonObject:
    return {"change": change.id, "revision": change.revision, "state": str(change.state)}
