"""What every engine's binder has to keep is run on the memory binder, on real Flink, on real
processes, on real Spark, and on the simulated Flink that experiments use."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.simulated_flink import NONE, listen
from speck.binding import StreamEngine
from tests.contracts.engines.benches import (
    WHOLE,
    Bench,
    BesideBench,
    FlinkBench,
    LoomBench,
    MemoryBench,
    ProcessBench,
    SimulatedBench,
    SparkBench,
)
from tests.declared import Need, make_need
from tests.flink_server import FlinkServer, build_trial_jar, flink_1_20, flink_cluster
from tests.third_party_kinds import third_party
from tests.waiting import wait_for

TWO_AT_ONCE = frozenset(
    (
        "test_a_job_goes_on_without_its_upload_and_another_starts",
        "test_a_job_goes_on_from_a_savepoint",
        "test_it_tells_of_the_work_of_jobs_that_run",
        "test_several_threads_may_submit_at_once",
    )
)
"""Here jobs of Spark start no session: a machine for tests has no room for two at a time."""


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


SIMULATED = pytest.param("simulated flink", marks=pytest.mark.long)


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


@pytest.fixture
def need(request: pytest.FixtureRequest) -> Need:
    return make_need(request)


def _free(engine: StreamEngine) -> int:
    slots = engine.view().slots
    assert slots is not None
    return slots.free
