"""Engines whose state goes on in place, and engines beside each other."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch
from uuid import uuid4

import pytest

from binders.memory import MemoryEngine, World
from speck.agent.folder import StateFolder
from speck.binding import (
    Artifact,
    ArtifactKind,
    EnginePoll,
    EnginesBeside,
    Target,
    Trial,
    artifact_kinds,
    poll_engine,
    state_layout,
)
from speck.errors import DuplicateJobError, UnreachableError
from speck.model.measurement import EngineMeasures
from speck.model.observation import RunState
from tests.contracts.engines.benches import BesideBench, LoomBench, run, stop, submission
from tests.flink_server import sha256_of
from tests.third_party_kinds import third_party


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
