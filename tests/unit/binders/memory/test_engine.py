"""The memory engine: slots, ids, savepoints, faults on demand."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from binders.memory import MemoryBroker, MemoryEngine, World
from speck.binding import Artifact, SaveProgress, Submission, Target, open_broker, open_engine
from speck.errors import (
    DuplicateJobError,
    EngineRefusedError,
    SpeckError,
    TransientError,
    UnreachableError,
)
from speck.model.engines import ArtifactKind
from speck.model.observation import RunState, Slots
from tests.unit.binders.memory.sites import CLOUD_BROKER, EDGE, EDGE_BROKER, read, submission

CLOUD = "http://172.16.192.18:8081"

# -- finding one's world ------------------------------------------------------------------


def test_binders_of_one_address_see_the_same(world: World, jar: Path) -> None:
    open_engine("memory", Target(EDGE + "/")).submit(submission(jar))

    assert MemoryEngine(Target(EDGE)).status("a" * 32) is RunState.RUNNING
    assert MemoryEngine(Target(CLOUD)).status("a" * 32) is None


def test_a_reset_world_is_empty(world: World) -> None:
    open_broker("memory", Target(EDGE_BROKER)).reserve("one", "t")

    assert World.reset().broker(EDGE_BROKER).sessions == {}


# -- slots and ids ------------------------------------------------------------------------


def test_a_job_runs_only_when_all_its_slots_are_there(world: World, jar: Path) -> None:
    world.engine(EDGE).total = 3
    engine = MemoryEngine(Target(EDGE))
    engine.submit(submission(jar, "a" * 32, "a", parallelism=2))
    engine.submit(submission(jar, "b" * 32, "b", parallelism=2))

    assert engine.status("b" * 32) is RunState.STARTING
    view = engine.view()
    assert view.slots == Slots(3, 1)
    assert (view.jobs["b" * 32].tasks_running, view.jobs["b" * 32].tasks_total) == (0, 2)

    engine.cancel("a" * 32)
    assert engine.status("b" * 32) is RunState.RUNNING
    assert engine.view().slots == Slots(3, 1)


@pytest.mark.parametrize("ended", [False, True])
def test_an_id_is_used_once(world: World, jar: Path, ended: bool) -> None:
    engine = MemoryEngine(Target(EDGE))
    engine.submit(submission(jar))
    if ended:
        engine.cancel("a" * 32)

    with pytest.raises(DuplicateJobError, match="duplicate job id a"):
        engine.submit(submission(jar))


def test_a_restarted_master_knows_no_job(world: World, jar: Path) -> None:
    engine = MemoryEngine(Target(EDGE))
    engine.submit(submission(jar))

    world.engine(EDGE).forget_jobs()

    assert engine.status("a" * 32) is None
    assert engine.view().jobs == {}
    engine.submit(submission(jar))


def test_a_jar_comes_from_the_upload_or_the_file(world: World, tmp_path: Path) -> None:
    engine = MemoryEngine(Target(EDGE))
    absent = submission(tmp_path / "absent.jar")

    for call in (engine.try_main, engine.submit):
        with pytest.raises(EngineRefusedError, match="no jar ffff"):
            call(absent)
    world.engine(EDGE).jars["f" * 64] = 0
    engine.submit(absent)


# -- state --------------------------------------------------------------------------------


def test_a_move_with_a_savepoint_loses_and_repeats_nothing(world: World, jar: Path) -> None:
    edge, cloud = MemoryEngine(Target(EDGE)), MemoryEngine(Target(CLOUD))
    MemoryBroker(Target(CLOUD_BROKER)).reserve("reader", "clean")
    edge.submit(submission(jar, "a" * 32))
    world.feed(EDGE_BROKER, "raw", [b"1", b"2"], producer="sensor")
    world.pump(checkpoint=False)

    edge.stop("a" * 32, None, "d" * 32)
    edge.stop("a" * 32, None, "d" * 32)
    progress = edge.save_progress("a" * 32, "d" * 32)
    assert progress == SaveProgress(True, "memory:/" + "d" * 32)
    assert edge.status("a" * 32) is RunState.FINISHED
    world.feed(EDGE_BROKER, "raw", [b"3"], producer="sensor")
    cloud.submit(submission(jar, "b" * 32, attempt=2, savepoint=progress.location))
    world.pump()

    assert read(world, CLOUD_BROKER, "reader") == [b"1", b"2", b"3"]
    assert MemoryBroker(Target(EDGE_BROKER)).view().taken[
        "speck-1234abcd-clean-00000000"
    ].taken == {"sensor": {1: 3}}


def test_cancelling_gives_back_what_was_not_acknowledged(world: World, jar: Path) -> None:
    engine = MemoryEngine(Target(EDGE))
    MemoryBroker(Target(CLOUD_BROKER)).reserve("reader", "clean")
    engine.submit(submission(jar, "a" * 32))
    world.feed(EDGE_BROKER, "raw", [b"1"], producer="sensor")
    world.pump()
    world.feed(EDGE_BROKER, "raw", [b"2", b"3"], producer="sensor")
    world.pump(checkpoint=False)

    engine.cancel("a" * 32)
    engine.cancel("a" * 32)
    newest = engine.newest_state("a" * 32)
    assert newest is not None and not newest.on_request
    engine.submit(submission(jar, "b" * 32, attempt=2, savepoint=newest.location))
    world.pump()

    # at least once: 2 and 3 were on their way already, and come again under a new epoch
    assert read(world, CLOUD_BROKER, "reader") == [b"1", b"2", b"3", b"2", b"3"]


def test_an_epoch_is_above_every_epoch_in_the_restored_state(world: World, jar: Path) -> None:
    engine = MemoryEngine(Target(EDGE))
    engine.submit(submission(jar, "a" * 32, attempt=7, sink_readers="none"))
    engine.stop("a" * 32, None, "d" * 32)
    engine.submit(
        submission(jar, "b" * 32, attempt=1, sink_readers="none", savepoint="memory:/" + "d" * 32)
    )
    world.feed(EDGE_BROKER, "raw", [b"1"])

    sent = MemoryBroker(Target(CLOUD_BROKER)).view().sent["speck-1234abcd-clean-00000000-out"]
    assert (sent.epoch, sent.number) == ((7 << 32) + 2, 1)


def test_state_of_another_storage_cannot_be_read(world: World, jar: Path) -> None:
    world.engine(EDGE).storage = "memory:/edge"
    edge, cloud = MemoryEngine(Target(EDGE)), MemoryEngine(Target(CLOUD))
    edge.submit(submission(jar, "a" * 32))
    edge.save("a" * 32, None, "d" * 32)
    edge.save("a" * 32, "file:///shared", "e" * 32)

    with pytest.raises(EngineRefusedError, match="no state at memory:/edge/d"):
        cloud.submit(submission(jar, "b" * 32, savepoint="memory:/edge/" + "d" * 32))
    cloud.submit(submission(jar, "b" * 32, savepoint="file:///shared/" + "e" * 32))


def test_a_savepoint_of_a_job_that_does_not_run_fails(world: World, jar: Path) -> None:
    world.engine(EDGE).total = 0
    engine = MemoryEngine(Target(EDGE))
    engine.submit(submission(jar))

    engine.stop("a" * 32, None, "d" * 32)

    progress = engine.save_progress("a" * 32, "d" * 32)
    assert progress.done and progress.location is None
    assert progress.failure == "not all tasks run: the job is starting"
    assert engine.status("a" * 32) is RunState.STARTING


@pytest.mark.parametrize("state", [None, "ended"])
def test_a_stop_needs_a_live_job(world: World, jar: Path, state: str | None) -> None:
    engine = MemoryEngine(Target(EDGE))
    if state == "ended":
        engine.submit(submission(jar))
        engine.cancel("a" * 32)

    with pytest.raises(EngineRefusedError, match="cannot stop job a"):
        engine.stop("a" * 32, None, "d" * 32)


def test_savepoints_can_be_held(world: World, jar: Path) -> None:
    engine = MemoryEngine(Target(EDGE))
    engine.submit(submission(jar))
    world.engine(EDGE).hold_savepoints = True

    engine.stop("a" * 32, None, "d" * 32)
    assert not engine.save_progress("a" * 32, "d" * 32).done
    assert engine.status("a" * 32) is RunState.RUNNING

    world.engine(EDGE).let_go()
    assert engine.save_progress("a" * 32, "d" * 32).done
    assert engine.status("a" * 32) is RunState.FINISHED


def test_starts_can_be_held(world: World, jar: Path) -> None:
    world.engine(EDGE).hold_starts = True
    engine = MemoryEngine(Target(EDGE))
    engine.submit(submission(jar))
    assert engine.status("a" * 32) is RunState.STARTING

    world.engine(EDGE).let_go()
    assert engine.status("a" * 32) is RunState.RUNNING


# -- faults -------------------------------------------------------------------------------


def test_a_refusal_is_given_so_many_times(world: World, jar: Path) -> None:
    engine = MemoryEngine(Target(EDGE))
    world.engine(EDGE).refuse("submit", 2, TransientError("cannot start: busy"))

    for _ in range(2):
        with pytest.raises(TransientError, match="busy"):
            engine.submit(submission(jar))
    engine.submit(submission(jar))

    assert world.engine(EDGE).calls == [("submit", "a" * 32)] * 3
    assert world.engine(EDGE).count("submit") == 3


def test_a_lost_answer_takes_effect(world: World, jar: Path) -> None:
    engine = MemoryEngine(Target(EDGE))
    lost = UnreachableError("cannot reach it: answer lost")
    world.engine(EDGE).refuse("submit", 1, lost, after=True)

    with pytest.raises(UnreachableError):
        engine.submit(submission(jar))

    assert engine.status("a" * 32) is RunState.RUNNING


def test_an_unreachable_engine_s_jobs_go_on(world: World, jar: Path) -> None:
    MemoryEngine(Target(EDGE)).submit(submission(jar, sink_readers="none"))
    world.engine(EDGE).unreachable = True
    world.feed(EDGE_BROKER, "raw", [b"1"])

    assert world.pump() == 1
    with pytest.raises(SpeckError, match="cannot reach http://172"):
        MemoryEngine(Target(EDGE)).view()


def test_a_failed_job_tells_why(world: World, jar: Path) -> None:
    engine = MemoryEngine(Target(EDGE))
    engine.submit(submission(jar))

    world.engine(EDGE).fail("a" * 32, "out of memory")

    assert engine.status("a" * 32) is RunState.FAILED
    assert [failure.trace for failure in engine.exceptions("a" * 32)] == ["out of memory"]


def test_calls_can_be_seen_to_overlap(world: World) -> None:
    together = threading.Barrier(2)
    world.engine(EDGE).before = lambda kind, subject: together.wait(10) and None

    with ThreadPoolExecutor(2) as pool:
        views = list(pool.map(lambda _: MemoryEngine(Target(EDGE)).view(), range(2)))
    assert not together.broken, "each waited for the other, and both came"
    assert [view.jobs for view in views] == [{}, {}]


# -- what an engine tells -----------------------------------------------------------------


def test_metrics_and_plan(world: World, jar: Path) -> None:
    engine = MemoryEngine(Target(EDGE))
    engine.submit(submission(jar, sink_readers="none"))
    world.feed(EDGE_BROKER, "raw", [b"1", b"2"])
    world.pump()

    assert engine.metrics("a" * 32) == {"source.numRecordsIn": 2.0, "sink.numRecordsSend": 2.0}
    assert engine.job_plan("a" * 32)[0].parallelism == 1
    assert engine.view().jobs["a" * 32].name == "clean"


def test_a_job_with_arguments_of_its_own_runs_without_passing_anything(
    world: World, jar: Path
) -> None:
    engine = MemoryEngine(Target(EDGE))
    engine.submit(
        Submission(
            "a" * 32, "own", Artifact("f" * 64, jar, ArtifactKind.JAR), "x.Job", ("--in", "raw")
        )
    )

    assert engine.status("a" * 32) is RunState.RUNNING
    assert world.pump() == 0
