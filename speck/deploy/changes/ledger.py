"""Stores a change from its start to its end, each stage in one write.

A change whose end is not stored is continued at the next start of the service, unless a request to
end it is stored.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator

from speck.clock import Clock, rfc3339
from speck.deploy.adoption import list_sessions, take_in
from speck.deploy.change_intent import put_result
from speck.model.change import Cause, Change, ChangeReport
from speck.model.composition import job_posted_alone, visible_name
from speck.store.records import Records
from speck.store.tables import Batch


class ChangeLedger:
    """Writes changes to the store, and reads back those that were interrupted."""

    def __init__(self, records: Records, clock: Clock):
        self._records = records
        self._clock = clock

    def check_writable(self) -> None:
        """Raises StoreError when the store takes no writes."""
        self._records.store.check_writable()

    def accept(self, change: Change, batch: Batch, adopted: Collection[str] = ()) -> None:
        """Store a new change together with the writes in `batch` that it was accepted with. Jobs
        posted alone that are `adopted` move into its composition."""
        self._records.write(
            batch,
            take_in(self._records, change.composition, adopted),
            self._records.changes.put(change),
            self._records.changes.put_operations(change.id, change.operations),
            self._event(change, "accepted"),
        )

    def list_sessions(self, job_names: Collection[str]) -> list[str]:
        """The sessions, by client id, of jobs posted alone."""
        return list_sessions(self._records, job_names)

    def record_wish_to_end(self, change: Change) -> None:
        """Store the request to end a change: it is not continued after a restart either."""
        now = rfc3339(self._clock.now())
        self._records.write(self._records.changes.put_ending(change.id, now))

    def go_on(self, change: Change) -> None:
        """A change that was planned again goes on; its new operations replace the earlier ones."""
        self._records.write(
            self._records.changes.drop_operations(change.id),
            self._records.changes.put(change),
            self._records.changes.put_outcomes(change.id, change.earlier),
            self._records.changes.put_operations(change.id, change.operations),
            self._event(change, f"goes on with {len(change.operations)} operations planned anew"),
        )

    def pause(self, change: Change) -> None:
        """Record that a change pauses because the service stops."""
        self._records.write(self._event(change, "pauses: the service stops", kind="service"))

    def end(self, change: Change) -> None:
        """Store the end of a change and its result."""
        change.ended = rfc3339(self._clock.now())
        self._records.write(
            put_result(change, self._records),
            self._records.changes.put(change),
            self._records.changes.put_outcomes(change.id, change.earlier),
            self._records.changes.put_operations(change.id, change.operations),
            self._records.changes.drop_ending(change.id),
            self._event(change, str(change.state)),
        )

    # -- after a restart ------------------------------------------------------------------

    def find_cut_short(self) -> Iterator[Change]:
        """The changes whose end is not stored, oldest first."""
        for head in list(self._records.changes.heads()):
            if not head.state.over:
                operations = self._records.changes.operations(head.id)
                yield Change.from_store(ChangeReport.of(head, operations))

    def record_cut_short(self, change: Change) -> None:
        """Record that a change was under way when the service stopped."""
        self._records.write(
            self._event(change, "was cut short: the service stopped", kind="service")
        )

    def find_wishes_to_end(self) -> set[str]:
        """The ids of the changes with a stored request to end."""
        return self._records.changes.endings()

    def drop_wishes(self, change_ids: set[str]) -> None:
        """Drop the requests to end these changes: they have ended."""
        self._records.write(*map(self._records.changes.drop_ending, change_ids))

    def _event(self, change: Change, what: str, kind: str = "change") -> Batch:
        composition, alone = visible_name(change.composition), job_posted_alone(change.composition)
        noun = "change" if change.cause is Cause.APPLY else str(change.cause)
        return self._records.events.make(
            kind,
            f"{noun} of {composition or alone} {what}"
            + (f": {change.error}" if change.error else ""),
            change=change.id,
            composition=composition,
            job_name=alone,
            by=change.by,
        )
