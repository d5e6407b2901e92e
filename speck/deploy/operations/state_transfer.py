"""How a job's state gets to a site that cannot read the storage where it lies."""

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
from speck.model.plan import Carry

Then = Callable[[Incarnation | None, str | None], Outcome]
"""What goes on with the incarnation that left the newest state, and where the target reads it."""


def carry(context: Context, operation: Carry) -> Outcome:
    """Bring the newest state of a job to a site; nothing happens when it can be read there."""
    deployed = context.deployed(operation.job_name)
    return bring(context, deployed, operation.site, lambda _, __: Done())


def bring(context: Context, deployed: Incarnation | None, site: str, then: Then) -> Outcome:
    """Find the newest state of `deployed`, see to it that `site` can read it, and go on.

    Raises as `newest_state` does, and PermanentError when it cannot be carried.
    """
    found, path = newest_state(context, deployed)
    if found is None or path is None or context.keeper.shares_storage(found.job.site, site):
        return then(found, path)
    carried = found.carried
    if carried is not None and (carried.origin, carried.site) == (path, site):
        return then(found, carried.location)
    identity = hashlib.sha256(f"{found.engine_job_id}|{path}|{site}".encode()).hexdigest()[:32]
    transfer = Transfer(
        identity, found.job.job_name, found.engine_job_id, found.job.site, site, path
    )
    return _Carrying(context, transfer, found, then).poll()


@dataclass(slots=True)
class _Carrying:
    """Waits until a state has arrived; the copy is noted with the incarnation that left it."""

    context: Context
    transfer: Transfer
    found: Incarnation
    then: Then
    bytes: int = -1
    since: float = 0.0
    looked: float = 0.0

    def poll(self) -> Outcome:
        """Look once. Raises PermanentError when it failed, or for `carry_idle_s` no byte came."""
        progress = self.context.keeper.carry(self.transfer)
        self.looked = self.context.clock.monotonic()
        transfer = self.transfer
        what = f"the state of {transfer.job_name} from {transfer.source} to {transfer.target}"
        if progress.failure is not None:
            raise PermanentError(f"cannot carry {what}: {progress.failure}")
        if progress.done and progress.location is not None:
            return self._arrived(progress.location)
        if progress.bytes > self.bytes:
            self.bytes, self.since = progress.bytes, self.looked
        if self.looked - self.since > self.context.patience.carry_idle_s:
            raise PermanentError(
                f"cannot carry {what}: nothing has come for"
                f" {self.context.patience.carry_idle_s:.0f} s ({_so_far(progress)})"
            )
        return Waiting(
            None,
            lambda _: self.context.clock.monotonic() - self.looked >= _LOOK_S,
            self.poll,
            float("inf"),
            lambda: "",
            may_be_left=True,
            progress=_so_far(progress),
        )

    def _arrived(self, location: str) -> Outcome:
        transfer = self.transfer
        carried = StateCopy(transfer.path, transfer.target, location)
        self.found = replace(self.found, carried=carried)
        known = self.context.deployed(transfer.job_name)
        noted = _with_copy(known, transfer.engine_job_id, carried)
        if noted is not None:
            records = self.context.records
            records.write(records.put_incarnation(self.context.scope, noted))
        return self.then(self.found, location)


def _with_copy(
    deployed: Incarnation | None, engine_job_id: str, carried: StateCopy
) -> Incarnation | None:
    """`deployed`, with the copy noted at the incarnation of that id in its line."""
    if deployed is None:
        return None
    if deployed.engine_job_id == engine_job_id:
        return replace(deployed, carried=carried)
    return replace(deployed, base=_with_copy(deployed.base, engine_job_id, carried))


def _so_far(progress: TransferProgress) -> str:
    return f"{progress.bytes} of {progress.total} bytes" if progress.total else "not begun"


_LOOK_S = 0.1
