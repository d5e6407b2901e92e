"""Compositions (the paper's Composition Management API): desired state in, change out.

They are applied, rolled back and removed here; `composition_views` reads them, and
`composition_repairs` restores what they describe.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from speck.clock import Clock, never
from speck.deploy.admission import (
    Admission,
    describe_removal,
    find_mass_removal,
    refuse_mass_removal,
)
from speck.deploy.changes import ChangeRunner, Changes, Running
from speck.deploy.deployer import Deployer, PreparedPlan
from speck.deploy.dropping import refuse_dropping
from speck.errors import ConflictError, NotFoundError
from speck.model.accepted import Accepted
from speck.model.change import Cause, Change, ChangeState
from speck.model.composition import (
    CompositionDescription,
    Head,
    title,
    visible_name,
)
from speck.service.acceptance import Acceptance, Wanted, describe_accepted
from speck.service.composition_locks import CompositionLocks
from speck.service.idempotency import FirstAnswers
from speck.service.job_list import JobList
from speck.spec.expansion import text_bytes
from speck.spec.resolve import LineOf
from speck.spec.schema import dump_composition
from speck.store.records import Records


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


@dataclass(frozen=True, slots=True)
class _Apply:
    """A description that is to become the desired state. `artifacts`: as with `Deployer.prepare`.
    `adopted` are jobs posted alone that it takes in, with the newest change of each."""

    description: CompositionDescription
    request: ApplyRequest
    artifacts: Mapping[str, str] | None
    cause: Cause
    adopted: Mapping[str, str]

    @property
    def name(self) -> str:
        return self.description.name


class Compositions:
    """Changes compositions."""

    def __init__(
        self,
        records: Records,
        deployer: Deployer,
        jobs: JobList,
        changes: Changes,
        runner: ChangeRunner,
        admission: Admission,
        clock: Clock,
        locks: CompositionLocks,
    ):
        self._records = records
        self._deployer = deployer
        self._changes = changes
        self._runner = runner
        self._locks = locks
        self._first_answers = FirstAnswers(records, clock)
        self._acceptance = Acceptance(records, changes, runner, jobs, self._first_answers, clock)
        self._admission = admission

    def apply(
        self,
        description: CompositionDescription,
        request: ApplyRequest,
        artifacts: Mapping[str, str] | None = None,
        cause: Cause = Cause.APPLY,
    ) -> Accepted:
        """Make `description` the desired state; `artifacts` as with `Deployer.prepare`. Waits for
        the outcome as the request says. Raises InvalidError, ConflictError, StaleRevisionError."""
        with self._locks[description.name]:
            first, running = self._find_first(description, request), None
            if first is None:
                accepted, running = self._apply(description, request, artifacts, cause)
        if first is not None:
            return self._again(first, request)
        if running is None or not request.wait_s:
            return accepted
        has_ended = running.wait_for_end(request.wait_s, request.gives_up)
        return replace(accepted, state=running.change.state) if has_ended else accepted

    def accept(
        self, description: CompositionDescription, request: ApplyRequest
    ) -> tuple[Accepted, Running | None]:
        """Like `apply` without a wait: also the change; None for a dry run, or if nothing is to be
        done."""
        with self._locks[description.name]:
            return self._apply(description, request, None, Cause.APPLY)

    def rollback(self, name: str, revision: int, request: ApplyRequest) -> Accepted:
        """Apply an earlier revision as a new one: code and wiring, never state."""
        stored = self._records.compositions.revision(name, revision)
        self._visible_head(name)
        if stored is None:
            raise NotFoundError(f"cannot find revision {revision} of composition {name!r}")
        return self.apply(stored.description, request, stored.artifacts, Cause.ROLLBACK)

    def apply_placed(
        self, description: CompositionDescription, revision: int, request: ApplyRequest
    ) -> Accepted:
        """Apply a description that was made from a revision, with its artifacts, if that is still
        the newest. Raises StaleRevisionError."""
        stored = self._records.compositions.revision(description.name, revision)
        if stored is None:
            raise NotFoundError(f"cannot find revision {revision} of {title(description.name)}")
        return self.apply(description, replace(request, if_match=revision), stored.artifacts)

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
    ) -> Accepted:
        """Remove every job of the composition; its revisions stay known by number. Only a removal
        that has been carried out within `wait_s` has a state.

        Links are drained from their beginning to their end. `drop_queues` and `drain_limit_s`: see
        `ApplyRequest`. Only a plan with `dry_run`.
        """
        head = self._visible_head(name)
        if dry_run:
            self._admission.check_revision(name, head, if_match)
            prepared = self._deployer.prepare_removal(
                name, drop_queues=drop_queues, drain_limit_s=drain_limit_s
            )
            return describe_accepted(None, name, head.revision, prepared)
        accepted, running = self.remove(
            name, drop_queues=drop_queues, drain_limit_s=drain_limit_s, if_match=if_match, by=by
        )
        is_done = running.wait_for_end(wait_s, gives_up) and running.change.state
        return replace(accepted, state=is_done) if is_done is ChangeState.DONE else accepted

    def remove(
        self,
        name: str,
        *,
        drop_queues: bool = False,
        drain_limit_s: float | None = None,
        if_match: int | None = None,
        by: str | None = None,
    ) -> tuple[Accepted, Running]:
        """Like `delete` without a wait: also the change."""

        def prepare(readers_stopped: frozenset[str] = frozenset()) -> PreparedPlan:
            return self._deployer.prepare_removal(
                name,
                drop_queues=drop_queues,
                drain_limit_s=drain_limit_s,
                readers_stopped=readers_stopped,
            )

        with self._locks[name]:
            head = self._head(name)
            self._admission.check_revision(name, head, if_match)
            self._changes.find_in_the_way(name)
            prepared = prepare()
            refuse_dropping(f"remove {title(name)}", prepared.plan, allowed=drop_queues)
            superseded = self._runner.make_way(name)
            if superseded is not None:  # plan again: it has done something until its end
                prepared = prepare(superseded.stopped)
            self._deployer.accept(prepared)
            change = self._changes.create(
                prepared.plan,
                head.revision,
                cause=Cause.REMOVE,
                by=by,
                drop_queues=drop_queues,
                drain_limit_s=drain_limit_s,
            )
            with self._locks.guard_adoption(name):
                self._head(name)  # a job posted alone may have been taken in meanwhile
                leaving = head.with_change(change.id, removing=True)
                batch = self._records.compositions.put_head(leaving)
                batch |= self._changes.put_superseded(superseded, change)
                running = self._runner.start(change, batch, prepared.sites)
        return describe_accepted(change, name, head.revision, prepared), running

    # -- parts of an apply ----------------------------------------------------------------

    def _apply(
        self,
        description: CompositionDescription,
        request: ApplyRequest,
        artifacts: Mapping[str, str] | None,
        cause: Cause,
    ) -> tuple[Accepted, Running | None]:
        """What was accepted, and the change; None for a dry run, or if nothing is to be done."""
        name = description.name
        head = self._records.compositions.last_head(name)
        self._admission.check_revision(name, head, request.if_match)
        self._admission.check_owners(description, adopt=request.adopt)
        self._admission.refuse_too_large(name, text_bytes(dump_composition(description)))
        adopted = self._admission.find_posted_alone(description)
        apply = _Apply(description, request, artifacts, cause, adopted)
        removed = find_mass_removal(description, self._records)
        if not request.dry_run:
            self._changes.find_in_the_way(name)
            refuse_mass_removal(name, removed, request.force)
        prepared = self._prepare(apply)
        if not request.any_client_id:
            composition = prepared.composition
            self._admission.refuse_foreign_clients(description, composition, request.line_of)
        self._admission.refuse_cycles(prepared.composition, adopted, request.line_of, request.sees)
        prepared = self._check_bridges(prepared, adopted, request)
        if request.dry_run:
            return _describe_dry_run(apply, head, prepared, removed), None
        refuse_dropping(f"apply {title(name)}", prepared.plan, allowed=request.drop_queues)
        superseded = self._runner.make_way(name)
        if superseded is not None:  # plan again: it has done something until its end
            again = self._prepare(apply, superseded.stopped)
            prepared = self._check_bridges(again, adopted, request)
        self._deployer.accept(prepared)
        wanted = self._want(apply, prepared, superseded)
        is_fresh = superseded is None and not adopted
        present = self._acceptance.find_present(wanted) if is_fresh else None
        if present is not None:
            return present, None
        with self._locks.owning:  # another request may name the same new job
            self._check_again(apply, prepared)
            return self._acceptance.start(wanted)

    def _prepare(self, apply: _Apply, stopped: frozenset[str] = frozenset()) -> PreparedPlan:
        request = apply.request
        return self._deployer.prepare(
            apply.description,
            request.line_of,
            list(apply.adopted),
            apply.artifacts,
            drop_queues=request.drop_queues,
            drain_limit_s=request.drain_limit_s,
            stopped=stopped,
            sees=request.sees,
        )

    def _check_bridges(
        self, prepared: PreparedPlan, adopted: Iterable[str], request: ApplyRequest
    ) -> PreparedPlan:
        """Add warnings about bridges between brokers. Raises InvalidError."""
        warnings = self._admission.refuse_loops_over_bridges(
            prepared.composition, adopted, request.line_of
        )
        return replace(prepared, warnings=(*prepared.warnings, *warnings))

    def _check_again(self, apply: _Apply, prepared: PreparedPlan) -> None:
        """Check once more what another request may have changed since: now names are locked."""
        request, composition = apply.request, prepared.composition
        self._admission.check_owners(apply.description, adopt=request.adopt)
        if self._admission.find_posted_alone(apply.description) != apply.adopted:
            raise ConflictError(
                f"cannot apply {title(apply.name)}: a job that was posted alone came, went"
                " or was changed meanwhile; apply again"
            )
        self._admission.refuse_cycles(composition, apply.adopted, request.line_of, request.sees)
        self._admission.refuse_loops_over_bridges(
            composition, apply.adopted, request.line_of, ask=False
        )

    def _want(self, apply: _Apply, prepared: PreparedPlan, superseded: Change | None) -> Wanted:
        request = apply.request
        return Wanted(
            description=apply.description,
            prepared=prepared,
            head=self._records.compositions.last_head(apply.name),
            cause=apply.cause,
            adopted=tuple(apply.adopted),
            superseded=superseded,
            by=request.by,
            idempotency_key=request.idempotency_key,
            drop_queues=request.drop_queues,
            drain_limit_s=request.drain_limit_s,
        )

    # -- answers --------------------------------------------------------------------------

    def _find_first(
        self, description: CompositionDescription, request: ApplyRequest
    ) -> Accepted | None:
        """The first answer to the request's Idempotency-Key."""
        if not request.idempotency_key or request.dry_run:
            return None
        return self._first_answers.find(request.by, request.idempotency_key, description)

    def _again(self, first: Accepted, request: ApplyRequest) -> Accepted:
        """Repeat the first answer to an Idempotency-Key, after a wait for the change it names."""
        if first.change is None or not request.wait_s:
            return first
        try:
            change = self._changes.await_end(first.change, request.wait_s, request.gives_up)
        except NotFoundError:  # it ended so long ago that it was dropped
            return replace(first, state=ChangeState.DONE)
        return replace(first, state=change.state) if change is not None else first

    def _visible_head(self, name: str) -> Head:
        """Of one that users know by its name. Raises NotFoundError."""
        if visible_name(name) is None:
            raise NotFoundError(f"cannot find composition {name!r}")
        return self._head(name)

    def _head(self, name: str) -> Head:
        head = self._records.compositions.head(name)
        if head is None:
            raise NotFoundError(f"cannot find {title(name)}")
        return head


def _describe_dry_run(
    apply: _Apply, head: Head | None, prepared: PreparedPlan, removed: list[str]
) -> Accepted:
    answer = describe_accepted(None, apply.name, head.revision if head else None, prepared)
    if not removed or apply.request.force:
        return answer
    warning = f"{describe_removal(removed)}: this needs --force (?force=true)"
    return replace(answer, warnings=(*answer.warnings, warning))
