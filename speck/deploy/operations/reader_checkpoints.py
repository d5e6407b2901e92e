"""The checkpoints of a reader that is drained: with each it reports what it has taken."""

from __future__ import annotations

from contextlib import suppress

from speck.binding import StreamEngine
from speck.deploy.operations.connecting import is_connected
from speck.deploy.operations.context import Context
from speck.errors import EngineRefusedError, SpeckError, UnreachableError
from speck.model.link_operations import Drain
from speck.model.observation import RunState

_EVERY_S = 0.15


class ReaderCheckpoints:
    """Asks for checkpoints, and counts them."""

    def __init__(self, operation: Drain, context: Context):
        self._operation = operation
        self._context = context
        self._asked_s = float("-inf")
        self._asked: str | None = None
        self._asked_at: int | None = None
        self._completed = 0
        """Checkpoints that were asked for and have completed without a new number: an engine may
        keep the state as it is when nothing was taken."""

    @property
    def engine(self) -> StreamEngine:
        """That of the reader."""
        operation, context = self._operation, self._context
        if context.find_incarnation(operation.job_name) is None:  # whoever knows it there
            return context.connections.engine(operation.reader_site)
        where = context.find_engine(operation.job_name, operation.engine_job_id)
        return context.connections.engine_of(where)

    def count(self, seen: int | None) -> int | None:
        """A number that rises with each checkpoint of the reader; None unless the reader runs and
        is connected. `seen` is the last one."""
        job_id = self._operation.engine_job_id
        try:
            engine = self.engine
            if engine.status(job_id) is not RunState.RUNNING:
                return None
            has_completed = self._has_completed(engine)  # asked first: its state is there then
            state = engine.newest_state(job_id)
            if state is None:
                return None
            number = state.number + self._completed
            if has_completed and number == self._asked_at:
                self._completed += 1
                number += 1
            if number != seen and not is_connected(engine, job_id):
                return None
            return number
        except UnreachableError:
            if self._operation.followed:  # it cannot be stopped either: wait for its site
                raise
            return None
        except SpeckError:
            return None

    def ask(self, now: float, seen: int | None) -> None:
        """Trigger a checkpoint: the reader reports with it, and the drain waits for that report."""
        if now - self._asked_s >= _EVERY_S:
            self._asked_s = now
            trigger_id = self._context.clock.new_id()
            with suppress(SpeckError):  # the engine takes its own checkpoints, too
                self.engine.checkpoint(self._operation.engine_job_id, trigger_id)
                if self._asked is None:
                    self._asked, self._asked_at = trigger_id, seen

    def _has_completed(self, engine: StreamEngine) -> bool:
        """Whether the checkpoint that was asked for first has completed since the last poll."""
        if self._asked is None:
            return False
        try:
            progress = engine.checkpoint_progress(self._operation.engine_job_id, self._asked)
        except EngineRefusedError:  # it is not known any more
            self._asked = None
            return False
        if progress.done:
            self._asked = None
        return progress.done and progress.failure is None
