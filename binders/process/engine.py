"""The binder: orders to the runner at a site, and what that pushes of itself."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from binders.process.artifacts import has_module, judge_program
from binders.process.layout import LAYOUT
from binders.process.notes import find_notes
from binders.process.status import PROGRAM, ProgramStatus, RunnerStatus, parse_status
from speck.binding import (
    AddressRules,
    AgentChannel,
    Artifact,
    ArtifactKind,
    Checkpointing,
    EngineCapability,
    EngineEnd,
    JobException,
    SavedState,
    SaveProgress,
    StateLayout,
    Submission,
    Target,
    Upload,
)
from speck.errors import DuplicateJobError, EngineRefusedError, UnreachableError
from speck.model.finding import Finding
from speck.model.measurement import EngineMeasures, PlanNode
from speck.model.observation import EngineJob, EngineView, RunState

_PAUSE_S = 0.02
_RESEND = "speck_link.resend"
"""The module of the Python client that runs a sink alone."""


class ProcessEngine:
    """Programs of a site, each one job; see `speck.binding.StreamEngine`. Thread-safe.

    A program gets the job contract's arguments, SIGTERM when it is to save its state and end, and
    its folders in the environment (docs/binders.md, "Process").
    """

    kind = "process"
    own_process = True
    capabilities = frozenset(
        {
            EngineCapability.STATE,
            EngineCapability.METRICS,
            EngineCapability.MEMORY,
            EngineCapability.RESEND,
        }
    )
    addresses: AddressRules | None = None
    artifact_kinds = frozenset({ArtifactKind.PYFILE, ArtifactKind.ARCHIVE})
    layout: StateLayout | None = LAYOUT
    judge = staticmethod(judge_program)

    def __init__(self, target: Target) -> None:
        self._agent = target.agent
        self._timeout_s = target.timeout_s
        self._on_request = target.on_request
        self._least = 0

    def _status(self) -> RunnerStatus:
        """What the runner has pushed. One that was written before the last order was carried out
        would tell of nothing that the order has changed."""
        until = time.monotonic() + self._timeout_s
        while (status := parse_status(self._channel.status())).turn < self._least:
            if time.monotonic() > until:
                raise UnreachableError("cannot reach the runner: it reports nothing new")
            time.sleep(_PAUSE_S)
        return self._pick(status)

    def _pick(self, status: RunnerStatus) -> RunnerStatus:
        """A runner may have programs of several kinds of engines: those of this one."""
        own = {k: each for k, each in status.programs.items() if each.engine == self.kind}
        return replace(status, programs=own)

    def _order(self, what: str, do: str, **more: Any) -> None:
        answer = self._channel.order({"do": do, **more})
        self._on_request()
        turn = answer.get("turn")
        self._least = max(self._least, turn if isinstance(turn, int) else 0)
        if (why := answer.get("refused")) is not None:
            error = DuplicateJobError if answer.get("twice") else EngineRefusedError
            raise error(f"cannot {what}: {why}")

    @property
    def _channel(self) -> AgentChannel:
        if self._agent is None:
            raise UnreachableError("cannot reach the runner: its site has no agent")
        return self._agent

    def _known(self, what: str, engine_job_id: str) -> ProgramStatus:
        program = self._status().programs.get(engine_job_id)
        if program is None:
            raise EngineRefusedError(f"cannot {what} {engine_job_id}: no such program is known")
        return program

    def view(self) -> EngineView:
        status = self._status()
        return EngineView(status.version, status.slots, _list_jobs(status))

    def jobs(self) -> Mapping[str, EngineJob]:
        return _list_jobs(self._status())

    def upload(self, artifact: Artifact) -> None:
        if not artifact.file.is_file():
            raise EngineRefusedError(f"cannot upload {artifact.file}: no such file")
        self._channel.store(artifact)
        self._order("list artifacts", "look")

    def uploads(self) -> list[Upload]:
        return [Upload(sha256, at_ms) for sha256, at_ms in self._status().artifacts.items()]

    def delete_upload(self, sha256: str) -> None:
        self._order("delete an artifact", "discard", artifact=sha256)

    def submit(self, submission: Submission) -> str | None:
        if submission.artifact.sha256 not in self._status().artifacts:
            self.upload(submission.artifact)
        self._order(
            f"start {submission.job_name}",
            "start",
            engine=self.kind,
            label=submission.engine_job_id,
            name=submission.job_name,
            artifact=submission.artifact.sha256,
            kind=submission.artifact.kind,
            entry=submission.entry,
            args=list(submission.args),
            width=submission.parallelism,
            state=submission.state,
            memory_mb=submission.memory_mb,
        )
        return None

    def resend(self, submission: Submission) -> None:
        if not has_module(submission.artifact, _RESEND):
            raise EngineRefusedError(
                f"cannot send again what {submission.job_name} has sent: its program has no module"
                f" {_RESEND}, which the client in edge_jobs/python has"
            )
        self.submit(replace(submission, entry=_RESEND))

    def fence(self, engine_job_id: str, artifact: ArtifactKind) -> None:
        self._order(f"fence {engine_job_id}", "burn", label=engine_job_id, engine=self.kind)

    def status(self, engine_job_id: str) -> RunState | None:
        program = self._status().programs.get(engine_job_id)
        return program.state if program is not None else None

    def has_finished(self, engine_job_id: str) -> bool:
        program = self._known("read the end of", engine_job_id)
        return program.state is RunState.FINISHED and not program.saved

    def cancel(self, engine_job_id: str) -> None:
        program = self._status().programs.get(engine_job_id)
        if program is not None and not program.state.terminal:
            self._order(f"cancel {engine_job_id}", "cancel", label=engine_job_id)

    def exceptions(self, engine_job_id: str) -> list[JobException]:
        program = self._status().programs.get(engine_job_id)
        return program.list_failures() if program is not None else []

    def last_end(self) -> EngineEnd | None:
        """Programs outlive their runner."""
        self._status()
        return None

    def check(self) -> list[Finding]:
        """Notes on what the runner cannot do as it was started."""
        return find_notes(self._status())

    def close(self) -> None:
        """There are no connections."""

    def stop(self, engine_job_id: str, folder: str | None, trigger_id: str) -> None:
        self._order(f"stop {engine_job_id}", "stop", label=engine_job_id, trigger=trigger_id)

    def save(self, engine_job_id: str, folder: str | None, trigger_id: str) -> None:
        self._order(f"save {engine_job_id}", "save", label=engine_job_id, trigger=trigger_id)

    def save_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        return self._progress("saving", engine_job_id, trigger_id)

    def checkpoint(self, engine_job_id: str, trigger_id: str) -> None:
        if self._status().programs.get(engine_job_id) is not None:
            self._order(f"save {engine_job_id}", "save", label=engine_job_id, trigger=trigger_id)

    def checkpoint_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        return self._progress("a checkpoint", engine_job_id, trigger_id)

    def _progress(self, what: str, engine_job_id: str, trigger_id: str) -> SaveProgress:
        program = self._known(f"read progress of {what} of", engine_job_id)
        progress = program.find_progress(trigger_id)
        if progress is None:
            raise EngineRefusedError(
                f"cannot read progress of {what}: nothing is known of {trigger_id}"
            )
        return progress

    def newest_state(self, engine_job_id: str) -> SavedState | None:
        program = self._known("read the state of", engine_job_id)
        if program.step is None:
            return None
        return SavedState(program.step, program.location, program.at_ms, 0, program.saved)

    def checkpointing(self, engine_job_id: str) -> Checkpointing | None:
        program = self._status().programs.get(engine_job_id)
        if program is None:
            return None
        interval_ms = program.report.get("interval_ms")
        interval_s = interval_ms / 1000 if interval_ms else None
        return Checkpointing(interval_s, program.step, program.at_ms or None)

    def state_folder(self) -> str | None:
        return f"file://{self._status().folder}"

    def metrics(self, engine_job_id: str) -> Mapping[str, float]:
        return self._known("read metrics of", engine_job_id).list_metrics()

    def is_connected(self, engine_job_id: str) -> bool | None:
        connected: bool | None = self._known("read", engine_job_id).report.get("connected")
        return connected

    def measure(self, engine_job_ids: Sequence[str]) -> EngineMeasures:
        status = self._status()
        running = [
            program
            for each in engine_job_ids
            if (program := status.programs.get(each)) and program.state is RunState.RUNNING
        ]
        used = [each.bytes for each in status.programs.values() if each.bytes is not None]
        return EngineMeasures(
            {each.label: each.measure() for each in running},
            slots_total=status.slots.total,
            slots_free=status.slots.free,
            cores=status.cores,
            cpu_ms=status.cpu_ms.get(self.kind),
            memory_bytes=sum(used),
        )

    def job_plan(self, engine_job_id: str) -> tuple[PlanNode, ...]:
        program = self._known("read the plan of", engine_job_id)
        return (PlanNode(PROGRAM, f"the program {program.name}", program.width, None),)


def _list_jobs(status: RunnerStatus) -> dict[str, EngineJob]:
    return {label: program.to_job() for label, program in status.programs.items()}
