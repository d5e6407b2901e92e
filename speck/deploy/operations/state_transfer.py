"""Transfers a job's state to a site that cannot read the storage of its present site."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace

from speck.binding import Transfer, TransferProgress
from speck.deploy.operations.context import Context
from speck.deploy.operations.outcome import Done, Outcome, Waiting
from speck.deploy.operations.states import newest_state
from speck.errors import PermanentError
from speck.model.incarnation import Incarnation, StateCopy
from speck.model.job_operations import Carry

Then = Callable[[Incarnation | None, str | None], Outcome]
"""Continues with the incarnation that left the newest state, and with the path from which the
target reads it."""


def carry(context: Context, operation: Carry) -> Outcome:
    """Transfer the newest state of a job to a site, unless the site can read it already."""
    incarnation = context.find_incarnation(operation.job_name)
    return bring(context, incarnation, operation.site, lambda _, __: Done())


def bring(context: Context, incarnation: Incarnation | None, site: str, then: Then) -> Outcome:
    """Find the newest state of `incarnation`, make sure that `site` can read it, and call `then`.

    Raises as `newest_state` does, and PermanentError when the state cannot be transferred.
    """
    source, path = newest_state(context, incarnation)
    if source is None or path is None or context.keeper.shares_storage(source.job.site, site):
        return then(source, path)
    copy = source.carried
    if copy is not None and (copy.origin, copy.site) == (path, site):
        return then(source, copy.location)
    identity = hashlib.sha256(f"{source.engine_job_id}|{path}|{site}".encode()).hexdigest()[:32]
    transfer = Transfer(
        identity, source.job.job_name, source.engine_job_id, source.job.site, site, path
    )
    return _StateTransfer(context, transfer, source, then).poll()


@dataclass(slots=True)
class _StateTransfer:
    """Waits until a state has arrived; the copy is stored with the incarnation that left it."""

    context: Context
    transfer: Transfer
    incarnation: Incarnation
    then: Then
    bytes: int = -1
    since: float = 0.0
    polled_at: float = 0.0

    def poll(self) -> Outcome:
        """Poll once. Raises PermanentError if the transfer failed, or made no progress for
        `carry_idle_s`."""
        progress = self.context.keeper.carry(self.transfer)
        self.polled_at = self.context.clock.monotonic()
        transfer = self.transfer
        what = f"the state of {transfer.job_name} from {transfer.source} to {transfer.target}"
        if progress.failure is not None:
            raise PermanentError(f"cannot carry {what}: {progress.failure}")
        if progress.done and progress.location is not None:
            return self._finish(progress.location)
        if progress.bytes > self.bytes:
            self.bytes, self.since = progress.bytes, self.polled_at
        if self.polled_at - self.since > self.context.patience.carry_idle_s:
            raise PermanentError(
                f"cannot carry {what}: nothing has come for"
                f" {self.context.patience.carry_idle_s:.0f} s ({_describe_progress(progress)})"
            )
        return Waiting(
            None,
            lambda _: self.context.clock.monotonic() - self.polled_at >= _POLL_S,
            self.poll,
            float("inf"),
            lambda: "",
            may_be_left=True,
            progress=_describe_progress(progress),
        )

    def _finish(self, location: str) -> Outcome:
        transfer = self.transfer
        copy = StateCopy(transfer.path, transfer.target, location)
        self.incarnation = replace(self.incarnation, carried=copy)
        newest = self.context.find_incarnation(transfer.job_name)
        incarnation = _add_copy(newest, transfer.engine_job_id, copy)
        if incarnation is not None:
            records = self.context.records
            records.write(records.incarnations.put(self.context.scope, incarnation))
        return self.then(self.incarnation, location)


def _add_copy(
    incarnation: Incarnation | None, engine_job_id: str, copy: StateCopy
) -> Incarnation | None:
    """`incarnation`, with the copy added to the one of that id among it and its bases."""
    if incarnation is None:
        return None
    if incarnation.engine_job_id == engine_job_id:
        return replace(incarnation, carried=copy)
    return replace(incarnation, base=_add_copy(incarnation.base, engine_job_id, copy))


def _describe_progress(progress: TransferProgress) -> str:
    return f"{progress.bytes} of {progress.total} bytes" if progress.total else "not begun"


_POLL_S = 0.1
