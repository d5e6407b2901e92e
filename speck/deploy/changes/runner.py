"""Runs changes: each in a thread of its own, to its end or to a safe point.

A started change goes through `_carry_out`. It is executed; it may then be planned again and
executed once more; at last its end is stored, and those who wait for it are notified.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial

from speck.clock import Clock
from speck.deploy.changes.executions import Executions
from speck.deploy.changes.ledger import ChangeLedger
from speck.deploy.changes.recovery import ChangeRecovery
from speck.deploy.changes.registry import Changes, Running
from speck.deploy.scheduler import THREADS, Scheduler
from speck.errors import ConflictError, SpeckError, StoreWriteError
from speck.model.change import Change, ChangeReport, ChangeState
from speck.model.plan import Plan
from speck.model.site import Site
from speck.store.tables import Batch

LOG = logging.getLogger(__name__)

_CLOSE_S = 30.0
_CANCEL_S = 1.0
_ABANDON_S = 30.0


class ChangeRunner:
    """Starts changes, ends them early, and brings all to a safe point when the service stops."""

    def __init__(
        self,
        changes: Changes,
        ledger: ChangeLedger,
        recovery: ChangeRecovery,
        executions: Executions,
        clock: Clock,
        report_end: Callable[[str, Change], None] = lambda scope, change: None,
        scheduler: Scheduler = THREADS,
    ):
        """`report_end` is called with each change of a scope that ends, before its end is stored
        and announced."""
        self._changes = changes
        self._ledger = ledger
        self._recovery = recovery
        self._executions = executions
        self._clock = clock
        self._report_end = report_end
        self._scheduler = scheduler

    def start(
        self,
        change: Change,
        batch: Batch,
        sites: Mapping[str, Site],
        adopted: Collection[str] = (),
    ) -> Running:
        """Store the change with `batch` in one write, then run it in its own thread.

        `sites` are those registered when the plan was made, `adopted` the jobs posted alone that
        its composition takes in. Raises ConflictError if the scope has a
        change under way or a site of the plan has changed, and TransientError if the service is
        stopping.
        """
        execution = self._executions.make(change, change.composition, self._changes.touch)
        running = Running(change, change.composition, self._clock, execution, self._scheduler)
        self._ledger.check_writable()
        self._changes.add(running, sites)
        try:
            # taken last: who stores a last number holds back new changes first
            sessions = self._ledger.list_sessions(adopted)
            with self._changes.session_locks.writing.all_of(sessions):
                self._ledger.accept(change, batch, adopted)
        except BaseException:
            self._changes.remove(running)
            raise
        self._begin(running)
        return running

    def go_on(self, running: Running) -> None:
        """Continue an interrupted change in the background."""
        self._begin(running)

    def make_way(self, scope: str) -> Change | None:
        """End the change that `Changes.find_in_the_way` finds, and return it."""
        running = self._changes.find_in_the_way(scope)
        if running is None:
            return None
        self._ask_to_end(running)
        running.over.wait()
        return running.change

    def cancel(self, change_id: str) -> ChangeReport:
        """Start no further operation of a change. Raises NotFoundError, or ConflictError if it is
        over."""
        for running in self._changes.all_under_way():
            if running.change.id == change_id:
                self._ask_to_end(running)
                running.over.wait(_CANCEL_S)
                return self._changes.get(change_id)
        head = self._changes.get(change_id)
        raise ConflictError(f"cannot cancel change {change_id}: it is {head.state}")

    def abandon(self, scope: str) -> Change | None:
        """End the change of a scope, whatever it is doing: only calls under way are awaited, not
        what engines do. Returns it; None if there is none.

        Raises ConflictError if a call takes long; the change then ends after it.
        """
        running = self._changes.under_way(scope)
        if running is None:
            return None
        self._ledger.record_wish_to_end(running.change)
        running.abandon()
        if not running.over.wait(_ABANDON_S):
            raise ConflictError(
                f"cannot end change {running.change.id} yet: it waits for an answer of an engine"
                " or a broker; try again",
                change=running.change.id,
            )
        return running.change

    def begin_anew(self, running: Running, leave: frozenset[str]) -> None:
        """Extend a blocked change: it is planned again with fewer jobs to leave alone, and keeps
        its id. Nothing happens if it is not blocked any more.

        Raises SpeckError, and leaves the change unchanged, if no plan can be made.
        """
        self._recovery.check(running.change)
        running.ask_to_begin_anew(leave)

    def close(self) -> None:
        """Bring all changes under way to a safe point; they continue at the next start."""
        under_way = self._changes.close()
        for running in under_way:
            running.halt()
        for running in under_way:
            running.over.wait(_CLOSE_S)
        self._executions.close()

    def _ask_to_end(self, running: Running) -> None:
        """Store the request first: the change is not continued after a restart either."""
        self._ledger.record_wish_to_end(running.change)
        running.end_early()

    # -- the thread of a change -----------------------------------------------------------

    def _begin(self, running: Running) -> None:
        self._scheduler.start(partial(self._carry_out, running), name=f"change-{running.change.id}")

    def _carry_out(self, running: Running) -> None:
        try:
            while running.execution is not None or self._resume(running):
                self._execute(running)
                if not running.put_down():
                    break
        finally:
            self._leave(running)

    def _execute(self, running: Running) -> None:
        change, execution = running.change, running.execution
        assert execution is not None
        try:
            if running.is_resumed:
                self._ledger.go_on(change)
            execution.run()
        except StoreWriteError:
            change.state = ChangeState.RUNNING  # the stored state
        except Exception as error:
            change.state, change.error = ChangeState.FAILED, _why(error)

    def _resume(self, running: Running) -> bool:
        """Plan a change again. False if it does not go on; its state then says why."""
        change = running.change
        try:
            sites = self._recovery.plan_anew(change)
            execution = self._executions.make(change, running.scope, self._changes.touch)
            if self._changes.resume(running, execution, sites):
                return True
        except Exception as error:
            change.go_on(
                Plan(
                    change.composition,
                    (),
                    (),
                    reverts_to=change.reverts_to,
                    reverting=change.reverting,
                )
            )
            change.state, change.error = ChangeState.FAILED, _why(error)
        if running.ends_early:
            change.state, change.error = ChangeState.CANCELLED, None
        elif self._changes.closing:  # planned again at the next start
            change.state, change.error = ChangeState.RUNNING, None
        return False

    def _announce(self, running: Running) -> None:
        try:
            self._report_end(running.scope, running.change)
        except Exception:  # whatever it is: the change has ended
            LOG.exception("what change %s has left cannot be seen", running.change.id)

    def _leave(self, running: Running) -> None:
        """Store that a change has ended, or that it pauses because the service stops.

        An end that cannot be stored is not announced: the change continues at the next start.
        """
        try:
            if running.ends_early and not running.change.state.over:
                running.change.abandon()
            if running.change.state.over:
                self._announce(running)
                self._ledger.end(running.change)
            else:
                self._ledger.pause(running.change)
        except StoreWriteError:
            running.change.state = ChangeState.RUNNING
        finally:
            self._changes.remove(running)


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, SpeckError) else f"cannot carry on: {error!r}"
