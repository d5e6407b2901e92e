"""Plans carried out over three memory sites and a real store."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from pathlib import Path

from speck.binding import Artifact
from speck.clock import SystemClock
from speck.deploy.execution import Bounds, Execution
from speck.deploy.operations import Operations, Patience, Refills, ResendRun, Resends
from speck.model.change import Change
from speck.model.engines import ArtifactKind
from speck.model.ids import engine_job_id
from speck.model.job import Job
from speck.model.job_operations import Start, Upload
from speck.model.link import Link
from speck.model.plan import Operation, Plan, Step
from speck.model.plan_outline import OperationOutcome, OperationState
from speck.service.agents import Agents
from speck.sites.connections import Connections
from speck.sites.identities import Identities
from speck.spec.site_schema import site_from_data
from speck.store.records import Records
from speck.store.tables import Batch
from tests.memory_fog import FAST, HASTY, site_body
from tests.service_helpers import LIMIT_S

SITES = ("edge-a", "edge-b", "cloud")
DONE, FAILED, SKIPPED = OperationState.DONE, OperationState.FAILED, OperationState.SKIPPED
CANCELLED, BLOCKED = OperationState.CANCELLED, OperationState.BLOCKED


class JumpingClock(SystemClock):
    """The machine's time, and what a test has added to it."""

    ahead_s = 0.0

    def monotonic(self) -> float:
        return super().monotonic() + self.ahead_s


class RecordingRecords(Records):
    """Notes in `log` each operation's state once it is on disk."""

    log: list[str]

    def write(self, *batches: Batch) -> None:
        super().write(*batches)
        for batch in batches:
            for record in batch.values():
                if isinstance(record, OperationOutcome):
                    self.log.append(f"{record.state} {record.kind} {record.site}")


@dataclass
class Bench:
    """Runs plans over three memory sites."""

    folder: Path
    records: RecordingRecords
    clock: JumpingClock = field(default_factory=JumpingClock)
    connections: Connections = field(init=False)

    def __post_init__(self) -> None:
        self.records.write(*(self.records.sites.put(site_from_data(site_body(s))) for s in SITES))
        self.connections = Connections(self.records.sites.all, self.folder)
        (self.folder / "a.jar").touch()

    def resends(self) -> Resends:
        run = ResendRun(
            self.connections,
            self.records,
            self.clock,
            lambda sha256: Artifact(sha256, self.folder / "a.jar", ArtifactKind.JAR),
            Agents(self.records, self.records.sites.all, self.clock),
        )
        return Resends(self.connections, self.records, self.clock, run)

    def execution(
        self, *steps: tuple[Operation, tuple[int, ...]], bounds: Bounds, patience: Patience
    ) -> Execution:
        numbered = tuple(
            Step(number, operation, after, "") for number, (operation, after) in enumerate(steps, 1)
        )
        return self.execution_of(numbered, bounds, patience)

    def execution_of(
        self, steps: tuple[Step, ...], bounds: Bounds = FAST, patience: Patience = HASTY
    ) -> Execution:
        operations = Operations(
            self.connections,
            self.records,
            self.clock,
            "c",
            lambda sha256: Artifact(sha256, self.folder / "a.jar", ArtifactKind.JAR),
            patience,
            Agents(self.records, self.records.sites.all, self.clock),
            Refills(self.connections, self.clock, patience.refill_s),
            self.resends(),
            Identities(self.records, self.connections, self.clock),
        )
        change = Change("1", Plan("c", (), steps), 1, "")
        return Execution(change, operations, self.connections, self.records, self.clock, bounds)

    def run(
        self,
        *steps: tuple[Operation, tuple[int, ...]],
        bounds: Bounds = FAST,
        patience: Patience = HASTY,
    ) -> Change:
        execution = self.execution(*steps, bounds=bounds, patience=patience)
        execution.run()
        return execution.change

    def start(
        self,
        *steps: tuple[Operation, tuple[int, ...]],
        bounds: Bounds = FAST,
        patience: Patience = HASTY,
    ) -> tuple[Execution, threading.Thread]:
        execution = self.execution(*steps, bounds=bounds, patience=patience)
        thread = threading.Thread(target=execution.run, daemon=True)
        thread.start()
        return execution, thread


def upload(site: str, jar: str = "a") -> Upload:
    return Upload(site, jar * 64)


def job(name: str, site: str = "edge-a") -> Job:
    return Job(
        job_name=name,
        site=site,
        source=Link(site, f"{name}-in"),
        sink=Link(site, f"{name}-out"),
        source_broker=f"tcp://{site}.test:1883",
        sink_broker=f"tcp://{site}.test:1883",
        entry_class="package.ExampleJob",
        artifact="a" * 64,
        artifact_kind=ArtifactKind.JAR,
    )


def start(name: str, site: str = "edge-a", attempt: int = 1, *, keeps_state: bool = False) -> Start:
    engine_id = engine_job_id("i", "c", name, 1, attempt)
    return Start(job(name, site), attempt, engine_id, False, keeps_state)


def states(change: Change) -> list[OperationState]:
    return [record.state for record in change.operations]


def join(thread: threading.Thread) -> None:
    thread.join(LIMIT_S)
    assert not thread.is_alive()
