"""Repairs: the newest revision of a composition is restored, without anybody's request."""

from __future__ import annotations

from speck.deploy.changes import ChangeRunner, Changes, Running
from speck.deploy.deployer import Deployer, PreparedPlan
from speck.deploy.dropping import refuse_dropping
from speck.deploy.planner.queues import keep_queues
from speck.model.change import Cause, Change, ChangeState
from speck.model.composition import Head, title, visible_name
from speck.model.plan import Plan
from speck.model.values import SPECK, cut
from speck.service.composition_locks import CompositionLocks
from speck.store.records import Records
from speck.store.tables import Batch


class CompositionRepairs:
    """Repairs compositions; a `speck.monitor.repairs.Repairer`."""

    def __init__(
        self,
        records: Records,
        deployer: Deployer,
        changes: Changes,
        runner: ChangeRunner,
        locks: CompositionLocks,
    ):
        self._records = records
        self._deployer = deployer
        self._changes = changes
        self._runner = runner
        self._locks = locks

    def repair(self, name: str, leave: frozenset[str] = frozenset()) -> Running | None:
        """Repair a composition: restore its newest revision, except for the jobs to `leave` alone.

        None when nothing is to be done, when a change is under way (one that is blocked is
        planned anew, and does it), or when what is there is as a person left it: being removed,
        or after a change that was cancelled.
        """
        with self._locks[name]:
            head = self._records.compositions.head(name)
            if head is None or head.removing:
                return None
            running = self._changes.under_way(name)
            if running is not None:
                if running.change.state is ChangeState.BLOCKED:
                    self._runner.begin_anew(running, leave)
                return None
            if self._changes.was_cancelled(head.last_change):
                return None
            newest = self._records.compositions.revision(name, head.revision)
            if newest is None:
                return None  # posted alone, and adopted by a composition meanwhile
            prepared = self._deployer.prepare(
                newest.description, artifacts=newest.artifacts, leave=leave
            )
            self._deployer.accept(prepared)
            plan = _keep_queues(name, prepared.plan)
            is_over = plan.empty and plan.gate is None
            return None if is_over else self._start(head, prepared, plan, leave)

    def _start(
        self, head: Head, prepared: PreparedPlan, plan: Plan, leave: frozenset[str]
    ) -> Running | None:
        """The change; None if the job was posted alone, and taken in by a composition meanwhile."""
        change = self._changes.create(
            plan, head.revision, cause=Cause.REPAIR, by=SPECK, leave=leave
        )
        accepted = self._records.compositions.put_head(head.with_change(change.id))
        accepted |= self._put_kept_queues(head.name, prepared.plan, change)
        with self._locks.guard_adoption(head.name):
            if self._records.compositions.last_head(head.name) != head:
                return None
            return self._runner.start(change, accepted, prepared.sites)

    def _put_kept_queues(self, name: str, plan: Plan, change: Change) -> Batch:
        """An event for each queue that the repair keeps, though its plan would drop it."""
        events: Batch = {}
        for queue in plan.queues:
            place = f"{queue.reader} at {queue.site}/{cut(queue.topic)} ({queue.size})"
            message = f"the repair of {title(name)} keeps the queue of {place}: {queue.why}"
            events |= self._records.events.make(
                "change",
                message,
                change=change.id,
                composition=visible_name(name),
                site=queue.site,
            )
        return events


def _keep_queues(name: str, plan: Plan) -> Plan:
    """The plan of a repair without the releases that would drop a queue. Raises QueuesError if the
    repair cannot do without one."""
    kept = keep_queues(plan)
    if kept is None:
        refuse_dropping(f"repair {title(name)}", plan, allowed=False)
    return kept or plan
