"""Which jobs are meant to run, by the newest revision that was accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from speck.model.change import Cause
from speck.model.composition import Drift
from speck.model.job import DesiredState
from speck.model.values import JsonObject
from speck.store.records import Records


@dataclass(frozen=True, slots=True)
class Policy:
    """How a job that is meant to run is looked after."""

    repair: bool


@dataclass(frozen=True, slots=True)
class Marks:
    """What a job's user says of it that rules no incarnation."""

    pinned: bool = False
    stateful: bool | None = None


class DesiredJobs:
    """Reads each revision once."""

    def __init__(self, records: Records):
        self._records = records
        self._read: dict[str, tuple[int, Mapping[str, Policy | None], Mapping[str, Marks]]] = {}

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
        change = self._records.change_heads.get(head["last_change"]) if head else None
        return change is not None and change.get("cause") == Cause.REPAIR

    def jobs(self, scope: str) -> Mapping[str, Policy | None]:
        """Every job of a scope's newest revision; None for one that is to stand still."""
        return self._newest(scope)[0]

    def marks(self, scope: str) -> Mapping[str, Marks]:
        """Every job of a scope's newest revision."""
        return self._newest(scope)[1]

    def _newest(self, scope: str) -> tuple[Mapping[str, Policy | None], Mapping[str, Marks]]:
        head = self._head(scope)
        if head is None or head.get("deleted"):
            self._read.pop(scope, None)
            return {}, {}
        known = self._read.get(scope)
        if known is None or known[0] != head["revision"]:
            jobs, drift = self._of(scope, head)
            policies = {name: _policy(job, drift) for name, job in jobs.items()}
            marks = {name: _marks(job) for name, job in jobs.items()}
            known = self._read[scope] = head["revision"], policies, marks
        return known[1:]

    def _head(self, scope: str) -> JsonObject | None:
        return self._records.heads.get(scope)

    def _of(self, scope: str, head: JsonObject) -> tuple[dict[str, JsonObject], str]:
        record = self._records.revisions.get(scope, head["revision"])
        if record is None:
            return {}, Drift.MEND
        jobs = record["description"]["jobs"]
        drift = record["description"].get("drift", Drift.MEND)
        return {job["job_name"]: job for job in jobs}, drift


def _policy(job: JsonObject, drift: str) -> Policy | None:
    if job.get("state", DesiredState.RUNNING) != DesiredState.RUNNING:
        return None
    return Policy(repair=drift == Drift.MEND)


def _marks(job: JsonObject) -> Marks:
    return Marks(job.get("pinned", False), job.get("stateful"))
