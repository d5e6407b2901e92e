"""Changes in the store: each without its operations, the operations with their outcomes, and the
requests to end one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from speck.model.change import Change, ChangeHead, ChangeReport, OperationRecord
from speck.model.plan_outline import OperationOutcome
from speck.store.tables import Batch, Tables


@dataclass(frozen=True, slots=True)
class EndingMark:
    at: str


class ChangeRecords:
    """All changes. `change/<id>`, `op/<id>/<step>`, `ending/<id>`."""

    def __init__(self, tables: Tables):
        self._heads = tables.table("change", ChangeHead)
        self._operations = tables.table("op", OperationOutcome, digits=6)
        self._endings = tables.table("ending", EndingMark)

    def heads(self) -> Iterator[ChangeHead]:
        """Heads of all changes, oldest first (ids begin with the time)."""
        return self._heads.values()

    def head(self, change_id: str) -> ChangeHead | None:
        """A change without its operations."""
        return self._heads.get(change_id)

    def get(self, change_id: str) -> ChangeReport | None:
        """A change with its operations."""
        head = self.head(change_id)
        return None if head is None else ChangeReport.of(head, self.operations(change_id))

    def last_id(self) -> str | None:
        """The id of the newest change."""
        return self._heads.last_id()

    def operations(self, change_id: str) -> list[OperationOutcome]:
        """A change's operations with their outcomes, in the order of the plan."""
        return list(self._operations.values(change_id))

    def put(self, change: Change) -> Batch:
        return self._heads.put(change.head(), change.id)

    def put_operations(self, change_id: str, operations: Iterable[OperationRecord]) -> Batch:
        return self.put_outcomes(change_id, (operation.outcome() for operation in operations))

    def put_outcomes(self, change_id: str, operations: Iterable[OperationOutcome]) -> Batch:
        return {self._operations.key(change_id, each.id): each for each in operations}

    def drop_operations(self, change_id: str) -> Batch:
        numbers = (number for number, _ in self._operations.scan(change_id))
        return {self._operations.key(change_id, number): None for number in numbers}

    def drop(self, change_id: str) -> Batch:
        """Delete a change with its operations."""
        return {**self._heads.drop(change_id), **self.drop_operations(change_id)}

    def key(self, change_id: str) -> str:
        """The key of the head of a change."""
        return self._heads.key(change_id)

    # -- requests to end one --------------------------------------------------------------

    def endings(self) -> set[str]:
        """The ids of the changes with a stored request to end."""
        return {change_id for change_id, _ in self._endings.scan()}

    def put_ending(self, change_id: str, at: str) -> Batch:
        return self._endings.put(EndingMark(at), change_id)

    def drop_ending(self, change_id: str) -> Batch:
        return self._endings.drop(change_id)
