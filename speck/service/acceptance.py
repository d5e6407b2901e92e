"""The last part of an apply: a revision is stored with its change, which starts."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from speck.clock import Clock, rfc3339
from speck.deploy.changes import ChangeRunner, Changes, Running
from speck.deploy.cycles import list_links
from speck.deploy.deployer import PreparedPlan
from speck.errors import NotFoundError
from speck.model.accepted import Accepted
from speck.model.change import Cause, Change, ChangeState
from speck.model.composition import (
    CompositionDescription,
    Head,
    Revision,
    job_posted_alone,
    title,
)
from speck.model.plan_outline import PlanOutline
from speck.service.idempotency import FirstAnswers
from speck.service.job_list import JobList
from speck.spec.expansion import text_bytes
from speck.spec.schema import dump_composition
from speck.store.records import Records
from speck.store.tables import Batch


@dataclass(frozen=True, slots=True)
class Wanted:
    """A description that has passed all checks, with the plan that carries it out. `head` is where
    its composition stands, `superseded` the change that it ends, `adopted` the jobs posted alone
    that it takes in. `by` asks for it, with an Idempotency-Key maybe."""

    description: CompositionDescription
    prepared: PreparedPlan
    head: Head | None
    cause: Cause
    adopted: Collection[str] = ()
    superseded: Change | None = None
    by: str | None = None
    idempotency_key: str | None = None
    drop_queues: bool = False
    drain_limit_s: float | None = None

    @property
    def name(self) -> str:
        return self.description.name


class Acceptance:
    """Stores what is wanted, and begins to carry it out."""

    def __init__(
        self,
        records: Records,
        changes: Changes,
        runner: ChangeRunner,
        jobs: JobList,
        first_answers: FirstAnswers,
        clock: Clock,
    ):
        self._records = records
        self._changes = changes
        self._runner = runner
        self._jobs = jobs
        self._first_answers = first_answers
        self._clock = clock

    def start(self, wanted: Wanted) -> tuple[Accepted, Running]:
        """Store the revision with its change, and start that."""
        name, head = wanted.name, wanted.head
        same = head is not None and not head.deleted and self._is_newest(wanted)
        revision = (head.revision if head else 0) + (0 if same else 1)
        change = self._create_change(wanted, revision)
        batch = self._put_head(wanted, revision, change)
        batch |= self._changes.put_superseded(wanted.superseded, change)
        compositions = self._records.compositions
        batch |= compositions.put_links(name, list_links(wanted.prepared.composition))
        if not same:
            batch |= self._put_revision(wanted, revision)
        jobs = wanted.description.jobs
        batch |= compositions.put_owner({job.job_name for job in jobs}, name)
        accepted = describe_accepted(change, name, revision, wanted.prepared)
        batch |= self._put_first_answer(wanted, accepted)
        running = self._runner.start(change, batch, wanted.prepared.sites, wanted.adopted)
        self._jobs.take_over(name, revision, jobs)
        return accepted, running

    def find_present(self, wanted: Wanted) -> Accepted | None:
        """The answer, if all is there as it is wanted: it names the change by which that came
        about."""
        head = wanted.head
        if head is None or not self._is_there(wanted, head):
            return None
        self._jobs.refresh_unknown(head.name)
        accepted = describe_accepted(None, head.name, head.revision, wanted.prepared)
        accepted = replace(accepted, change=head.last_change)
        if wanted.idempotency_key:
            self._records.write(self._put_first_answer(wanted, accepted))
        return replace(accepted, state=ChangeState.DONE)

    def _is_there(self, wanted: Wanted, head: Head) -> bool:
        """Whether everything is as the newest revision wants it, and its change succeeded."""
        if wanted.prepared.plan.steps or head.deleted or not self._is_newest(wanted):
            return False
        change = self._records.changes.head(head.last_change)  # not its many operations
        is_deployed = head.deployed_revision == head.revision
        return is_deployed and change is not None and change.state is ChangeState.DONE

    def _is_newest(self, wanted: Wanted) -> bool:
        """Whether the newest revision is this very description with these very artifacts."""
        number = wanted.head.revision if wanted.head is not None else 0
        stored = self._records.compositions.revision(wanted.name, number)
        if stored is None:
            raise NotFoundError(f"cannot find revision {number} of {title(wanted.name)}")
        return (
            stored.description == wanted.description
            and stored.artifacts == wanted.prepared.artifacts
        )

    def _create_change(self, wanted: Wanted, revision: int) -> Change:
        superseded = wanted.superseded
        return self._changes.create(
            wanted.prepared.plan,
            revision,
            cause=wanted.cause,
            by=wanted.by,
            drop_queues=wanted.drop_queues,
            drain_limit_s=wanted.drain_limit_s,
            left_stopped=superseded.stopped if superseded else frozenset(),
        )

    def _put_head(self, wanted: Wanted, revision: int, change: Change) -> Batch:
        description, before = wanted.description, wanted.head
        head = Head(
            name=description.name,
            revision=revision,
            jobs=len(description.jobs),
            bytes=text_bytes(dump_composition(description)),
            at=rfc3339(self._clock.now()),
            last_change=change.id,
            deployed_revision=before.deployed_revision if before else None,
        )
        return self._records.compositions.put_head(head)

    def _put_revision(self, wanted: Wanted, revision: int) -> Batch:
        now, artifacts = rfc3339(self._clock.now()), dict(wanted.prepared.artifacts)
        compositions = self._records.compositions
        stored = Revision(wanted.description, artifacts, now, wanted.by)
        batch = compositions.put_revision(wanted.name, revision, stored)
        if wanted.head and job_posted_alone(wanted.name):
            batch |= compositions.drop_revision(wanted.head)  # nobody can name it: no way back
        return batch

    def _put_first_answer(self, wanted: Wanted, accepted: Accepted) -> Batch:
        key = wanted.idempotency_key
        if not key:
            return {}
        return self._first_answers.put(wanted.by, key, wanted.description, accepted)


def describe_accepted(
    change: Change | None, name: str, revision: int | None, prepared: PreparedPlan
) -> Accepted:
    """What was accepted with a plan; without a change: the plan only."""
    plan = PlanOutline.of(prepared.plan)
    return Accepted(change.id if change else None, name, revision, plan, prepared.warnings)
