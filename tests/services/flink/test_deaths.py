"""The death of a JVM."""

from __future__ import annotations

from pathlib import Path

import pytest

from speck.fog.flink_conf import Runtime
from tests.flink_server import flink_cluster
from tests.services.flink.site import Site
from tests.waiting import wait_for


@pytest.mark.long
def test_after_kill_9_jobs_are_unknown_jars_are_there_and_state_is_good(
    tmp_path: Path, trial_jar: Path
) -> None:
    with flink_cluster(tmp_path, slots=2) as server:
        site = Site(server, trial_jar)
        job = site.run()
        wait_for(lambda: site.engine.newest_state(job), "a checkpoint")
        assert site.engine.last_end() is None
        server.restart("engine")
        assert site.engine.status(job) is None
        end = site.engine.last_end()
        assert end is not None
        assert "it was stopped, or killed (by the kernel if memory ran out" in end.reason
        state = server.state_dir / "checkpoints" / job / f"chk-{site.newest_folder(job)}"
        new = site.run(savepoint=f"file://{state}")
        assert len(site.jar_ids()) == 1
        restored = server.get(f"/jobs/{new}/checkpoints").json()["latest"]["restored"]
        assert restored["external_path"] == f"file:{state}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("kind", "what", "expected"),
    [
        ("single", "heap", "OutOfMemoryError: Java heap space (a job holds too much"),
        ("single", "metaspace", "OutOfMemoryError: Metaspace (use thin jars"),
        ("cluster", "metaspace", "the taskmanager was restarted at "),
    ],
)
def test_an_engine_that_ran_out_of_memory_says_of_which(
    kind: Runtime, what: str, expected: str, tmp_path: Path, trial_jar: Path
) -> None:
    with flink_cluster(tmp_path, slots=2, kind=kind) as server:
        site = Site(server, trial_jar)
        role = "engine" if kind == "single" else "taskmanager"
        site.start("--fill", what)
        wait_for(lambda: not server.processes[role].running, "its end", 120.0)
        server.restart(role)
        wait_for(lambda: expected in str(site.engine.last_end()), "the reason")


@pytest.mark.long
def test_a_job_that_fills_the_direct_memory_fails_with_that_reason(site: Site) -> None:
    job = site.start("--fill", "direct")
    failures = wait_for(lambda: site.engine.exceptions(job), "its failure", 120.0)
    assert "OutOfMemoryError: " in failures[0].reason
    assert "direct" in failures[0].reason.lower()


@pytest.mark.long
def test_a_task_manager_leaves_a_dead_job_manager_and_offers_its_slots_again(
    tmp_path: Path, trial_jar: Path
) -> None:
    with flink_cluster(tmp_path, slots=2, kind="cluster") as server:
        site = Site(server, trial_jar)
        job = site.run(width=2)
        server.restart("jobmanager")
        assert site.engine.status(job) is None
        site.tidy()
        assert site.run(width=2)
