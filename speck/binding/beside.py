"""Two engines at one site: the site's own, and one that runs programs beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock

from speck.binding.artifacts import Artifact, ArtifactKind
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
from speck.errors import PermanentError
from speck.model.finding import Finding
from speck.model.measurement import EngineMeasures, PlanNode
from speck.model.observation import EngineJob, EngineView, RunState

_REMEMBERED = 10_000


class EnginesBeside:
    """A job runs on the first engine that takes its kind of artifact.

    `other` must have the capability `state` if `main` has it: what a site's engine can do is asked
    by site. What else `other` lacks is done without for its jobs: nothing is tried, nothing is
    measured.
    """

    def __init__(
        self, main: StreamEngine, other: StreamEngine, main_takes: frozenset[ArtifactKind]
    ):
        """Raises PermanentError if the two do not go together."""
        state = EngineCapability.STATE
        if state in main.capabilities and state not in other.capabilities:
            raise PermanentError(
                f"cannot use an engine beside another that has the capability `{state}`, and it has"
                " not"
            )
        self._main, self._other, self._main_takes = main, other, main_takes
        self._lock = Lock()
        self._owners: dict[str, StreamEngine] = {}

    @property
    def capabilities(self) -> frozenset[EngineCapability]:
        """Those of the site's own engine."""
        return self._main.capabilities

    def view(self) -> EngineView:
        view, beside = self._main.view(), self._other.view()
        version = f"{view.version}, {beside.version}"
        return replace(view, version=version, jobs={**beside.jobs, **view.jobs})

    def jobs(self) -> Mapping[str, EngineJob]:
        return {**self._other.jobs(), **self._main.jobs()}

    def upload(self, artifact: Artifact) -> None:
        self._taker(artifact.kind).upload(artifact)

    def uploads(self) -> list[Upload]:
        return [*self._main.uploads(), *self._other.uploads()]

    def delete_upload(self, sha256: str) -> None:
        for engine in (self._main, self._other):
            engine.delete_upload(sha256)

    def submit(self, submission: Submission) -> str | None:
        engine = self._taker(submission.artifact.kind)
        self._remember(submission.engine_job_id, engine)
        return engine.submit(submission)

    def fence(self, engine_job_id: str, artifact: ArtifactKind) -> None:
        """Where the submission went. At both it could not be repeated when one of them has not
        answered: the other would know the id."""
        engine = self._taker(artifact)
        self._remember(engine_job_id, engine)
        engine.fence(engine_job_id, artifact)

    def status(self, engine_job_id: str) -> RunState | None:
        state = self._main.status(engine_job_id)
        return state if state is not None else self._other.status(engine_job_id)

    def has_finished(self, engine_job_id: str) -> bool:
        return self._owner(engine_job_id).has_finished(engine_job_id)

    def cancel(self, engine_job_id: str) -> None:
        self._owner(engine_job_id).cancel(engine_job_id)

    def exceptions(self, engine_job_id: str) -> list[JobException]:
        return self._owner(engine_job_id).exceptions(engine_job_id)

    def last_end(self) -> EngineEnd | None:
        return self._main.last_end() or self._other.last_end()

    def check(self) -> list[Finding]:
        return [*self._main.check(), *self._other.check()]

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
        return self._owner(engine_job_id).checkpointing(engine_job_id)

    def state_folder(self) -> str | None:
        return self._main.state_folder()

    def try_main(self, submission: Submission) -> Trial:
        engine = self._taker(submission.artifact.kind)
        if EngineCapability.TRIAL not in engine.capabilities:
            return Trial()
        return engine.try_main(submission)

    def resend(self, submission: Submission) -> None:
        self._taker(submission.artifact.kind).resend(submission)

    def metrics(self, engine_job_id: str) -> Mapping[str, float]:
        engine = self._owner(engine_job_id)
        return engine.metrics(engine_job_id) if _measures(engine) else {}

    def measure(self, engine_job_ids: Sequence[str]) -> EngineMeasures:
        """The figures of the site's own engine, with the jobs of both."""
        measures = self._main.measure(engine_job_ids)
        if not _measures(self._other):
            return measures
        beside = self._other.measure(engine_job_ids)
        return replace(measures, jobs={**beside.jobs, **measures.jobs})

    def job_plan(self, engine_job_id: str) -> tuple[PlanNode, ...]:
        engine = self._owner(engine_job_id)
        return engine.job_plan(engine_job_id) if _measures(engine) else ()

    def _find_folder(self, owner: StreamEngine, folder: str | None) -> str | None:
        """Folders that are asked for are laid out as the site's own engine does it."""
        return folder if owner is self._main else None

    def _taker(self, artifact: ArtifactKind) -> StreamEngine:
        return self._main if artifact in self._main_takes else self._other

    def _owner(self, engine_job_id: str) -> StreamEngine:
        """The engine that knows a job; the main one if none does. Raises SpeckError."""
        with self._lock:
            known = self._owners.get(engine_job_id)
        if known is not None:
            return known
        for engine in (self._main, self._other):
            if engine.status(engine_job_id) is not None:
                self._remember(engine_job_id, engine)
                return engine
        return self._main

    def _remember(self, engine_job_id: str, engine: StreamEngine) -> None:
        with self._lock:
            self._owners[engine_job_id] = engine
            if len(self._owners) > _REMEMBERED:
                del self._owners[next(iter(self._owners))]


def _measures(engine: StreamEngine) -> bool:
    return EngineCapability.METRICS in engine.capabilities
