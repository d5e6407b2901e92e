"""Reads which job a change has failed, and why."""

from __future__ import annotations

import threading
from collections import OrderedDict

from speck.deploy.changes import Running
from speck.model.plan_outline import OperationOutcome, OperationState
from speck.store.records import Records

_CHANGES_KEPT = 1000
"""How many changes' errors are kept: of those that were read last."""

_FROM_FAR = (
    OperationState.RUNNING,
    OperationState.SKIPPED,
    OperationState.FAILED,
    OperationState.BLOCKED,
)
"""The later, the nearer to the cause."""


class ChangeErrors:
    """The errors of changes, by job name. Those of a change that is over are read once."""

    def __init__(self, records: Records):
        self._records = records
        self._lock = threading.Lock()
        self._failed: OrderedDict[str, list[OperationOutcome]] = OrderedDict()

    def of(self, running: Running | None, last_change: str | None) -> dict[str, str]:
        """Job name -> the error of the newest change that concerns it: the one under way, or the
        last one."""
        if running is not None:
            operations = [o.outcome() for o in running.change.operations if o.error]
        else:
            operations = self._read(last_change) if last_change is not None else []
        errors: dict[str, str] = {}
        for state in _FROM_FAR:
            errors |= {
                o.job_name: str(o.error) for o in operations if o.state is state and o.job_name
            }
        silent = {o.id: o.error for o in operations if o.state is OperationState.BLOCKED}
        if running is not None and silent:
            for record in running.change.operations:
                waits_for = [silent[step] for step in record.step.after if step in silent]
                if waits_for and record.step.operation.job_name:
                    errors.setdefault(record.step.operation.job_name, str(waits_for[0]))
        return errors

    def _read(self, change_id: str) -> list[OperationOutcome]:
        with self._lock:
            if (known := self._failed.get(change_id)) is not None:
                self._failed.move_to_end(change_id)
                return known
        head = self._records.changes.head(change_id)
        failed = [o for o in self._records.changes.operations(change_id) if o.error]
        if head is not None and head.state.over:
            with self._lock:
                self._failed[change_id] = failed
                while len(self._failed) > _CHANGES_KEPT:
                    self._failed.popitem(last=False)
        return failed
