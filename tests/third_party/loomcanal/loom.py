"""The engine's binder: orders to the runner at a site, and what that pushes of itself."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from speck.binding import (
    AddressRules,
    Artifact,
    ArtifactKind,
    CalibrationProgram,
    Checkpointing,
    EngineCapability,
    EngineEnd,
    JobException,
    Judgement,
    SavedState,
    SaveProgress,
    StateLayout,
    StatePlace,
    Submission,
    Target,
    Upload,
)
from speck.errors import DuplicateJobError, EngineRefusedError, UnreachableError
from speck.model.finding import Finding
from speck.model.observation import EngineJob, EngineView, RunState, Slots

EVERY_S = 0.05
"""Between two steps of a run with nothing to read."""


def judge_pattern(artifact: Artifact, entry: str, *, hint: bool = True) -> Judgement:
    if entry:
        return Judgement("a pattern has no entry; leave it out", at_entry=True)
    words = artifact.file.read_text().split()
    if words[:1] != ["weave"] or words[1:] not in (["upper"], ["count"]):
        return Judgement("it is no pattern like 'weave upper' or 'weave count'")
    return Judgement()


class LoomEngine:
    capabilities = frozenset({EngineCapability.STATE})
    addresses: AddressRules | None = None
    artifact_kinds = frozenset({ArtifactKind.TEXT})
    calibration: CalibrationProgram | None = None
    layout: StateLayout | None = StateLayout(
        (StatePlace("runs/{job}"),), ("steps/#",), needed=("claim.json",)
    )
    judge = staticmethod(judge_pattern)

    def __init__(self, target: Target) -> None:
        self._agent = target.agent
        self._timeout_s = target.timeout_s
        self._on_request = target.on_request
        self._least = 0

    def _status(self) -> dict[str, Any]:
        """What the runner has pushed. One that was written before the last order was carried out
        would tell of nothing that the order has changed."""
        until = time.monotonic() + self._timeout_s
        while (status := self._channel.status())["turn"] < self._least:
            if time.monotonic() > until:
                raise UnreachableError("cannot reach the loom: it tells nothing new")
            time.sleep(0.01)
        return status

    def _order(self, what: str, do: str, **more: Any) -> dict[str, Any]:
        answer = self._channel.order({"do": do, **more})
        self._on_request()
        self._least = max(self._least, answer["turn"])
        if (why := answer.get("refused")) is not None:
            error = DuplicateJobError if answer.get("twice") else EngineRefusedError
            raise error(f"cannot {what}: {why}")
        return answer

    @property
    def _channel(self) -> Any:
        if self._agent is None:
            raise UnreachableError("cannot reach the loom: its site has no agent")
        return self._agent

    def _run(self, engine_job_id: str) -> dict[str, Any] | None:
        """A run by our id, which is the label of the runner's own."""
        runs = self._status()["runs"].values()
        return next((each for each in runs if each["label"] == engine_job_id), None)

    def _known(self, what: str, engine_job_id: str) -> dict[str, Any]:
        run = self._run(engine_job_id)
        if run is None:
            raise EngineRefusedError(f"cannot {what} {engine_job_id}: the loom has no such run")
        return run

    def view(self) -> EngineView:
        status = self._status()
        slots = Slots(status["slots"], status["free"])
        return EngineView(status["version"], slots, self._jobs(status))

    def jobs(self) -> Mapping[str, EngineJob]:
        return self._jobs(self._status())

    def _jobs(self, status: Mapping[str, Any]) -> dict[str, EngineJob]:
        jobs = {}
        for run in status["runs"].values():
            state = RunState(run["state"])
            running = run["width"] if state is RunState.RUNNING else 0
            jobs[run["label"]] = EngineJob(run["label"], run["name"], state, running, run["width"])
        return jobs

    def upload(self, artifact: Artifact) -> None:
        if not artifact.file.is_file():
            raise EngineRefusedError(f"cannot upload {artifact.file}: no such file")
        self._channel.store(artifact)
        self._order("list artifacts", "look")

    def uploads(self) -> list[Upload]:
        return [Upload(sha256, at_ms) for sha256, at_ms in self._status()["artifacts"].items()]

    def delete_upload(self, sha256: str) -> None:
        self._order("delete an artifact", "discard", artifact=sha256)

    def submit(self, submission: Submission) -> str | None:
        if submission.artifact.sha256 not in self._status()["artifacts"]:
            self.upload(submission.artifact)
        self._order(
            f"start {submission.job_name}",
            "start",
            label=submission.engine_job_id,
            name=submission.job_name,
            artifact=submission.artifact.sha256,
            args=list(submission.args),
            width=submission.parallelism,
            state=submission.state,
        )
        return None

    def fence(self, engine_job_id: str, artifact: ArtifactKind) -> None:
        self._order(f"fence {engine_job_id}", "burn", label=engine_job_id)

    def status(self, engine_job_id: str) -> RunState | None:
        run = self._run(engine_job_id)
        return RunState(run["state"]) if run is not None else None

    def has_finished(self, engine_job_id: str) -> bool:
        run = self._known("read the end of", engine_job_id)
        return run["state"] == RunState.FINISHED and not run["saved"]

    def cancel(self, engine_job_id: str) -> None:
        if self._run(engine_job_id) is not None:
            self._order(f"cancel {engine_job_id}", "cancel", label=engine_job_id)

    def exceptions(self, engine_job_id: str) -> list[JobException]:
        run = self._run(engine_job_id)
        failures = run["failures"] if run is not None else []
        return [JobException(at, "LoomFailure", why, reason=why) for at, why in failures]

    def last_end(self) -> EngineEnd | None:
        return None

    def check(self) -> list[Finding]:
        self._status()
        return []

    def close(self) -> None:
        """There are no connections."""

    def stop(self, engine_job_id: str, folder: str | None, trigger_id: str) -> None:
        self._order("stop", "stop", label=engine_job_id, trigger=trigger_id)

    def save(self, engine_job_id: str, folder: str | None, trigger_id: str) -> None:
        self._order("save", "save", label=engine_job_id, trigger=trigger_id)

    def save_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        return self._progress("saving", engine_job_id, trigger_id)

    def checkpoint(self, engine_job_id: str, trigger_id: str) -> None:
        if self._run(engine_job_id) is not None:
            self._order("take a step", "step", label=engine_job_id, trigger=trigger_id)

    def checkpoint_progress(self, engine_job_id: str, trigger_id: str) -> SaveProgress:
        return self._progress("a step", engine_job_id, trigger_id)

    def _progress(self, what: str, engine_job_id: str, trigger_id: str) -> SaveProgress:
        run = self._known("read progress of", engine_job_id)
        progress = run["triggers"].get(trigger_id)
        if progress is None:
            raise EngineRefusedError(
                f"cannot read progress of {what}: nothing is known of {trigger_id}"
            )
        return SaveProgress(progress["done"], progress["location"], progress["failure"])

    def newest_state(self, engine_job_id: str) -> SavedState | None:
        run = self._known("read the steps of", engine_job_id)
        if run["step"] is None:
            return None
        return SavedState(run["step"], run["location"], run["at_ms"], 0, run["saved"])

    def checkpointing(self, engine_job_id: str) -> Checkpointing | None:
        run = self._run(engine_job_id)
        return Checkpointing(EVERY_S, run["step"], run["at_ms"]) if run is not None else None

    def state_folder(self) -> str | None:
        return f"file://{self._status()['folder']}/runs"
