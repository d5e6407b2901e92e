"""Puts on the board what changes have brought about, before their ends are announced."""

from __future__ import annotations

from speck.clock import Clock
from speck.errors import TransientError
from speck.model.change import Change, ChangeState
from speck.model.job_operations import Return, Start
from speck.model.observation import EngineView
from speck.model.plan import Operation
from speck.monitor.board import Board
from speck.sites.poll_cache import Poll
from speck.sites.site_polls import SitePolls
from speck.store.records import Records


class Outcomes:
    """Called by changes."""

    def __init__(self, records: Records, polls: SitePolls, board: Board, clock: Clock):
        self._records = records
        self._polls = polls
        self._board = board
        self._clock = clock

    def report_done(self, scope: str, operation: Operation) -> None:
        """An operation has succeeded: a start does once all tasks run. What has ended is stored."""
        if isinstance(operation, Start | Return):
            key, now = (scope, operation.job_name), self._clock.monotonic()
            self._board.report_running(key, operation.engine_job_id, now)

    def report_end(self, scope: str, change: Change) -> None:
        """A change ends, which is not stored yet. If it is not done, it has not seen what becomes
        of its jobs: their sites are polled, and awaited for a moment, unless they did not answer
        the last poll. So are the sites of the scope's other jobs that were never polled: who reads
        that the change is done is to find all its jobs."""
        names = {o.step.operation.job_name for o in change.operations}
        sites: set[str] = set()
        now = self._clock.monotonic()
        for name in sorted(name for name in names if name is not None):
            incarnation = self._records.incarnations.get(scope, name)
            if incarnation is None:
                self._board.forget((scope, name))
            elif change.state is not ChangeState.DONE and not incarnation.ended:
                self._board.doubt((scope, name), incarnation.engine_job_id, now)
                sites.add(incarnation.job.site)
        known = self._records.sites.all().keys()
        answering = {s for s in sites & known if not _is_silent(self._polls.engines.last(s))}
        inventory = self._records.incarnations.of_scope(scope).values()
        in_scope = {incarnation.job.site for incarnation in inventory if not incarnation.ended}
        try:
            if answering:
                self._polls.refresh(answering)
            self._polls.refresh_unknown(in_scope & known - answering)
        except TransientError:  # the service stops: its next run polls
            return


def _is_silent(poll: Poll[EngineView] | None) -> bool:
    return poll is not None and (poll.answer is None or bool(poll.answer.silent))
