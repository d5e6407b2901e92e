"""What every engine's binder has to keep; run on the memory binder, on real Flink, on real
processes, on real Spark, and on the simulated Flink that experiments use."""

from __future__ import annotations

import asyncio
import shutil
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol, cast
from unittest.mock import patch
from uuid import uuid4

import pytest

from bench.simulated_flink import NONE, listen
from binders.memory import MemoryEngine, World
from speck.agent.folder import StateFolder
from speck.binding import (
    Artifact,
    ArtifactKind,
    Checkpointing,
    EngineCapability,
    EnginePoll,
    EnginesBeside,
    SavedState,
    SaveProgress,
    StreamEngine,
    Submission,
    Target,
    Trial,
    artifact_kinds,
    open_engine,
    poll_engine,
    state_layout,
)
from speck.errors import (
    DuplicateJobError,
    EngineRefusedError,
    SpeckError,
    UnreachableError,
)
from speck.fog.paths import edge_jar
from speck.model.measurement import COUNTS, TIMES, EngineMeasures, JobMeasure
from speck.model.observation import RunState
from tests.channels import LocalChannel
from tests.declared import Need, make_need
from tests.flink_server import (
    JOB_CLASS,
    FlinkServer,
    build_trial_jar,
    flink_1_20,
    flink_cluster,
    sha256_of,
)
from tests.process_programs import SPARK_JAR
from tests.runners import PROGRAMS, LocalRunner
from tests.third_party_kinds import third_party
from tests.waiting import wait_for


class Bench(Protocol):
    """An engine seen from the other side."""

    slots: int
    jar: Path
    figures: frozenset[str]
    """What it measures of a job, and of itself."""
    wavering: frozenset[str]
    """Of these, what may fall by a moment."""

    def open(self) -> StreamEngine: ...

    def open_absent(self) -> StreamEngine:
        """A binder for an address where nothing answers."""

    def work(self) -> None:
        """Let jobs take checkpoints, if they do not by themselves."""

    def folder(self) -> str:
        """A folder of its own for a savepoint."""

    def bounded(self) -> tuple[str, ...]:
        """The arguments of a job whose sources end soon."""


class MemoryBench:
    slots = 8
    figures = frozenset({"records_in", "records_out"})
    wavering = frozenset[str]()

    def __init__(self, jar: Path) -> None:
        self.world = World.reset(slots=self.slots)
        self.jar = jar
        jar.write_bytes(b"a jar")

    def open(self) -> StreamEngine:
        return open_engine("memory", Target("http://site:8081"))

    def open_absent(self) -> StreamEngine:
        self.world.engine("http://absent:8081").unreachable = True
        return open_engine("memory", Target("http://absent:8081"))

    def work(self) -> None:
        self.world.pump()

    def folder(self) -> str:
        return f"shared:/{uuid4().hex}"

    def bounded(self) -> tuple[str, ...]:
        self.world.engine("http://site:8081").bounded.add("trial")
        return ()


class FlinkBench:
    figures = frozenset({*TIMES, "cores", "engine_cpu_ms", "memory_bytes"})
    # what is neither idle nor back-pressured: an idle moment counts as busy until it has ended
    wavering = frozenset({"busy_ms"})

    def __init__(self, server: FlinkServer, jar: Path) -> None:
        self.server = server
        self.slots = server.settings.slots
        self.jar = jar

    def open(self) -> StreamEngine:
        return open_engine("flink", Target(self.server.url))

    def open_absent(self) -> StreamEngine:
        return open_engine("flink", Target("http://127.0.0.1:1", timeout_s=2.0))

    def work(self) -> None:
        """Flink's jobs work by themselves."""

    def folder(self) -> str:
        return f"file://{self.server.state_dir}/{uuid4().hex}"

    def bounded(self) -> tuple[str, ...]:
        return ("--records", "20")


class SimulatedBench:
    """The real binder, connected to bench/simulated_flink.py."""

    slots = 8
    figures = frozenset[str]()
    wavering = frozenset[str]()

    def __init__(self, url: str, jar: Path) -> None:
        self.url = url
        self.jar = jar
        jar.write_bytes(b"a jar")

    def open(self) -> StreamEngine:
        return open_engine("flink", Target(self.url))

    def open_absent(self) -> StreamEngine:
        return open_engine("flink", Target("http://127.0.0.1:1", timeout_s=2.0))

    def work(self) -> None:
        """Its checkpoints follow from the clock."""

    def folder(self) -> str:
        return f"file:///state/{uuid4().hex}"

    def bounded(self) -> tuple[str, ...]:
        raise NotImplementedError("its jobs run until they are stopped")


class SilentChannel:
    def status(self) -> dict[str, Any]:
        raise UnreachableError("cannot reach the agent of absent: it is silent")

    def order(self, order: dict[str, Any]) -> dict[str, Any]:
        return self.status()

    def store(self, artifact: Artifact) -> None:
        self.status()


class LoomBench:
    """A third party's engine behind the agent of its site."""

    slots = 8
    figures = frozenset[str]()
    wavering = frozenset[str]()

    def __init__(self, folder: Path) -> None:
        from loomcanal.runner import LoomRunner

        self.runner = LoomRunner(folder / "state", self.slots)
        self.channel = LocalChannel(folder / "state")
        self._folder = folder
        self.jar = folder / "pattern.txt"
        self.jar.write_text("weave count")

    def open(self) -> StreamEngine:
        return open_engine("loom", Target("", agent=self.channel))

    def open_absent(self) -> StreamEngine:
        return open_engine("loom", Target("", timeout_s=2.0, agent=SilentChannel()))

    def work(self) -> None:
        """It takes steps by itself."""

    def folder(self) -> str:
        return "its states stay where they are"

    def bounded(self) -> tuple[str, ...]:
        return ("--records", "5")

    def restart(self) -> None:
        """Start it again after it has died."""
        from loomcanal.runner import LoomRunner

        self.runner = LoomRunner(self._folder / "state", self.slots)


class ProcessBench:
    """Programs under a runner, behind the agent of its site."""

    slots = 8
    figures = frozenset(
        (
            *(*TIMES, "cpu_ms", "records_in", "records_out", "checkpoint_bytes"),
            *("cores", "engine_cpu_ms", "memory_bytes"),
        )
    )
    wavering = frozenset[str]()

    def __init__(self, folder: Path) -> None:
        self.runner = LocalRunner(folder / "state", self.slots)
        self.channel = LocalChannel(folder / "state")
        self.jar = folder / "stepping.py"
        shutil.copy(PROGRAMS / "stepping.py", self.jar)

    def open(self) -> StreamEngine:
        return open_engine("process", Target("", agent=self.channel))

    def open_absent(self) -> StreamEngine:
        return open_engine("process", Target("", timeout_s=2.0, agent=SilentChannel()))

    def work(self) -> None:
        """Programs work by themselves."""

    def folder(self) -> str:
        return "states stay where they are"

    def bounded(self) -> tuple[str, ...]:
        return ("--records", "5")


class SparkBench(ProcessBench):
    """Programs in PySpark under a runner, each with a session of its own."""

    slots = 2
    figures = ProcessBench.figures - {"records_out"}  # the program has no link

    def __init__(self, folder: Path, program: str) -> None:
        jar = edge_jar(SPARK_JAR)
        settings = {"spark_jar": jar, "spark_memory_mb": 1536}
        self.runner = LocalRunner(folder / "state", self.slots, **settings)
        self.channel = LocalChannel(folder / "state")
        self.jar = folder / program
        shutil.copy(PROGRAMS / program, self.jar)

    def open(self) -> StreamEngine:
        return open_engine("spark", Target("", agent=self.channel))

    def open_absent(self) -> StreamEngine:
        return open_engine("spark", Target("", timeout_s=2.0, agent=SilentChannel()))


TWO_AT_ONCE = frozenset(
    (
        "test_a_job_goes_on_without_its_upload_and_another_starts",
        "test_a_job_goes_on_from_a_savepoint",
        "test_it_tells_of_the_work_of_jobs_that_run",
        "test_several_threads_may_submit_at_once",
    )
)
"""Here jobs of Spark start no session: a machine for tests has no room for two at a time."""


class BesideBench(MemoryBench):
    """The memory engine, with a loom beside it: for all of these jobs nothing is different."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / "trial.jar")
        self.loom = LoomBench(folder)
        self.runner = self.loom.runner

    def open(self) -> StreamEngine:
        main, takes = super().open(), artifact_kinds("memory")
        return cast(StreamEngine, EnginesBeside(main, self.loom.open(), takes))

    def silence(self, which: str) -> None:
        """Let one of them not answer the next time an id is to be fenced."""
        lost = UnreachableError("cannot reach it: it is silent")
        if which == "main":
            self.world.engine("http://site:8081").refuse("fence", 1, lost)
        else:
            self.loom.channel.lost.append(lost)

    def open_absent(self) -> StreamEngine:
        main, takes = super().open_absent(), artifact_kinds("memory")
        return cast(StreamEngine, EnginesBeside(main, self.loom.open_absent(), takes))

    def away(self, which: str) -> StreamEngine:
        """The two, of which one does not answer."""
        main = super().open_absent() if which == "main" else super().open()
        other = self.loom.open_absent() if which == "other" else self.loom.open()
        return cast(StreamEngine, EnginesBeside(main, other, artifact_kinds("memory")))


@pytest.fixture(scope="session")
def simulated_flink() -> Iterator[str]:
    """The URL of a simulated Flink without any latency."""
    loop = asyncio.new_event_loop()
    servers = loop.run_until_complete(listen(["127.0.0.1"], 0, SimulatedBench.slots, 0.3, NONE))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{servers[0].sockets[0].getsockname()[1]}"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    servers[0].close()
    loop.close()


@pytest.fixture(scope="session")
def two_jvms(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkServer]:
    with flink_cluster(tmp_path_factory.mktemp("two-jvms"), kind="cluster") as server:
        yield server


@pytest.fixture(scope="session")
def older_flink(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FlinkServer]:
    folder = tmp_path_factory.mktemp("flink-1.20")
    with flink_cluster(folder, kind="cluster", home=flink_1_20()) as server:
        yield server


@pytest.fixture(scope="session")
def older_jar(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_trial_jar(tmp_path_factory.mktemp("trial-job-1.20"), flink_1_20())


REPEATED = (
    *("loom", "memory with a loom beside it", "flink in two JVMs", "flink 1.20", "spark"),
    "process",  # quick: tests/services/test_process_sites.py
)
SIMULATED = pytest.param("simulated flink", marks=pytest.mark.long)
WHOLE = (
    *("memory", "flink"),
    *(pytest.param(kind, marks=pytest.mark.long) for kind in REPEATED),
)


@pytest.fixture(params=[*WHOLE, SIMULATED])
def bench(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Bench]:
    if request.param in ("process", "spark"):
        is_light = request.node.originalname in TWO_AT_ONCE
        program = "stepping.py" if is_light else "counting_in_spark.py"
        is_spark = request.param == "spark"
        process = SparkBench(tmp_path, program) if is_spark else ProcessBench(tmp_path)
        yield process
        process.runner.stop()
    elif "loom" in request.param:
        with third_party():
            loom = LoomBench(tmp_path) if request.param == "loom" else BesideBench(tmp_path)
            yield loom
            loom.runner.stop()
    else:
        yield _find_bench(request, tmp_path)


def _find_bench(request: pytest.FixtureRequest, tmp_path: Path) -> Bench:
    if request.param == "memory":
        return MemoryBench(tmp_path / "trial.jar")
    if request.param == "simulated flink":
        url = request.getfixturevalue("simulated_flink")
        return SimulatedBench(url, tmp_path / "trial.jar")
    server, jar = {
        "flink": ("flink", "trial_jar"),
        "flink in two JVMs": ("two_jvms", "trial_jar"),
        "flink 1.20": ("older_flink", "older_jar"),
    }[request.param]
    return FlinkBench(request.getfixturevalue(server), request.getfixturevalue(jar))


@pytest.fixture
def engine(bench: Bench) -> Iterator[StreamEngine]:
    engine = bench.open()
    yield engine
    for job in engine.view().jobs.values():
        if not job.state.terminal:
            engine.cancel(job.engine_job_id)
    wait_for(lambda: _free(engine) == bench.slots, "all slots to be free again")
    engine.close()


def submission(
    bench: Bench,
    *args: str,
    job: str | None = None,
    parallelism: int = 1,
    savepoint: str | None = None,
) -> Submission:
    is_program = bench.jar.suffix == ".py"
    kind = ArtifactKind.PYFILE if is_program else ArtifactKind.JAR
    return Submission(
        engine_job_id=job or uuid4().hex,
        job_name="trial",
        artifact=Artifact(sha256_of(bench.jar), bench.jar, kind),
        entry="" if is_program else JOB_CLASS,
        args=("--job-name", "trial", *args),
        parallelism=parallelism,
        state=savepoint,
    )


@pytest.fixture
def need(request: pytest.FixtureRequest) -> Need:
    return make_need(request)


def _free(engine: StreamEngine) -> int:
    slots = engine.view().slots
    assert slots is not None
    return slots.free


def becomes(engine: StreamEngine, job: str, state: RunState) -> None:
    wait_for(lambda: engine.status(job) is state, f"job {job} to be {state}")


def run(engine: StreamEngine, desired: Submission) -> str:
    engine.submit(desired)
    becomes(engine, desired.engine_job_id, RunState.RUNNING)
    return desired.engine_job_id


def await_finish(engine: StreamEngine, job: str, trigger: str) -> SaveProgress:
    def look() -> SaveProgress | None:
        progress = engine.save_progress(job, trigger)
        return progress if progress.done else None

    return wait_for(look, "the savepoint")


def checkpointed(bench: Bench, engine: StreamEngine, job: str) -> SavedState:
    def look() -> SavedState | None:
        bench.work()
        return engine.newest_state(job)

    return wait_for(look, "a checkpoint")


def stop(bench: Bench, engine: StreamEngine, job: str) -> str:
    trigger = uuid4().hex
    engine.stop(job, bench.folder(), trigger)
    progress = await_finish(engine, job, trigger)
    assert progress.failure is None
    assert progress.location is not None
    becomes(engine, job, RunState.FINISHED)
    return progress.location


def test_an_idle_engine_tells_version_and_slots(bench: Bench, engine: StreamEngine) -> None:
    view = engine.view()
    assert view.version
    assert view.slots is not None
    assert (view.slots.total, view.slots.free) == (bench.slots, bench.slots)
    assert engine.capabilities <= frozenset(EngineCapability)


def test_a_jar_that_is_nowhere_is_refused(bench: Bench, engine: StreamEngine) -> None:
    with pytest.raises(EngineRefusedError, match=r"^cannot upload"):
        engine.upload(Artifact("1" * 64, bench.jar.with_name("absent.jar"), ArtifactKind.JAR))


def test_an_upload_is_listed_once_until_it_is_deleted(bench: Bench, engine: StreamEngine) -> None:
    sha256 = sha256_of(bench.jar)
    for _ in range(2):
        engine.upload(Artifact(sha256, bench.jar, ArtifactKind.JAR))
    (upload,) = [each for each in engine.uploads() if each.sha256 == sha256]
    assert upload.at_ms > 0
    for _ in range(2):
        engine.delete_upload(sha256)
    assert sha256 not in {each.sha256 for each in engine.uploads()}


def test_a_job_goes_on_without_its_upload_and_another_starts(
    bench: Bench, engine: StreamEngine
) -> None:
    job = run(engine, submission(bench))
    engine.delete_upload(sha256_of(bench.jar))
    other = run(engine, submission(bench))
    assert engine.status(job) is RunState.RUNNING
    assert sha256_of(bench.jar) in {each.sha256 for each in engine.uploads()}
    for each in (job, other):
        engine.cancel(each)


def test_trying_main_starts_nothing(bench: Bench, engine: StreamEngine, need: Need) -> None:
    engine = need(engine, EngineCapability.TRIAL)
    desired = submission(bench)
    engine.try_main(desired)
    assert engine.status(desired.engine_job_id) is None
    assert desired.engine_job_id not in engine.view().jobs


def test_a_trial_shows_the_parallelism(bench: Bench, engine: StreamEngine, need: Need) -> None:
    engine = need(engine, EngineCapability.TRIAL)
    assert engine.try_main(submission(bench, parallelism=2)) == Trial(parallelism=2)


def test_a_submitted_job_runs_under_the_chosen_id(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench, parallelism=2))
    view = engine.view()
    assert view.jobs[job].name == "trial"
    assert view.jobs[job].state is RunState.RUNNING
    assert view.jobs[job].tasks_running == view.jobs[job].tasks_total > 0
    assert view.slots is not None
    assert view.slots.free == bench.slots - 2


def test_an_id_in_use_is_refused_and_the_job_goes_on(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    with pytest.raises(DuplicateJobError, match=r"^cannot start trial"):
        engine.submit(submission(bench, job=job))
    assert engine.status(job) is RunState.RUNNING


def test_the_id_of_an_ended_job_is_refused(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    engine.cancel(job)
    becomes(engine, job, RunState.CANCELED)
    with pytest.raises(DuplicateJobError):
        engine.submit(submission(bench, job=job))
    assert engine.status(job) is RunState.CANCELED


def test_an_unknown_job_is_unknown_and_nothing_else(bench: Bench, engine: StreamEngine) -> None:
    nobody = uuid4().hex
    assert engine.status(nobody) is None
    assert engine.exceptions(nobody) == []
    asks = [engine.newest_state, engine.has_finished]
    if EngineCapability.METRICS in engine.capabilities:
        asks += [engine.job_plan, engine.metrics, engine.is_connected]
    for ask in asks:
        with pytest.raises(EngineRefusedError, match=rf"^cannot .*{nobody}"):
            ask(nobody)


def test_stopping_an_unknown_job_never_looks_like_success(
    bench: Bench, engine: StreamEngine
) -> None:
    nobody, trigger = uuid4().hex, uuid4().hex
    try:
        engine.stop(nobody, bench.folder(), trigger)
    except EngineRefusedError:
        return
    progress = await_finish(engine, nobody, trigger)
    assert progress.location is None
    assert progress.failure is not None


def test_cancel_is_harmless_when_the_job_is_gone(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    engine.cancel(job)
    engine.cancel(job)
    becomes(engine, job, RunState.CANCELED)
    engine.cancel(job)
    engine.cancel(uuid4().hex)
    assert engine.status(job) is RunState.CANCELED


def test_a_burnt_id_never_runs(bench: Bench, engine: StreamEngine) -> None:
    desired = submission(bench)
    engine.fence(desired.engine_job_id, desired.artifact.kind)
    with pytest.raises(DuplicateJobError):
        engine.submit(desired)
    with pytest.raises(DuplicateJobError):
        engine.fence(desired.engine_job_id, desired.artifact.kind)
    assert engine.status(desired.engine_job_id) is RunState.FAILED


def test_an_id_in_use_is_not_burnt(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    with pytest.raises(DuplicateJobError):
        engine.fence(job, submission(bench).artifact.kind)
    assert engine.status(job) is RunState.RUNNING


def test_a_job_without_slots_does_not_run(bench: Bench, engine: StreamEngine) -> None:
    wide = submission(bench, parallelism=bench.slots + 1)
    engine.submit(wide)
    wait_for(lambda: wide.engine_job_id in engine.view().jobs, "the engine to list it")
    assert engine.status(wide.engine_job_id) is RunState.STARTING
    assert engine.view().jobs[wide.engine_job_id].state is RunState.STARTING


def test_stop_leaves_a_savepoint_and_repeating_it_is_harmless(
    bench: Bench, engine: StreamEngine
) -> None:
    job = run(engine, submission(bench))
    trigger, folder = uuid4().hex, bench.folder()
    engine.stop(job, folder, trigger)
    engine.stop(job, folder, trigger)
    progress = await_finish(engine, job, trigger)
    assert progress.failure is None
    assert progress.location is not None
    becomes(engine, job, RunState.FINISHED)
    engine.stop(job, folder, trigger)
    assert engine.save_progress(job, trigger) == progress
    newest = engine.newest_state(job)
    assert newest is not None
    assert (newest.location, newest.on_request) == (progress.location, True)


def test_a_job_that_is_stopped_has_not_finished(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    assert not engine.has_finished(job)
    stop(bench, engine, job)
    assert not engine.has_finished(job)


@pytest.mark.parametrize("bench", WHOLE, indirect=True)
def test_a_job_whose_sources_end_has_finished(bench: Bench, engine: StreamEngine) -> None:
    bounded = submission(bench, *bench.bounded())
    engine.submit(bounded)
    becomes(engine, bounded.engine_job_id, RunState.FINISHED)
    assert engine.has_finished(bounded.engine_job_id)


def test_a_job_goes_on_from_a_savepoint(bench: Bench, engine: StreamEngine) -> None:
    location = stop(bench, engine, run(engine, submission(bench)))
    job = run(engine, submission(bench, savepoint=location))
    assert checkpointed(bench, engine, job).location
    assert run(engine, submission(bench, savepoint=location)), "the state stays ours"


def test_a_savepoint_alone_leaves_the_job_running(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    trigger = uuid4().hex
    engine.save(job, bench.folder(), trigger)
    progress = await_finish(engine, job, trigger)
    assert progress.location is not None
    assert progress.failure is None
    assert engine.status(job) is RunState.RUNNING


def test_a_checkpoint_may_be_asked_for(bench: Bench, engine: StreamEngine) -> None:
    """Also for a job that is gone: the next checkpoint shows any effect."""
    engine.checkpoint(uuid4().hex, uuid4().hex)
    job = run(engine, submission(bench))
    trigger = uuid4().hex
    engine.checkpoint(job, trigger)
    assert engine.status(job) is RunState.RUNNING
    checkpointed(bench, engine, job)
    wait_for(lambda: engine.checkpoint_progress(job, trigger).done)
    assert engine.checkpoint_progress(job, trigger).failure is None
    with pytest.raises(EngineRefusedError, match=r"^cannot read progress of "):
        engine.checkpoint_progress(job, uuid4().hex)


def test_a_savepoint_fails_while_tasks_wait(bench: Bench, engine: StreamEngine) -> None:
    wide = submission(bench, parallelism=bench.slots + 1)
    engine.submit(wide)
    trigger = uuid4().hex
    engine.save(wide.engine_job_id, bench.folder(), trigger)
    progress = await_finish(engine, wide.engine_job_id, trigger)
    assert progress.location is None
    assert progress.failure is not None


def test_an_unknown_trigger_is_refused(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    with pytest.raises(EngineRefusedError, match=r"^cannot read progress of "):
        engine.save_progress(job, uuid4().hex)


def test_a_job_cannot_start_from_state_that_is_nowhere(bench: Bench, engine: StreamEngine) -> None:
    desired = submission(bench, savepoint="/nowhere/savepoint-1")
    with pytest.raises(EngineRefusedError, match=r"^cannot start trial: .*/nowhere/savepoint-1"):
        engine.submit(desired)
    assert engine.status(desired.engine_job_id) in (None, RunState.FAILED)


def test_checkpoints_are_found_and_outlive_a_cancel(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    before = checkpointed(bench, engine, job)
    assert not before.on_request
    engine.cancel(job)
    becomes(engine, job, RunState.CANCELED)
    after = engine.newest_state(job)
    assert after is not None
    assert after.number >= before.number
    assert run(engine, submission(bench, savepoint=after.location))


def test_plan_and_metrics_of_a_running_job(bench: Bench, engine: StreamEngine, need: Need) -> None:
    engine = need(engine, EngineCapability.METRICS)
    job = run(engine, submission(bench))
    nodes = engine.job_plan(job)
    assert nodes
    assert all(node.id and node.description and node.parallelism >= 1 for node in nodes)

    def count_records() -> Mapping[str, float]:
        """All metrics, once counters of records are among them: they come with the first task."""
        metrics = engine.metrics(job)
        names = [name.rpartition(".")[2] for name in metrics]
        return metrics if any(name.startswith("numRecords") for name in names) else {}

    metrics = wait_for(count_records, "metrics with counters of records")
    assert all(isinstance(value, float) for value in metrics.values())
    assert engine.is_connected(job) is not False, "a source without a broker misses none"
    assert engine.exceptions(job) == []


def test_it_tells_of_the_work_of_jobs_that_run(
    bench: Bench, engine: StreamEngine, need: Need
) -> None:
    engine = need(engine, EngineCapability.METRICS)
    job, ended, nobody = run(engine, submission(bench)), run(engine, submission(bench)), uuid4().hex
    engine.cancel(ended)
    becomes(engine, ended, RunState.CANCELED)

    def measure_job() -> JobMeasure | None:
        measures = engine.measure([job, ended, nobody])
        assert set(measures.jobs) <= {job}
        assert measures.slots_total == bench.slots
        job_measure = measures.jobs.get(job)
        return (
            job_measure
            if job_measure is not None and job_measure.tasks and job_measure.restarts == 0
            else None
        )

    before = wait_for(measure_job, "measures of the job")
    for task in before.tasks:
        assert 0 <= task.subtask < task.subtasks
        assert task.busy_ms is None or task.busy_ms >= 0
    assert engine.measure([]).jobs == {}


def test_figures_of_a_job_are_known_and_never_fall(
    bench: Bench, engine: StreamEngine, need: Need
) -> None:
    engine = need(engine, EngineCapability.METRICS)
    job = run(engine, submission(bench))

    def measure_all() -> dict[str, float]:
        """Every known figure of the job's tasks, of the job and of the engine."""
        bench.work()
        measures = engine.measure([job])
        figures = {"engine_cpu_ms": measures.cpu_ms}
        figures |= {name: getattr(measures, name) for name in ("cores", "memory_bytes")}
        if (of_job := measures.jobs.get(job)) is not None:
            figures |= {n: getattr(of_job, n) for n in ("checkpoint_id", "checkpoint_bytes")}
            for task in of_job.tasks:
                at = f"{task.vertex}/{task.subtask} "
                figures |= {f"{at}{n}": getattr(task, n) for n in (*TIMES, *COUNTS, "cpu_ms")}
        return {name: value for name, value in figures.items() if value is not None}

    def know_all() -> dict[str, float]:
        figures = measure_all()
        is_known = bench.figures <= {name.rpartition(" ")[2] for name in figures}
        return figures if is_known and any(" " in name for name in figures) else {}

    first = wait_for(know_all, lambda: f"{sorted(bench.figures)}, not only {measure_all()}")
    of_tasks = [n for n in first if " " in n and n.rpartition(" ")[2] not in bench.wavering]
    growing = [*of_tasks, *({"checkpoint_id"} & first.keys())]

    def compare() -> bool:
        later = measure_all()
        both = [(name, later[name]) for name in growing if name in later]
        assert [name for name, value in both if value < first[name]] == []
        return any(value > first[name] for name, value in both)

    wait_for(compare, "a figure to grow")


def test_time_of_tasks_goes_on(flink: FlinkServer, trial_jar: Path) -> None:
    """Busy, idle and back-pressured time grow together by the time that passes."""
    bench = FlinkBench(flink, trial_jar)
    engine = bench.open()
    job = run(engine, submission(bench))

    def lived() -> float | None:
        job_measure = engine.measure([job]).jobs.get(job)
        times = [
            (t.busy_ms or 0) + (t.idle_ms or 0) + (t.back_pressured_ms or 0)
            for t in (job_measure.tasks if job_measure else ())
        ]
        return min(times, default=None)

    first = wait_for(lived, "a first look")
    wait_for(lambda: (lived() or 0) >= first + 1000, "a second of its life")
    engine.cancel(job)
    becomes(engine, job, RunState.CANCELED)
    engine.close()


def test_an_engine_set_up_as_ours_passes_its_check(bench: Bench, engine: StreamEngine) -> None:
    run(engine, submission(bench))
    assert [finding for finding in engine.check() if finding.severity != "note"] == []


def test_close_may_come_twice_and_ends_no_job(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))
    other = bench.open()
    assert other.status(job) is RunState.RUNNING

    other.close()
    other.close()

    assert engine.status(job) is RunState.RUNNING


def test_several_threads_may_submit_at_once(bench: Bench, engine: StreamEngine) -> None:
    desired = [submission(bench) for _ in range(bench.slots)]
    start = threading.Barrier(len(desired))

    def submit(each: Submission) -> None:
        start.wait()
        engine.submit(each)

    with ThreadPoolExecutor(len(desired)) as pool:
        list(pool.map(submit, desired))
    for each in desired:
        becomes(engine, each.engine_job_id, RunState.RUNNING)


def test_an_engine_that_does_not_answer_is_unreachable(bench: Bench) -> None:
    absent = bench.open_absent()
    job, trigger, desired = uuid4().hex, uuid4().hex, submission(bench)
    has = absent.capabilities
    measuring = [
        lambda: absent.job_plan(job),
        lambda: absent.metrics(job),
        lambda: absent.is_connected(job),
        lambda: absent.measure([job]),
    ]
    calls = [
        *(measuring if EngineCapability.METRICS in has else ()),
        *([lambda: absent.try_main(desired)] if EngineCapability.TRIAL in has else ()),
        lambda: absent.view(),
        lambda: absent.upload(desired.artifact),
        lambda: absent.submit(desired),
        lambda: absent.fence(job, ArtifactKind.JAR),
        lambda: absent.status(job),
        lambda: absent.stop(job, None, trigger),
        lambda: absent.save(job, None, trigger),
        lambda: absent.save_progress(job, trigger),
        lambda: absent.cancel(job),
        lambda: absent.newest_state(job),
        lambda: absent.exceptions(job),
        lambda: absent.check(),
    ]
    for call in calls:
        with pytest.raises(SpeckError) as error:
            call()
        assert type(error.value) is UnreachableError
        assert str(error.value).startswith("cannot reach ")
    absent.close()


def test_checkpoints_that_complete_are_told(bench: Bench, engine: StreamEngine) -> None:
    job = run(engine, submission(bench))

    def another_than(known: int | None) -> Checkpointing | None:
        bench.work()
        checkpointing = engine.checkpointing(job)
        assert checkpointing is not None
        return checkpointing if checkpointing.completed_id not in (None, known) else None

    first = wait_for(lambda: another_than(None), "a checkpoint")
    assert first.interval_s is not None
    assert 0 < first.interval_s <= 1
    second = wait_for(lambda: another_than(first.completed_id), "the next")
    assert first.completed_id is not None
    assert second.completed_id is not None
    assert second.completed_id > first.completed_id


def test_checkpoints_of_an_unknown_job_are_unknown(engine: StreamEngine) -> None:
    assert engine.checkpointing(uuid4().hex) is None


def test_a_status_from_before_an_order_is_not_taken_for_what_the_order_has_done(
    tmp_path: Path,
) -> None:
    """It would say that the job is not known, and a second one would be started."""
    with third_party():
        bench = LoomBench(tmp_path)
        engine = bench.open()
        before = bench.channel.status()
        desired = submission(bench)
        engine.submit(desired)
        bench.channel.old = [before] * 3
        assert engine.status(desired.engine_job_id) is not None
        assert bench.channel.old == []
        bench.channel.old = [bench.channel.status()] * 3
        engine.cancel(desired.engine_job_id)
        assert engine.status(desired.engine_job_id) is RunState.CANCELED
        bench.runner.stop()


@pytest.mark.parametrize("point", ["copy", "claim"])
def test_a_state_that_is_copied_half_is_none(tmp_path: Path, point: str) -> None:
    """Of an engine whose states go on in place: the copy would count as newer than its base."""
    with third_party():
        bench = LoomBench(tmp_path)
        engine = bench.open()
        states = StateFolder(tmp_path / "state")
        layout = state_layout("loom")
        assert layout is not None
        first = run(engine, submission(bench))
        location = stop(bench, engine, first)
        (base,) = states.states(first, layout)
        bench.runner.dies_at, bench.channel.timeout_s = point, 2.0
        following = submission(bench, savepoint=location)
        with pytest.raises(UnreachableError):
            engine.submit(following)
        assert states.states(following.engine_job_id, layout) == []
        bench.runner.stop()
        bench.restart()
        bench.channel.timeout_s = 60.0
        assert engine.status(following.engine_job_id) is None
        assert run(engine, following)
        (copy,) = states.states(following.engine_job_id, layout)
        assert copy.number >= base.number
        assert states.states(first, layout) == [base]
        bench.runner.stop()


def test_a_job_runs_on_the_engine_that_takes_its_artifact(tmp_path: Path) -> None:
    with third_party():
        bench = BesideBench(tmp_path)
        engine = bench.open()
        text = Artifact("7" * 64, bench.loom.jar, ArtifactKind.TEXT)
        text = replace(text, sha256=sha256_of(bench.loom.jar))
        woven = replace(submission(bench), artifact=text)
        here, there = run(engine, submission(bench)), run(engine, woven)
        assert bench.loom.open().status(there) is RunState.RUNNING
        assert bench.loom.open().status(here) is None
        assert set(engine.jobs()) == {here, there} == set(engine.view().jobs)
        assert engine.try_main(woven) == Trial()
        assert engine.metrics(there) == {}
        assert engine.is_connected(there) is None
        assert set(engine.measure([here, there]).jobs) == {here}
        assert stop(bench, engine, there).endswith(f"/runs/{there}")
        again = bench.open()  # after a restart of the service it is found by asking both
        assert again.has_finished(there) is False
        for late, silent in ((submission(bench), "main"), (replace(woven), "other")):
            burnt = replace(late, engine_job_id=uuid4().hex)
            bench.silence(silent)
            with pytest.raises(UnreachableError):
                again.fence(burnt.engine_job_id, burnt.artifact.kind)
            again.fence(burnt.engine_job_id, burnt.artifact.kind)
            with pytest.raises(DuplicateJobError):
                engine.submit(burnt)
        engine.cancel(here)
        bench.runner.stop()


@pytest.mark.parametrize("away", ["main", "other"])
def test_of_two_engines_one_goes_on_without_the_other(tmp_path: Path, away: str) -> None:
    """What it says counts; nothing is said of the jobs of the one that does not answer."""
    with third_party():
        bench = BesideBench(tmp_path)
        text = Artifact(sha256_of(bench.loom.jar), bench.loom.jar, ArtifactKind.TEXT)
        both = bench.open()
        here = run(both, submission(bench))
        there = run(both, replace(submission(bench), artifact=text))
        lasting, silent = (there, here) if away == "main" else (here, there)
        engine = bench.away(away)
        view = engine.view()
        assert set(view.jobs) == {lasting}
        takes = ArtifactKind.TEXT in view.silent, ArtifactKind.JAR in view.silent
        assert takes == ((False, True) if away == "main" else (True, False))
        assert (view.slots is None) is (away == "main")
        assert view.find_slots(ArtifactKind.TEXT) is None
        assert engine.status(lasting) is RunState.RUNNING
        assert poll_engine(engine, EnginePoll.CHECKPOINTING, [lasting]).keys() == {lasting}
        with pytest.raises(UnreachableError) if away == "main" else nullcontext():
            assert poll_engine(engine, EnginePoll.MEASURE, [here, there]).jobs.keys() == {here}
        assert [each.severity for each in engine.check() if each.value == "no answer"] == ["error"]
        for call in (engine.status, engine.cancel, engine.exceptions):
            with pytest.raises(UnreachableError):
                call(silent)
        engine.cancel(lasting)
        both.cancel(silent)
        bench.runner.stop()


def test_cpu_time_and_memory_are_those_of_both_engines() -> None:
    """While one of them does not answer they are unknown: the sum would fall, and jump again."""
    World.reset()
    main, other = (MemoryEngine(Target(f"http://{name}:8081")) for name in ("main", "other"))
    both = EnginesBeside(main, other, artifact_kinds("memory"))
    one = EngineMeasures(slots_total=4, cores=2.0, cpu_ms=100.0, memory_bytes=10)
    silence = UnreachableError("cannot reach it: it is silent")
    with patch.object(main, "measure", return_value=one):
        for beside, cpu_ms in ((EngineMeasures(cores=4.0, cpu_ms=5.0, memory_bytes=3), 105.0),
                               (EngineMeasures(), 100.0)):  # fmt: skip
            with patch.object(other, "measure", return_value=beside):
                measures = both.measure([])
                assert (measures.cpu_ms, measures.cores, measures.slots_total) == (cpu_ms, 2.0, 4)
        with patch.object(other, "measure", side_effect=silence):
            measures = both.measure([])
            assert (measures.cpu_ms, measures.memory_bytes, measures.cores) == (None, None, 2.0)
