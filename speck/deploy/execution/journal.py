"""Records the outcome of each step of a change: in memory, in the store, and as events.

The order of the writes lets a change continue after a crash at any instant. The beginning of a step
is stored before its call is sent; its outcome is stored before any dependent step begins.
Failpoints mark both.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace

from speck import failpoints
from speck.clock import Clock, rfc3339
from speck.deploy.operations import Done
from speck.model.change import Change, ChangeState, OperationRecord
from speck.model.composition import visible_name
from speck.model.job_operations import Return
from speck.model.plan import Operation
from speck.model.plan_outline import OperationState, QueueOutline
from speck.store.records import Records
from speck.store.tables import Batch


class Journal:
    """Sets the states of a change's operations and stores them. Used by one thread."""

    def __init__(
        self, change: Change, records: Records, clock: Clock, on_progress: Callable[[], None]
    ):
        self._change = change
        self._records = records
        self._clock = clock
        self._on_progress = on_progress
        self._by_id = {record.step.id: record for record in change.operations}
        self._states = Counter(record.state for record in change.operations)
        self._begun: dict[int, float] = {}
        self._successes: dict[int, Done] = {}

    def operation(self, step_id: int) -> Operation:
        """What a step does."""
        return self._by_id[step_id].step.operation

    def list_blocked(self) -> list[int]:
        """The steps whose sites do not answer."""
        if not self._states[OperationState.BLOCKED]:
            return []
        return [i for i, r in self._by_id.items() if r.state is OperationState.BLOCKED]

    # -- while a step runs ----------------------------------------------------------------

    def record_success(self, step_id: int, outcome: Done) -> None:
        """A step has succeeded. It is done once `advance` has stored that: until then its job is
        still at work for those who judge it by the store."""
        self._successes[step_id] = outcome

    def list_succeeded(self) -> list[int]:
        """The steps that have succeeded and whose outcomes are not stored yet."""
        return list(self._successes)

    @property
    def outcomes(self) -> list[Done]:
        """Those that `advance` is to store."""
        return list(self._successes.values())

    def advance(self, spared: Iterable[int], begun: Iterable[int]) -> list[Done]:
        """Store in one write the outcomes of the steps that have succeeded, which are returned, the
        steps that are not needed since these succeeded, and that steps begin or are tried again:
        before their calls are sent."""
        successes, self._successes = self._successes, {}
        outcomes = list(successes.values())
        ended = [self._by_id[step_id] for step_id in successes]
        beginning = [self._by_id[step_id] for step_id in begun]
        for record in ended:
            failpoints.hit(failpoints.BEFORE_OUTCOME, record.step.operation.kind)
        for record in beginning:
            failpoints.hit(failpoints.BEFORE_INTENT, record.step.operation.kind)
        skipped = self._skip(spared)
        self._begin(beginning)
        if not (ended or beginning):
            return []
        done = [self._end_well(record) for record in ended]
        self._records.write(
            *(outcome.batch() for outcome in outcomes),
            *self._put_dropped(outcomes),
            self._records.changes.put_operations(self._change.id, [*done, *skipped, *beginning]),
            *(
                self._event(record.step.operation, f"done in {self._seconds(record):.1f} s")
                for record in ended
            ),
        )
        for record, after in zip(ended, done, strict=True):
            self._set(record, OperationState.DONE)
            record.ended, record.error, record.progress = after.ended, None, None
            failpoints.hit(failpoints.AFTER_OUTCOME, record.step.operation.kind)
        self._on_progress()
        return outcomes

    def _end_well(self, record: OperationRecord) -> OperationRecord:
        """What is stored of a step that has succeeded."""
        ended = rfc3339(self._clock.now())
        return replace(record, state=OperationState.DONE, ended=ended, error=None, progress=None)

    def _begin(self, records: Iterable[OperationRecord]) -> None:
        for record in records:
            record.attempts += 1
            self._begun.setdefault(record.step.id, self._clock.monotonic())
            if record.started is None:
                record.started = rfc3339(self._clock.now())
            if record.state is not OperationState.BLOCKED:
                self._set(record, OperationState.RUNNING)

    def _skip(self, step_ids: Iterable[int]) -> list[OperationRecord]:
        records = [self._by_id[step_id] for step_id in step_ids]
        for record in records:
            self._set(record, OperationState.SKIPPED)
            record.ended = rfc3339(self._clock.now())
        return records

    def record_waiting(self, step_id: int, progress: str | None, trouble: str | None) -> None:
        """A call has returned, and its step waits for the engine now; `trouble`: what delays it."""
        self._by_id[step_id].progress = progress
        self.record_answer(step_id)
        if trouble is not None:
            self._by_id[step_id].error = trouble

    def record_silence(self, step_id: int, error: BaseException) -> None:
        """The site of a step does not answer: the step is blocked."""
        record = self._by_id[step_id]
        record.error = str(error)
        if record.state is not OperationState.BLOCKED:
            self._set(record, OperationState.BLOCKED)
            self._records.write(
                self._records.changes.put_operations(self._change.id, [record]),
                self._event(record.step.operation, f"blocked: {record.error}"),
            )

    def record_answer(self, step_id: int) -> None:
        """The site of a step answers: the step is not blocked any more."""
        record = self._by_id[step_id]
        if record.state is not OperationState.BLOCKED:
            return
        self._set(record, OperationState.RUNNING)
        record.error = None
        operation = record.step.operation
        self._records.write(
            self._records.changes.put_operations(self._change.id, [record]),
            self._event(operation, f"goes on: {operation.site} answers again"),
        )

    def record_retry(self, step_id: int, error: BaseException, number: int) -> None:
        """A step is tried again for the `number`-th time. Only the first retry is an event; the
        operation's `attempts` counts them all."""
        self.record_answer(step_id)
        record = self._by_id[step_id]
        record.error = str(error)
        if number == 1:
            what = f"tried again: {record.error}"
            self._records.write(
                self._records.changes.put_operations(self._change.id, [record]),
                self._event(record.step.operation, what),
            )

    def record_error(self, step_id: int, error: BaseException) -> None:
        """Keep the error of a step that made no progress before the service stopped."""
        self._by_id[step_id].error = str(error)

    # -- a step ends ----------------------------------------------------------------------

    def _put_dropped(self, outcomes: Sequence[Done]) -> Iterator[Batch]:
        """The writes for the queues that steps have dropped."""
        change = self._change
        queues = [outcome.dropped for outcome in outcomes if outcome.dropped is not None]
        change.dropped += (QueueOutline.of(queue, is_dropped=True) for queue in queues)
        if queues:
            yield self._records.changes.put(change)
        for queue in queues:
            yield self._records.events.make(
                "session",
                queue.outcome,
                change=change.id,
                composition=visible_name(change.composition),
                site=queue.site,
                job_name=queue.job_name,
            )

    def end_failed(self, step_id: int, error: str, skipped: Iterable[int]) -> None:
        """A step has failed for good; the steps that need it are skipped."""
        record = self._by_id[step_id]
        records = [self._by_id[each] for each in skipped]
        for each in records:
            self._set(each, OperationState.SKIPPED)
            each.error = f"step {step_id} failed: {error}"
        self._end(record, OperationState.FAILED, error, records)

    def end_cancelled(self, step_id: int, error: BaseException) -> None:
        """A failed step is not tried again because its change was cancelled."""
        self._end(self._by_id[step_id], OperationState.CANCELLED, str(error), [])

    def cancel(self, step_ids: Iterable[int]) -> None:
        """Cancel those of the steps that have not ended."""
        records = [self._by_id[step_id] for step_id in sorted(step_ids)]
        records = [record for record in records if not record.state.over]
        for record in records:
            self._set(record, OperationState.CANCELLED)
            record.ended = rfc3339(self._clock.now())
        if records:
            self._records.write(self._records.changes.put_operations(self._change.id, records))

    def _end(
        self,
        record: OperationRecord,
        state: OperationState,
        error: str,
        skipped: Sequence[OperationRecord],
    ) -> None:
        record.error = error
        self._set(record, state)
        record.ended = rfc3339(self._clock.now())
        self._records.write(
            self._records.changes.put_operations(self._change.id, [record, *skipped]),
            self._event(record.step.operation, f"{state}: {error}"),
            *(self._event(r.step.operation, f"skipped: {r.error}") for r in skipped),
        )
        self._on_progress()

    # -- the change -----------------------------------------------------------------------

    def record_blocked(self) -> None:
        """The change is `blocked` while only unreachable sites keep it from ending."""
        stuck = self._states[OperationState.BLOCKED] and not self._states[OperationState.RUNNING]
        state = ChangeState.BLOCKED if stuck else ChangeState.RUNNING
        if state is not self._change.state:
            self._change.state = state
            self._records.write(self._records.changes.put(self._change))
            self._on_progress()

    def finish(self) -> ChangeState:
        """Set and return the final state of the change, by its steps; unchanged if some have not
        ended."""
        change = self._change
        if any(not record.state.over for record in change.operations):
            return change.state  # halted
        if self._states[OperationState.FAILED]:
            change.state = ChangeState.FAILED
            error = next(r.error for r in change.operations if r.state is OperationState.FAILED)
            parts = [str(error), *self._list_returns()]
            if change.reverts_to is not None:
                parts.append(
                    f"revision {change.reverts_to} is to be brought back first: apply again, or go"
                    " on without that with --drop-queues (?drop_queues=true); records may be lost"
                    " or come twice then"
                )
            change.error = "; ".join(parts)
        elif self._states[OperationState.CANCELLED]:
            change.state = ChangeState.CANCELLED
        else:
            change.state = ChangeState.DONE
        change.ended = rfc3339(self._clock.now())
        return change.state

    def _list_returns(self) -> list[str]:
        records = [r for r in self._change.operations if r.state is OperationState.DONE]
        return [
            f"{back.job_name} came back as attempt {back.attempt} on {back.site}"
            for back in (record.step.operation for record in records)
            if isinstance(back, Return)
        ]

    def _set(self, record: OperationRecord, state: OperationState) -> None:
        self._states[record.state] -= 1
        self._states[state] += 1
        record.state = state

    def _seconds(self, record: OperationRecord) -> float:
        """Seconds since the first call in this execution, waits included."""
        now = self._clock.monotonic()
        return now - self._begun.get(record.step.id, now)

    def _event(self, operation: Operation, what: str) -> Batch:
        return self._records.events.make(
            "operation",
            f"{operation}: {what}",
            change=self._change.id,
            composition=visible_name(self._change.composition),
            site=operation.site,
            job_name=operation.job_name,
        )
