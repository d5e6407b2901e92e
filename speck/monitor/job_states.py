"""Gathers what the state of each job follows from, and has it judged."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from speck.deploy.changes import Changes, Running
from speck.model.incarnation import Incarnation
from speck.model.job import DesiredState, Job, JobDescription
from speck.model.job_change import Action
from speck.model.plan_outline import OperationState
from speck.monitor.board import Board
from speck.monitor.change_errors import ChangeErrors
from speck.monitor.judge import Facts, JobStatus, Work, is_stuck, judge
from speck.spec.addresses import engine_address
from speck.spec.job_files import ARTIFACT
from speck.store.records import Records


@dataclass(frozen=True, slots=True)
class JudgedJob:
    """A job with its newest incarnation (None: it was never started), its status and its site."""

    description: JobDescription
    incarnation: Incarnation | None
    status: JobStatus
    site: str | None


class JobStates:
    """Reads the store, the changes under way and the board; asks no site."""

    def __init__(self, records: Records, changes: Changes, board: Board):
        self._records = records
        self._changes = changes
        self._board = board
        self.errors = ChangeErrors(records)
        self._engines: tuple[int, Mapping[str, str]] = -1, {}

    def of(
        self,
        descriptions: Mapping[str, JobDescription],
        scope: str,
        last_change: str | None,
        only: Collection[str] | None = None,
    ) -> Iterator[JudgedJob]:
        """Each job of a scope, and what is still being removed; `only` of some names."""
        inventory = self._records.incarnations.of_scope(scope)
        if only is not None:
            descriptions = {name: descriptions[name] for name in only if name in descriptions}
            inventory = {name: inventory[name] for name in only if name in inventory}
        running = self._changes.under_way(scope)
        errors = self.errors.of(running, last_change)
        work = list_work(running) if running is not None else {}
        removed = _list_removed(running) if running is not None else frozenset()
        engines = self._find_engines()
        leftover = {
            name: _describe(incarnation.job)
            for name, incarnation in inventory.items()
            if name not in descriptions
        }
        for name, description in {**descriptions, **leftover}.items():
            incarnation = inventory.get(name)
            if incarnation is None and name in removed:
                continue
            facts = self._gather(scope, description, incarnation, work.get(name), errors.get(name))
            engine = engines.get(engine_address(description) or "")
            site = description.site or engine
            yield JudgedJob(
                description,
                incarnation,
                judge(facts),
                incarnation.job.site if incarnation is not None else site,
            )

    def _find_engines(self) -> Mapping[str, str]:
        """The names of sites by the addresses of their engines: a list of all jobs needs them once
        for each composition."""
        version = self._records.sites.writes
        if self._engines[0] != version:
            sites = self._records.sites.all().values()
            addresses = {site.spe.address: site.name for site in sites if site.spe.address}
            self._engines = version, addresses
        return self._engines[1]

    def is_stuck(self, scope: str, incarnation: Incarnation) -> bool:
        """Whether an incarnation takes nothing: it is stalled, or its engine keeps restarting
        it."""
        return is_stuck(self._gather(scope, None, incarnation, None, None))

    def _gather(
        self,
        scope: str,
        description: JobDescription | None,
        incarnation: Incarnation | None,
        work: Work | None,
        error: str | None,
    ) -> Facts:
        wanted = description.state if description is not None else DesiredState.RUNNING
        if incarnation is None:
            return Facts(wanted, start=None, work=work, error=error)
        key = scope, incarnation.job.job_name
        return Facts(
            wanted,
            incarnation.start,
            incarnation.end,
            incarnation.base is not None,
            work,
            error,
            self._board.observed(key, incarnation),
            self._board.finding(key, incarnation),
        )


def list_work(running: Running) -> dict[str, Work]:
    """What a change under way does to each job."""
    operations: defaultdict[str, set[OperationState]] = defaultdict(set)
    silent = {
        record.step.id
        for record in running.change.operations
        if record.state is OperationState.BLOCKED
    }
    for record in running.change.operations:
        if record.step.operation.job_name:
            states = operations[record.step.operation.job_name]
            states.add(record.state)
            if silent.intersection(record.step.after):  # e.g. the upload of a shared artifact
                states.add(OperationState.BLOCKED)
    actions = {change.job_name: change.action for change in running.change.plan.jobs}
    return {
        name: Work(actions.get(name, Action.UNCHANGED), frozenset(states))
        for name, states in operations.items()
    }


def _list_removed(running: Running) -> frozenset[str]:
    changes = running.change.plan.jobs
    return frozenset(each.job_name for each in changes if each.action is Action.REMOVE)


def _describe(job: Job) -> JobDescription:
    """A description of a job as it runs, though no revision names it any more."""
    return JobDescription(
        job_name=job.job_name,
        source_topic=job.source.topic,
        sink_topic=job.sink.topic,
        entry_class=job.entry_class,
        job_path=f"{ARTIFACT}{job.artifact}",
        site=job.site,
        source_site=job.source_site,
        sink_site=job.sink_site,
        **job.options(),
    )
