"""What a real Flink leaves is found by the agent, and restored by a Flink that cannot read it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from binders.flink.engine import FlinkEngine
from binders.flink.layout import LAYOUT
from speck.agent.folder import StateFolder
from speck.binding import Artifact, Submission, Target, Transfer
from speck.fog import flink as fog_flink
from speck.fog.flink import Flink
from speck.fog.flink_conf import FlinkSettings
from speck.fog.process import Command, Process, spawn
from speck.model.engines import ArtifactKind, EngineAt
from speck.model.observation import RunState
from speck.service import Service
from tests.agents import AgentProcess, answering, await_transfer, heard
from tests.apart import hiding, sees
from tests.flink_server import JOB_CLASS, sha256_of
from tests.memory_fog import memory_service, site_body
from tests.waiting import wait_for

pytestmark = pytest.mark.long  # quick: tests/e2e/test_carried.py

CONFIG = {
    "rest.cache.execution-graph.timeout": "50",
    "rest.cache.checkpoint-statistics.timeout": "50",
    # all state is then in files of its own beside _metadata
    "execution.checkpointing.data-inline-threshold": "0b",
}


@dataclass
class Place:
    """One site: an engine, its agent, its own state."""

    name: str
    server: Flink
    engine: FlinkEngine
    jar: Path

    def run(self, savepoint: str | None = None) -> str:
        desired = Submission(
            engine_job_id=uuid4().hex,
            job_name="trial",
            artifact=Artifact(sha256_of(self.jar), self.jar, ArtifactKind.JAR),
            entry=JOB_CLASS,
            args=("--job-name", "trial"),
            state=savepoint,
        )
        self.engine.submit(desired)
        job = desired.engine_job_id
        wait_for(lambda: self.engine.status(job) is RunState.RUNNING, "the job")
        return job

    def counted(self, job: str) -> int:
        """How many numbers the source has given out, restored ones included: the next split."""
        checkpoints = requests.get(f"{self.server.url}/jobs/{job}/checkpoints", timeout=20).json()
        restored = checkpoints["latest"]["restored"]
        return int(restored["id"]) if restored else 0

    def checkpointed(self, job: str, more: int = 1) -> int:
        def look() -> int | None:
            newest = self.engine.newest_state(job)
            return newest.number if newest and newest.number >= more else None

        return wait_for(look, "a checkpoint")


@dataclass
class Two:
    service: Service
    here: Place
    there: Place

    def carry(self, job: str, path: str) -> str:
        move = Transfer(uuid4().hex, "trial", job, self.here.name, self.there.name, path)
        progress = await_transfer(self.service, move)
        assert progress.failure is None
        assert progress.location is not None
        return progress.location


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory, trial_jar: Path) -> Iterator[Two]:
    """edge-a and edge-b: neither engine can read the other's state."""
    folder = tmp_path_factory.mktemp("two")
    bodies = [{**site_body(name), "labels": {}} for name in ("edge-a", "edge-b")]
    engines: list[Flink] = []
    agents: list[AgentProcess] = []
    with memory_service(folder, bodies) as service, answering(service) as url:
        places = []
        for name, other in (("edge-a", "edge-b"), ("edge-b", "edge-a")):
            hidden = folder / "states" / other

            def launch(command: Command, hidden: Path = hidden) -> Process:
                return spawn(hiding(command, [hidden]))

            state = folder / "states" / name
            settings = FlinkSettings(
                folder=folder / name,
                state=state,
                slots=2,
                checkpoint_interval_s=0.3,
                config=CONFIG,
            )
            server = fog_flink.start(settings, launch=launch)
            engines.append(server)
            places.append(Place(name, server, FlinkEngine(Target(server.url)), trial_jar))
            agents.append(AgentProcess(name, url, state, ["--listen", "127.7.8.1:0"]))
        heard(service, "edge-a", "edge-b")
        yield Two(service, *places)
        for agent in agents:
            agent.kill()
        for server in engines:
            server.stop()


def test_a_retained_checkpoint_is_restored_at_another_site(two: Two) -> None:
    job = two.here.run()
    two.here.checkpointed(job, 3)
    two.here.engine.cancel(job)
    wait_for(lambda: two.here.engine.status(job) is RunState.CANCELED, "its end")
    state = two.here.engine.newest_state(job)
    state_file = two.service.agents.newest(EngineAt("edge-a", ArtifactKind.JAR), job)
    assert state is not None
    assert state_file is not None
    assert not state_file.on_request
    assert state_file.number == state.number
    assert state_file.location.removeprefix("file://") == state.location.removeprefix("file:")
    files = [f.name for f in Path(state_file.location.removeprefix("file://")).iterdir()]
    assert len(files) > 1, "the state is not in files of its own: the test shows nothing"
    assert sees(two.there.server.processes["engine"], two.here.server.state) == []

    location = two.carry(job, state_file.location)
    again = two.there.run(location)
    assert two.there.counted(again) == state_file.number
    two.there.checkpointed(again, state_file.number + 2)
    two.there.engine.cancel(again)


def test_a_stops_savepoint_is_newer_than_the_checkpoints_before(two: Two) -> None:
    job, trigger = two.here.run(), uuid4().hex
    before = two.here.checkpointed(job, 2)
    target = f"file://{two.here.server.state}/savepoints/trial/{job}"
    two.here.engine.stop(job, target, trigger)
    progress = wait_for(
        lambda: p if (p := two.here.engine.save_progress(job, trigger)).done else None,
        "the savepoint",
    )
    assert progress.location is not None
    state_file = two.service.agents.newest(EngineAt("edge-a", ArtifactKind.JAR), job)
    assert state_file is not None
    assert state_file.on_request
    assert state_file.number > before
    assert state_file.location.removeprefix("file://") == progress.location.removeprefix("file:")

    again = two.there.run(two.carry(job, state_file.location))
    two.there.checkpointed(again, state_file.number + 1)
    two.there.engine.cancel(again)


def test_after_kill_9_of_the_jobmanager_the_site_still_knows_the_newest_state(two: Two) -> None:
    job = two.here.run()
    number = two.here.checkpointed(job, 2)
    two.here.server.processes["engine"].kill()
    state_file = two.service.agents.newest(EngineAt("edge-a", ArtifactKind.JAR), job)
    assert state_file is not None
    assert state_file.number >= number
    again = two.there.run(two.carry(job, state_file.location))
    assert two.there.counted(again) == state_file.number
    assert re.fullmatch(
        r"file:///.*/carried/trial/[0-9a-f]{32}", two.carry(job, state_file.location)
    )
    states = StateFolder(two.here.server.state).states(job, LAYOUT)
    assert states[0].number == state_file.number
