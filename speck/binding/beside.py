"""Two engines at one site: the site's own, and one that runs programs beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import TypeVar

from speck.binding.artifacts import Artifact
from speck.binding.engine import (
    EngineCapability,
    EngineEnd,
    JobException,
    StreamEngine,
    Submission,
    Trial,
    Upload,
)
from speck.binding.states import Checkpointing, SavedState, SaveProgress
from speck.errors import SpeckError
from speck.model.engines import ArtifactKind
from speck.model.finding import Finding
from speck.model.measurement import EngineMeasures, PlanNode
from speck.model.observation import EngineJob, EngineView, RunState

_REMEMBERED = 10_000
_Number = TypeVar("_Number", int, float)


class EnginesBeside:
    """A job runs on the first engine that takes its kind of artifact (`find_taker`); what is done
    for one job alone is asked of that engine.

    This is both at once, for what is asked of a site. One that does not answer takes nothing from
    what the other says.
    """

    def __init__(
        self, main: StreamEngine, other: StreamEngine, main_takes: frozenset[ArtifactKind]
    ):
        self._main, self._other, self._main_takes = main, other, main_takes
        self._lock = Lock()
        self._owners: dict[str, StreamEngine] = {}

    @property
    def capabilities(self) -> frozenset[EngineCapability]:
        """What one of them can do; a job's engine is `find_taker`'s."""
        return self._main.capabilities | self._other.capabilities

    def find_taker(self, artifact: ArtifactKind) -> StreamEngine:
        """The engine that takes a kind of artifact."""
        return self._main if artifact in self._main_takes else self._other

    def view(self) -> EngineView:
        """What the engines that answer know. Raises SpeckError if none does."""
        taken_beside = frozenset(ArtifactKind) - self._main_takes
        try:
            view = self._view(self._main)
        except SpeckError as error:
            silent = dict.fromkeys(self._main_takes, str(error))
            return replace(self._view(self._other), slots=None, silent=silent)
        try:
            beside = self._view(self._other)
        except SpeckError as error:
            silent = dict.fromkeys(taken_beside, str(error))
            return replace(view, silent=silent, beside=taken_beside)
        return replace(
            view,
            version=f"{view.version}, {beside.version}",
            jobs={**beside.jobs, **view.jobs},
            beside=taken_beside,
        )

    def _view(self, engine: StreamEngine) -> EngineView:
        view = engine.view()
        for engine_job_id in view.jobs:
            self._remember(engine_job_id, engine)
        return view

    def jobs(self) -> Mapping[str, EngineJob]:
        """All of both: who waits for a job asks its engine alone."""
        return {**self._other.jobs(), **self._main.jobs()}

    def upload(self, artifact: Artifact) -> None:
        self.find_taker(artifact.kind).upload(artifact)

    def uploads(self) -> list[Upload]:
        return [*self._main.uploads(), *self._other.uploads()]

    def delete_upload(self, sha256: str) -> None:
        for engine in (self._main, self._other):
            engine.delete_upload(sha256)

    def submit(self, submission: Submission) -> str | None:
        engine = self.find_taker(submission.artifact.kind)
        self._remember(submission.engine_job_id, engine)
        return engine.submit(submission)

    def fence(self, engine_job_id: str, artifact: ArtifactKind) -> None:
        """Where the submission went. At both it could not be repeated when one of them has not
        answered: the other would know the id."""
        engine = self.find_taker(artifact)
        self._remember(engine_job_id, engine)
        engine.fence(engine_job_id, artifact)

    def status(self, engine_job_id: str) -> RunState | None:
        return self._owner(engine_job_id).status(engine_job_id)

    def has_finished(self, engine_job_id: str) -> bool:
        return self._owner(engine_job_id).has_finished(engine_job_id)

    def cancel(self, engine_job_id: str) -> None:
        self._owner(engine_job_id).cancel(engine_job_id)

    def exceptions(self, engine_job_id: str) -> list[JobException]:
        return self._owner(engine_job_id).exceptions(engine_job_id)

    def last_end(self) -> EngineEnd | None:
        return self._main.last_end() or self._other.last_end()

    def check(self) -> list[Finding]:
        """The findings about both; that one does not answer is a finding, too. Raises SpeckError if
        none does."""
        findings, errors = list[Finding](), list[SpeckError]()
        for engine in (self._main, self._other):
            try:
                findings += engine.check()
            except SpeckError as error:
                errors.append(error)
        if len(errors) == 2:
            raise errors[0]
        return [*findings, *map(_describe_silence, errors)]

    def close(self) -> None:
        for engine in (self._main, self._other):
            engine.close()

    def stop(self, engine_job_id: str, folder: str | None, trigger_id: str) -> None:
        owner = self._owner(engine_job_id)
        owner.stop(engine_job_id, self._find_folder(owner, folder), trigger_id)

    def save(self, engine_job_id: str, folder: str | None, trigger_id: str) -> None:
        owner = self._owner(engine_job_id)
        owner.save(engine_job_id, self._find_folder(owner, folder), trigger_id)

    def save_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        return self._owner(engine_job_id).save_progress(engine_job_id, trigger_id)

    def checkpoint(self, engine_job_id: str, trigger_id: str) -> None:
        self._owner(engine_job_id).checkpoint(engine_job_id, trigger_id)

    def checkpoint_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        return self._owner(engine_job_id).checkpoint_progress(engine_job_id, trigger_id)

    def newest_state(self, engine_job_id: str) -> SavedState | None:
        return self._owner(engine_job_id).newest_state(engine_job_id)

    def checkpointing(self, engine_job_id: str) -> Checkpointing | None:
        """None also of a job whose engine keeps no states."""
        engine = self._owner(engine_job_id)
        keeps = EngineCapability.STATE in engine.capabilities
        return engine.checkpointing(engine_job_id) if keeps else None

    def state_folder(self) -> str | None:
        """That of the site's own engine, if it keeps states."""
        keeps = EngineCapability.STATE in self._main.capabilities
        return self._main.state_folder() if keeps else None

    def try_main(self, submission: Submission) -> Trial:
        engine = self.find_taker(submission.artifact.kind)
        if EngineCapability.TRIAL not in engine.capabilities:
            return Trial()
        return engine.try_main(submission)

    def resend(self, submission: Submission) -> None:
        self.find_taker(submission.artifact.kind).resend(submission)

    def metrics(self, engine_job_id: str) -> Mapping[str, float]:
        engine = self._owner(engine_job_id)
        return engine.metrics(engine_job_id) if _measures(engine) else {}

    def is_connected(self, engine_job_id: str) -> bool | None:
        engine = self._owner(engine_job_id)
        return engine.is_connected(engine_job_id) if _measures(engine) else None

    def measure(self, engine_job_ids: Sequence[str]) -> EngineMeasures:
        """The figures of the site's own engine, with the jobs of both; CPU time and memory are
        those of both together, unknown while one does not answer. Raises SpeckError if none that
        measures answers."""
        measuring = [engine for engine in (self._main, self._other) if _measures(engine)]
        together, errors = EngineMeasures(), list[SpeckError]()
        for engine in measuring:
            try:
                measures = engine.measure(engine_job_ids)
            except SpeckError as error:
                errors.append(error)
                continue
            own = measures if engine is self._main else together
            together = replace(
                own,
                jobs={**together.jobs, **measures.jobs},
                cpu_ms=_add(together.cpu_ms, measures.cpu_ms),
                memory_bytes=_add(together.memory_bytes, measures.memory_bytes),
            )
        if errors and len(errors) == len(measuring):
            raise errors[0]
        return replace(together, cpu_ms=None, memory_bytes=None) if errors else together

    def job_plan(self, engine_job_id: str) -> tuple[PlanNode, ...]:
        engine = self._owner(engine_job_id)
        return engine.job_plan(engine_job_id) if _measures(engine) else ()

    def _find_folder(self, owner: StreamEngine, folder: str | None) -> str | None:
        """Folders that are asked for are laid out as the site's own engine does it."""
        return folder if owner is self._main else None

    def _owner(self, engine_job_id: str) -> StreamEngine:
        """The engine that knows a job; the main one if none does. Raises SpeckError if that cannot
        be told, since one does not answer."""
        with self._lock:
            known = self._owners.get(engine_job_id)
        if known is not None:
            return known
        failure: SpeckError | None = None
        for engine in (self._main, self._other):
            try:
                knows = engine.status(engine_job_id) is not None
            except SpeckError as error:
                failure = failure or error
                continue
            if knows:
                self._remember(engine_job_id, engine)
                return engine
        if failure is not None:
            raise failure
        return self._main

    def _remember(self, engine_job_id: str, engine: StreamEngine) -> None:
        with self._lock:
            self._owners[engine_job_id] = engine
            if len(self._owners) > _REMEMBERED:
                del self._owners[next(iter(self._owners))]


def _describe_silence(error: SpeckError) -> Finding:
    return Finding("error", "one of two engines", "no answer", str(error), "")


def _measures(engine: StreamEngine) -> bool:
    return EngineCapability.METRICS in engine.capabilities


def _add(one: _Number | None, other: _Number | None) -> _Number | None:
    """The sum of those that are known."""
    known = [each for each in (one, other) if each is not None]
    return sum(known[1:], known[0]) if known else None
