"""Compositions (the paper's Composition Management API): desired state in, change out."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace

from speck.clock import Clock, never, rfc3339
from speck.deploy.admission import (
    Admission,
    describe_removal,
    find_mass_removal,
    refuse_mass_removal,
)
from speck.deploy.adoption import take_in
from speck.deploy.changes import ChangeRunner, Changes, Running
from speck.deploy.cycles import list_links
from speck.deploy.deployer import Deployer, PreparedPlan
from speck.deploy.dropping import refuse_dropping
from speck.deploy.locks import NamedLocks
from speck.deploy.planner.queues import keep_queues
from speck.errors import ConflictError, NotFoundError
from speck.model.change import Cause, Change, ChangeState, plan_to_json
from speck.model.composition import (
    CompositionDescription,
    job_posted_alone,
    title,
    visible_name,
)
from speck.model.plan import Plan
from speck.model.values import SPECK, JsonObject, cut
from speck.monitor.requirements_watch import Requirements
from speck.service.answer import Answer
from speck.service.idempotency import FirstAnswers
from speck.service.job_list import JobList
from speck.spec.addresses import with_addresses
from speck.spec.expansion import text_bytes
from speck.spec.resolve import LineOf
from speck.spec.schema import composition_as_stored, dump_composition
from speck.spec.topology import Graph
from speck.store.records import Records
from speck.store.tables import Batch


@dataclass(frozen=True, slots=True)
class ApplyRequest:
    """How an apply was asked for. `if_match` is a revision number; `by` a token's name, and
    `sees` whether that token may be told of a composition. `gives_up`: nobody waits any more,
    though `wait_s` has not passed.

    With `drop_queues` the queues of outside readers and of jobs that do not run may be dropped, and
    what jobs have not taken within `drain_limit_s` seconds (None: `Config.drain_limit_s`); with
    `force` most jobs may be removed. Only with `any_client_id` may outputs name clients that speck
    might not have created.
    """

    wait_s: float = 0.0
    dry_run: bool = False
    adopt: bool = False
    drop_queues: bool = False
    drain_limit_s: float | None = None
    force: bool = False
    if_match: int | None = None
    idempotency_key: str | None = None
    by: str | None = None
    any_client_id: bool = True
    line_of: LineOf | None = None
    sees: Callable[[str], bool] = lambda scope: True
    gives_up: Callable[[], bool] = never


class Compositions:
    """All compositions, their revisions and plans."""

    def __init__(
        self,
        records: Records,
        deployer: Deployer,
        jobs: JobList,
        changes: Changes,
        runner: ChangeRunner,
        admission: Admission,
        clock: Clock,
        requirements: Requirements,
    ):
        self._records = records
        self._deployer = deployer
        self._jobs = jobs
        self._changes = changes
        self._runner = runner
        self._clock = clock
        self._locks = NamedLocks()
        self._first_answers = FirstAnswers(records, clock)
        self._admission = admission
        self._owning = threading.RLock()  # while a job's name is checked to be free, and taken
        self._requirements = requirements

    # -- reading --------------------------------------------------------------------------

    def all(self) -> list[JsonObject]:
        """`{name, revision, deployed_revision, jobs, at}` of each, by name."""
        return [
            {
                "name": head["name"],
                "revision": head["revision"],
                "deployed_revision": head["deployed_revision"],
                "jobs": head["jobs"],
                "at": head["at"],
            }
            for head in self._records.heads.values()
            if not head.get("deleted") and visible_name(head["name"])
        ]

    def get(self, name: str) -> JsonObject:
        """`{name, desired, deployed, jobs, requirements}`. Raises NotFoundError."""
        head = self._head(name)
        desired = self._description(name, head["revision"])
        deployed = self._records.inventory(name).jobs
        return {
            "name": name,
            "desired": {
                "revision": head["revision"],
                "jobs": desired["jobs"],
                "inputs": desired.get("inputs", []),
                "outputs": desired.get("outputs", []),
            },
            "deployed": {
                "revision": head["deployed_revision"],
                "jobs": [
                    {
                        "job_name": job_name,
                        "site": d.job.site,
                        "engine_job_id": d.engine_job_id,
                        "attempt": d.attempt,
                        "jar": d.job.jar,
                        "ended": d.ended,
                    }
                    for job_name, d in sorted(deployed.items())
                ],
            },
            "jobs": self._jobs.of_composition(head),
            "requirements": self._requirements.of(name, desired.get("requirements", {})),
        }

    def refresh(self, name: str) -> None:
        """Poll the engines of a composition's jobs, so that their states are those of now."""
        self._jobs.refresh(lambda scope, _: scope == name)

    def revision(self, name: str) -> int:
        """The newest revision, for an ETag."""
        return int(self._head(name)["revision"])

    def plan(self, name: str) -> JsonObject:
        """The plan from what is observed to the newest revision."""
        newest = self._revision(name, self._head(name)["revision"])
        description = composition_as_stored(newest["description"])
        prepared = self._deployer.prepare(description, jars=newest.get("jars"))
        return plan_to_json(prepared.plan)

    def graph(self, name: str) -> Graph:
        """The graph of the newest revision."""
        return Graph.of_description(with_addresses(self._newest(name), self._records.sites()))

    def drift(self, name: str) -> JsonObject:
        """`{drift: [{job_name, kind, expected, observed}]}`: jobs that differ from the newest
        revision though no change is under way."""
        head = self._head(name)
        if self._changes.under_way(name) is not None:
            return {"drift": []}
        expected_states = {
            job["job_name"]: job["state"]
            for job in self._description(name, head["revision"])["jobs"]
        }
        entries = []
        for job in self._jobs.of_composition(head):
            expected = expected_states.get(job["job_name"])
            is_known = job["state"] not in ("finished", "unknown") or expected != "running"
            if job["state"] != expected and is_known:
                entries.append(
                    {
                        "job_name": job["job_name"],
                        "kind": str(job["state"]) if expected else "leftover",
                        "expected": expected or "removed",
                        "observed": job["error"] or job["state"],
                    }
                )
        return {"drift": entries}

    def revisions(self, name: str) -> JsonObject:
        """`{revisions: [{revision, at, by}]}`, oldest first; also of a removed composition. Raises
        NotFoundError for a name that never was one."""
        if visible_name(name) is None or self._records.heads.get(name) is None:
            raise NotFoundError(f"cannot find {title(name)}")
        return {
            "revisions": [
                {"revision": int(number), "at": record["at"], "by": record["by"]}
                for number, record in self._records.revisions.items(name)
            ]
        }

    def description(self, name: str, revision: int | None = None) -> JsonObject:
        """A revision as it was accepted (the newest by default)."""
        head = self._head(name)
        return self._description(name, revision or head["revision"])

    def jars(self, name: str, revision: int) -> Mapping[str, str] | None:
        """The SHA-256 of what each `job_path` of a revision named; None: of an old record."""
        jars: Mapping[str, str] | None = self._revision(name, revision).get("jars")
        return jars

    # -- changing -------------------------------------------------------------------------

    def apply(
        self,
        description: CompositionDescription,
        request: ApplyRequest,
        jars: Mapping[str, str] | None = None,
        cause: Cause = Cause.APPLY,
    ) -> Answer:
        """Make `description` the desired state; `jars` as with `Deployer.prepare`.

        200 for a plan only, or when the change is done within `wait_s`; 202 otherwise.
        Raises InvalidError, ConflictError, StaleRevisionError.
        """
        with self._locks[description.name]:
            first = None
            if request.idempotency_key and not request.dry_run:
                body = dump_composition(description)
                first = self._first_answers.find(request.by, request.idempotency_key, body)
            if first is None:
                answer, running = self._apply(description, request, jars, cause)
        if first is not None:
            return self._again(first, request)
        if running is None:
            change = answer["change"]
            return Answer(200, answer, f"/changes/{change}" if change else None)
        return _await_outcome(answer, running, request)

    def accept(
        self,
        description: CompositionDescription,
        request: ApplyRequest,
    ) -> tuple[JsonObject, Running | None]:
        """Like `apply` without a wait: the shape Accepted, and the change; None for a dry run, or
        if nothing is to be done."""
        with self._locks[description.name]:
            return self._apply(description, request, None, Cause.APPLY)

    def _apply(
        self,
        description: CompositionDescription,
        request: ApplyRequest,
        jars: Mapping[str, str] | None,
        cause: Cause,
    ) -> tuple[JsonObject, Running | None]:
        """The shape Accepted, and the change; None for a dry run, or if nothing is to be done."""
        name = description.name
        head = self._records.heads.get(name)
        self._admission.check_revision(name, head, request.if_match)
        self._admission.check_owners(description, adopt=request.adopt)
        self._admission.refuse_too_large(name, text_bytes(dump_composition(description)))
        adopted = self._admission.find_posted_alone(description)
        removed = find_mass_removal(description, self._records)
        if not request.dry_run:
            self._changes.find_in_the_way(name)
            refuse_mass_removal(name, removed, request.force)

        def prepare(stopped: frozenset[str] = frozenset()) -> PreparedPlan:
            return self._deployer.prepare(
                description,
                request.line_of,
                list(adopted),
                jars,
                drop_queues=request.drop_queues,
                drain_limit_s=request.drain_limit_s,
                stopped=stopped,
                sees=request.sees,
            )

        prepared = prepare()
        if not request.any_client_id:
            composition = prepared.composition
            self._admission.refuse_foreign_clients(description, composition, request.line_of)
        self._admission.refuse_cycles(prepared.composition, adopted, request.line_of, request.sees)
        prepared = self._check_bridges(prepared, adopted, request)
        if request.dry_run:
            dry = _render_accepted(None, name, head["revision"] if head else None, prepared)
            if removed and not request.force:
                dry["warnings"].append(
                    f"{describe_removal(removed)}: this needs --force (?force=true)"
                )
            return dry, None
        refuse_dropping(f"apply {title(name)}", prepared.plan, allowed=request.drop_queues)
        superseded = self._runner.make_way(name)
        if superseded is not None:  # plan again: it has done something until its end
            prepared = self._check_bridges(prepare(superseded.stopped), adopted, request)
            head = self._records.heads.get(name)
        self._deployer.accept(prepared)
        is_fresh = superseded is None and not adopted
        if head and is_fresh and self._is_there(description, head, prepared):
            return self._nothing_to_do(description, head, prepared, request), None
        with self._owning:  # another request may name the same new job
            self._admission.check_owners(description, adopt=request.adopt)
            if self._admission.find_posted_alone(description) != adopted:
                raise ConflictError(
                    f"cannot apply {title(name)}: a job that was posted alone came, went"
                    " or was changed meanwhile; apply again"
                )
            self._admission.refuse_cycles(
                prepared.composition, adopted, request.line_of, request.sees
            )
            self._admission.refuse_loops_over_bridges(
                prepared.composition, adopted, request.line_of, ask=False
            )
            taken_in = take_in(self._records, name, adopted)
            return self._accept(description, prepared, head, request, superseded, taken_in, cause)

    def _check_bridges(
        self, prepared: PreparedPlan, adopted: Iterable[str], request: ApplyRequest
    ) -> PreparedPlan:
        """Add warnings about bridges between brokers. Raises InvalidError."""
        warnings = self._admission.refuse_loops_over_bridges(
            prepared.composition, adopted, request.line_of
        )
        return replace(prepared, warnings=(*prepared.warnings, *warnings))

    def delete(
        self,
        name: str,
        wait_s: float,
        *,
        drop_queues: bool = False,
        drain_limit_s: float | None = None,
        dry_run: bool = False,
        if_match: int | None = None,
        by: str | None = None,
        gives_up: Callable[[], bool] = never,
    ) -> Answer:
        """Remove every job of the composition; its revisions stay known by number.

        Links are drained from their beginning to their end. `drop_queues` and `drain_limit_s`: see
        `ApplyRequest`. 200 for a plan only (`dry_run`).
        """
        head = self._head(name)
        if dry_run:
            self._admission.check_revision(name, head, if_match)
            prepared = self._deployer.prepare_removal(
                name, drop_queues=drop_queues, drain_limit_s=drain_limit_s
            )
            return Answer(200, _render_accepted(None, name, head["revision"], prepared))
        answer, running = self.remove(
            name, drop_queues=drop_queues, drain_limit_s=drain_limit_s, if_match=if_match, by=by
        )
        change = running.change
        if running.wait_for_end(wait_s, gives_up) and change.state is ChangeState.DONE:
            return Answer(204, {})
        return Answer(202, answer, f"/changes/{change.id}")

    def remove(
        self,
        name: str,
        *,
        drop_queues: bool = False,
        drain_limit_s: float | None = None,
        if_match: int | None = None,
        by: str | None = None,
    ) -> tuple[JsonObject, Running]:
        """Like `delete` without a wait: the shape Accepted, and the change."""

        def prepare(readers_stopped: frozenset[str] = frozenset()) -> PreparedPlan:
            return self._deployer.prepare_removal(
                name,
                drop_queues=drop_queues,
                drain_limit_s=drain_limit_s,
                readers_stopped=readers_stopped,
            )

        with self._locks[name]:
            head = self._read_head(name)
            self._admission.check_revision(name, head, if_match)
            self._changes.find_in_the_way(name)
            prepared = prepare()
            refuse_dropping(f"remove {title(name)}", prepared.plan, allowed=drop_queues)
            superseded = self._runner.make_way(name)
            if superseded is not None:  # plan again: it has done something until its end
                prepared = prepare(superseded.stopped)
            change = self._changes.create(
                prepared.plan,
                head["revision"],
                cause=Cause.REMOVE,
                by=by,
                drop_queues=drop_queues,
                drain_limit_s=drain_limit_s,
            )
            with self._guard_adoption(name):
                self._read_head(name)  # a job posted alone may have been taken in meanwhile
                leaving = {**head, "last_change": change.id, "removing": True}
                accepted: Batch = {self._records.heads.key(name): leaving}
                accepted |= self._changes.put_superseded(superseded, change)
                running = self._runner.start(change, accepted, prepared.sites)
        return _render_accepted(change, name, head["revision"], prepared), running

    def rollback(self, name: str, revision: int, request: ApplyRequest) -> Answer:
        """Apply an earlier revision as a new one: code and wiring, never state."""
        record = self._records.revisions.get(name, revision)
        self._head(name)
        if record is None:
            raise NotFoundError(f"cannot find revision {revision} of composition {name!r}")
        description = composition_as_stored(record["description"])
        return self.apply(description, request, record.get("jars"), Cause.ROLLBACK)

    def repair(self, name: str, leave: frozenset[str] = frozenset()) -> Running | None:
        """Repair a composition: restore its newest revision, except for the jobs to `leave` alone.

        None when nothing is to be done, when a change is under way (one that is blocked is
        planned anew, and does it), or when what is there is as a person left it: being removed,
        or after a change that was cancelled.
        """
        with self._locks[name]:
            head = self._records.heads.get(name)
            if head is None or head.get("deleted") or head.get("removing"):
                return None
            running = self._changes.under_way(name)
            if running is not None:
                if running.change.state is ChangeState.BLOCKED:
                    self._runner.begin_anew(running, leave)
                return None
            if self._changes.was_cancelled(head.get("last_change")):
                return None
            newest = self._records.revisions.get(name, head["revision"])
            if newest is None:
                return None  # posted alone, and adopted by a composition meanwhile
            description = composition_as_stored(newest["description"])
            prepared = self._deployer.prepare(description, jars=newest.get("jars"), leave=leave)
            self._deployer.accept(prepared)
            plan = self._keep_queues(name, prepared.plan)
            if plan.empty:
                return None
            change = self._changes.create(
                plan, head["revision"], cause=Cause.REPAIR, by=SPECK, leave=leave
            )
            accepted: Batch = {self._records.heads.key(name): {**head, "last_change": change.id}}
            for queue in prepared.plan.queues:
                place = f"{queue.reader} at {queue.site}/{cut(queue.topic)} ({queue.size})"
                message = f"the repair of {title(name)} keeps the queue of {place}: {queue.why}"
                about = {"composition": visible_name(name), "site": queue.site}
                accepted |= self._records.event("change", message, change=change.id, **about)
            with self._guard_adoption(name):
                if self._records.heads.get(name) != head:
                    return None  # posted alone, and taken in by a composition meanwhile
                return self._runner.start(change, accepted, prepared.sites)

    @staticmethod
    def _keep_queues(name: str, plan: Plan) -> Plan:
        """The plan of a repair without the releases that would drop a queue. Raises QueuesError if
        the repair cannot do without one."""
        kept = keep_queues(plan)
        if kept is None:
            refuse_dropping(f"repair {title(name)}", plan, allowed=False)
        return kept or plan

    @contextmanager
    def locked(self, names: Iterable[str]) -> Iterator[None]:
        """Held while nothing else may change these compositions, nor take or free a job's name."""
        with ExitStack() as stack:
            for name in sorted(names):
                stack.enter_context(self._locks[name])
            stack.enter_context(self._owning)
            yield

    def _guard_adoption(self, name: str) -> AbstractContextManager[object]:
        """Held while a job posted alone must not be adopted; nothing else can be, and starts of
        changes of other compositions do not wait for one another."""
        return self._owning if job_posted_alone(name) is not None else nullcontext()

    def under_way(self, name: str) -> Running | None:
        """The change of a composition that is under way."""
        return self._changes.under_way(name)

    def jar_of(self, job_path: str) -> str:
        """The SHA-256 of what `job_path` names now. Raises InvalidError, NotFoundError."""
        return self._deployer.jar_of(job_path)

    # -- parts of an apply ----------------------------------------------------------------

    def _accept(
        self,
        description: CompositionDescription,
        prepared: PreparedPlan,
        head: JsonObject | None,
        request: ApplyRequest,
        superseded: Change | None,
        adopted: Batch,
        cause: Cause,
    ) -> tuple[JsonObject, Running]:
        name = description.name
        dumped = dump_composition(description)
        same = (
            head is not None
            and not head.get("deleted")
            and self._is_same_revision(name, head["revision"], dumped, prepared.jars)
        )
        revision = head["revision"] if same and head else (head["revision"] if head else 0) + 1
        change = self._changes.create(
            prepared.plan,
            revision,
            cause=cause,
            by=request.by,
            drop_queues=request.drop_queues,
            drain_limit_s=request.drain_limit_s,
            left_stopped=superseded.stopped if superseded else frozenset(),
        )
        now = rfc3339(self._clock.now())
        new_head: JsonObject = {
            "name": name,
            "revision": revision,
            "deployed_revision": head["deployed_revision"] if head else None,
            "jobs": len(description.jobs),
            "bytes": text_bytes(dumped),
            "at": now,
            "last_change": change.id,
        }
        accepted: Batch = {self._records.heads.key(name): new_head, **adopted}
        accepted |= self._changes.put_superseded(superseded, change)
        accepted |= self._records.put_links(name, list_links(prepared.composition))
        if not same:
            accepted[self._records.revisions.key(name, revision)] = {
                "description": dumped,
                "jars": dict(prepared.jars),
                "at": now,
                "by": request.by,
            }
            if head and job_posted_alone(name):  # there is no way back to it: nobody can name it
                accepted |= self._records.revisions.drop(name, head["revision"])
        names = {job.job_name for job in description.jobs}
        accepted |= {
            self._records.owners.key(job_name): {"composition": name} for job_name in names
        }
        answer = _render_accepted(change, name, revision, prepared)
        if request.idempotency_key:
            key = request.idempotency_key
            accepted |= self._first_answers.put(request.by, key, dumped, answer)
        running = self._runner.start(change, accepted, prepared.sites)
        self._jobs.note(name, revision, description.jobs)
        return answer, running

    def _is_there(
        self, description: CompositionDescription, head: JsonObject, prepared: PreparedPlan
    ) -> bool:
        """Whether everything is as the newest revision wants it, and its change succeeded."""
        if prepared.plan.steps or head.get("deleted"):
            return False
        dumped = dump_composition(description)
        if not self._is_same_revision(head["name"], head["revision"], dumped, prepared.jars):
            return False
        change = self._records.change_heads.get(head["last_change"])  # not its many operations
        is_deployed = head["deployed_revision"] == head["revision"]
        return is_deployed and change is not None and bool(change["state"] == ChangeState.DONE)

    def _nothing_to_do(
        self,
        description: CompositionDescription,
        head: JsonObject,
        prepared: PreparedPlan,
        request: ApplyRequest,
    ) -> JsonObject:
        """The answer that names the change by which the present state came about."""
        answer = {
            **_render_accepted(None, head["name"], head["revision"], prepared),
            "change": head["last_change"],
        }
        if request.idempotency_key:
            body = dump_composition(description)
            first = self._first_answers.put(request.by, request.idempotency_key, body, answer)
            self._records.write(first)
        return {**answer, "state": str(ChangeState.DONE)}

    def _is_same_revision(
        self, name: str, revision: int, dumped: JsonObject, jars: Mapping[str, str]
    ) -> bool:
        """Whether a revision is this very description with these very jars."""
        record = self._revision(name, revision)
        return bool(record["description"] == dumped and record.get("jars", jars) == jars)

    def _again(self, first: JsonObject, request: ApplyRequest) -> Answer:
        """Repeat the first answer to an Idempotency-Key, after a wait for the change it names."""
        location = f"/changes/{first['change']}"
        if not request.wait_s:
            return Answer(202, first, location)
        try:
            change = self._changes.await_end(first["change"], request.wait_s, request.gives_up)
        except NotFoundError:  # it ended so long ago that it was dropped
            return Answer(200, first, location)
        if change is None:
            return Answer(202, first, location)
        return Answer(200, {**first, "state": change["state"]}, location)

    def _head(self, name: str) -> JsonObject:
        """Of one that users know by its name. Raises NotFoundError."""
        if visible_name(name) is None:
            raise NotFoundError(f"cannot find composition {name!r}")
        return self._read_head(name)

    def _read_head(self, name: str) -> JsonObject:
        head = self._records.heads.get(name)
        if head is None or head.get("deleted"):
            raise NotFoundError(f"cannot find {title(name)}")
        return head

    def _description(self, name: str, revision: int) -> JsonObject:
        description: JsonObject = self._revision(name, revision)["description"]
        return description

    def _revision(self, name: str, revision: int) -> JsonObject:
        record = self._records.revisions.get(name, revision)
        if record is None:
            raise NotFoundError(f"cannot find revision {revision} of {title(name)}")
        return record

    def _newest(self, name: str) -> CompositionDescription:
        return composition_as_stored(self._description(name, self._head(name)["revision"]))


def _await_outcome(answer: JsonObject, running: Running, request: ApplyRequest) -> Answer:
    location = f"/changes/{running.change.id}"
    if request.wait_s and running.wait_for_end(request.wait_s, request.gives_up):
        return Answer(200, {**answer, "state": str(running.change.state)}, location)
    return Answer(202, answer, location)


def _render_accepted(
    change: Change | None, name: str, revision: int | None, prepared: PreparedPlan
) -> JsonObject:
    return {
        "change": change.id if change else None,
        "composition": name,
        "revision": revision,
        "plan": plan_to_json(prepared.plan),
        "warnings": list(prepared.warnings),
    }
