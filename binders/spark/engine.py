"""The binder: a job is a program of the site's runner, with Spark in its own JVM."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from functools import cache
from pathlib import Path

from binders.process.engine import ProcessEngine
from binders.process.status import RunnerStatus
from speck.binding import (
    Artifact,
    ArtifactKind,
    Checkpointing,
    EngineCapability,
    EngineLimits,
    Submission,
)
from speck.errors import UnreachableError
from speck.model.observation import EngineView

_PARTITIONS = "state_partitions"
"""The counter in the report of a program of `speck_spark` whose query has a state."""


class SparkEngine(ProcessEngine):
    """Programs in PySpark, each one job; see `speck.binding.StreamEngine`. Thread-safe.

    Orders, states and figures are those of any program of the runner. A job's state is Spark's
    checkpoint, in which it goes on in place, and what its links keep beside that.
    """

    kind = "spark"
    capabilities = ProcessEngine.capabilities | {EngineCapability.RESEND}
    artifact_kinds = frozenset({ArtifactKind.PYFILE})
    machine_memory_mb: int | None = 4096
    """A job takes 1 to 2 GB, beside a broker and the system."""

    limits = EngineLimits(start_s=600.0, stop_idle_s=120.0)
    """A session takes minutes to start on a busy machine, and a program reports no progress of a
    stop: it lets the batch under way end."""

    def view(self) -> EngineView:
        view, status = super().view(), self._status()
        return EngineView(f"Spark {status.spark}, {view.version}", view.slots, view.jobs)

    def checkpointing(self, engine_job_id: str) -> Checkpointing | None:
        checkpointing = super().checkpointing(engine_job_id)
        if checkpointing is None:
            return None
        counters = self._known("read", engine_job_id).report.get("counters", {})
        return replace(checkpointing, parallelism=counters.get(_PARTITIONS))

    def resend(self, submission: Submission) -> None:
        self.submit(replace(submission, artifact=_resend_program(), entry=""))

    def _pick(self, status: RunnerStatus) -> RunnerStatus:
        if status.spark is None:
            raise UnreachableError(
                "cannot reach Spark: the site's runner was started without --spark-jar"
            )
        return super()._pick(status)


@cache
def _resend_program() -> Artifact:
    file = Path(__file__).with_name("resend_program.py")
    return Artifact(hashlib.sha256(file.read_bytes()).hexdigest(), file, ArtifactKind.PYFILE)
