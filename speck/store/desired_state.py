"""The desired state: which jobs should run, by the newest accepted revision."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from speck.binding import normalise_address
from speck.model.change import Cause
from speck.model.composition import Drift
from speck.model.job import DesiredState
from speck.model.link import Link
from speck.model.values import JsonObject
from speck.store.records import Records


@dataclass(frozen=True, slots=True)
class Marks:
    """Options of a job that do not affect its incarnation."""

    pinned: bool = False
    stateful: bool | None = None


@dataclass(frozen=True, slots=True)
class _Newest:
    """What is wanted of a scope's newest revision."""

    repairs: Mapping[str, bool | None] = field(default_factory=dict)
    marks: Mapping[str, Marks] = field(default_factory=dict)
    inputs: frozenset[Link] = frozenset()


class DesiredJobs:
    """The desired jobs of each scope; parses each revision once."""

    def __init__(self, records: Records):
        self._records = records
        self._parsed: dict[str, tuple[object, _Newest]] = {}

    def is_removing(self, scope: str) -> bool:
        """Whether a user has requested the removal of a scope."""
        head = self._head(scope)
        return bool(head and head.get("removing"))

    def last_change(self, scope: str) -> str | None:
        """Return the id of a scope's newest change."""
        head = self._head(scope)
        return head.get("last_change") if head else None

    def is_last_change_repair(self, scope: str) -> bool:
        """Whether the newest change of a scope was a repair."""
        head = self._head(scope)
        change = self._records.change_heads.get(head["last_change"]) if head else None
        return change is not None and change.get("cause") == Cause.REPAIR

    def jobs(self, scope: str) -> Mapping[str, bool | None]:
        """Every job of a scope's newest revision, to whether speck repairs it when it does not run;
        None for a job that should be stopped."""
        return self._newest(scope).repairs

    def marks(self, scope: str) -> Mapping[str, Marks]:
        """The marks of every job of a scope's newest revision."""
        return self._newest(scope).marks

    def is_input(self, scope: str, link: Link) -> bool:
        """Whether a scope's newest revision declares the link as fed from outside."""
        return link in self._newest(scope).inputs

    def _newest(self, scope: str) -> _Newest:
        head = self._head(scope)
        if head is None or head.get("deleted"):
            self._parsed.pop(scope, None)
            return _Newest()
        entry = self._parsed.get(scope)
        version = head["revision"], self._records.site_writes  # inputs may name addresses
        if entry is None or entry[0] != version:
            entry = self._parsed[scope] = version, self._load(scope, head)
        return entry[1]

    def _head(self, scope: str) -> JsonObject | None:
        return self._records.heads.get(scope)

    def _load(self, scope: str, head: JsonObject) -> _Newest:
        record = self._records.revisions.get(scope, head["revision"])
        if record is None:
            return _Newest()
        description = record["description"]
        drift = description.get("drift", Drift.MEND)
        return _Newest(
            {job["job_name"]: _is_repaired(job, drift) for job in description["jobs"]},
            {job["job_name"]: _marks(job) for job in description["jobs"]},
            frozenset(self._list_inputs(description.get("inputs") or ())),
        )

    def _list_inputs(self, ports: Iterable[JsonObject]) -> Iterator[Link]:
        """The links that a description declares as fed from outside."""
        names = {site.broker.address: site.name for site in self._records.sites().values()}
        for port in ports:
            name = port.get("site")
            if name is None and port.get("broker") is not None:
                name = names.get(normalise_address(port["broker"]))
            if name is not None:
                yield Link(name, port["topic"])


def _is_repaired(job: JsonObject, drift: str) -> bool | None:
    if job.get("state", DesiredState.RUNNING) != DesiredState.RUNNING:
        return None
    return drift == Drift.MEND


def _marks(job: JsonObject) -> Marks:
    return Marks(job.get("pinned", False), job.get("stateful"))
