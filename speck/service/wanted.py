"""Which jobs are meant to run, by the newest revision that was accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speck.change import Cause
from speck.model import DesiredState, Drift, JsonObject
from speck.records import Records


@dataclass(frozen=True, slots=True)
class Policy:
    """How a job that is meant to run is looked after."""

    mend: bool


class Wanted:
    """Reads each revision once."""

    def __init__(self, records: Records):
        self._records = records
        self._read: dict[str, tuple[int, Mapping[str, Policy | None]]] = {}

    def removing(self, scope: str) -> bool:
        """Whether it was asked to be removed."""
        head = self._head(scope)
        return bool(head and head.get("removing"))

    def last_change(self, scope: str) -> str | None:
        """The id of a scope's newest change."""
        head = self._head(scope)
        return head.get("last_change") if head else None

    def repaired(self, scope: str) -> bool:
        """Whether the newest change of a scope was a repair."""
        head = self._head(scope)
        change = self._records.store.get(f"change/{head['last_change']}") if head else None
        return change is not None and change.get("cause") == Cause.REPAIR

    def jobs(self, scope: str) -> Mapping[str, Policy | None]:
        """Every job of a scope's newest revision; None for one that is to stand still."""
        head = self._head(scope)
        if head is None or head.get("deleted"):
            self._read.pop(scope, None)
            return {}
        known = self._read.get(scope)
        if known is None or known[0] != head["revision"]:
            known = head["revision"], self._of(scope, head)
            self._read[scope] = known
        return known[1]

    def _head(self, scope: str) -> JsonObject | None:
        alone = scope.startswith("~")
        return self._records.store.get(f"job/{scope[1:]}" if alone else f"head/{scope}")

    def _of(self, scope: str, head: JsonObject) -> dict[str, Policy | None]:
        if scope.startswith("~"):
            return {scope[1:]: _policy(head["description"], Drift.MEND)}
        record = self._records.store.get(f"rev/{scope}/{head['revision']:08d}")
        if record is None:
            return {}
        drift = record["description"].get("drift", Drift.MEND)
        jobs = record["description"]["jobs"]
        return {job["job_name"]: _policy(job, drift) for job in jobs}


def _policy(job: JsonObject, drift: str) -> Policy | None:
    if job.get("state", DesiredState.RUNNING) != DesiredState.RUNNING:
        return None
    return Policy(mend=drift == Drift.MEND)
