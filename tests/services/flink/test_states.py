"""States of jobs, savepoints and checkpoints."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import uuid4

import pytest
import requests

from binders.flink.layout import LAYOUT
from speck.agent.folder import StateFolder
from speck.errors import EngineRefusedError
from speck.model.observation import RunState
from tests.services.flink.site import Site
from tests.waiting import wait_for


def test_an_unknown_job_is_404_but_its_status_500(site: Site) -> None:
    nobody = uuid4().hex
    assert site.server.get(f"/jobs/{nobody}").status_code == 404
    assert site.server.get(f"/jobs/{nobody}/status").status_code == 500
    assert site.engine.status(nobody) is None


def test_a_failed_job_tells_why(site: Site) -> None:
    job = site.start("--fail-task")
    site.becomes(job, RunState.FAILED)
    failures = site.engine.exceptions(job)
    assert any("cannot count" in failure.trace for failure in failures)
    assert [failure.at_ms for failure in failures] == sorted(
        (failure.at_ms for failure in failures), reverse=True
    )
    assert all(len(str(failure.name)) < 200 for failure in failures)


def test_a_good_savepoint_of_a_job_that_failed_while_stopping(site: Site) -> None:
    job = site.run("--fail-close")
    progress = site.stop(job)
    assert progress.location is not None
    assert progress.failure is not None
    site.becomes(job, RunState.FAILED)
    newest = site.engine.newest_state(job)
    assert newest is not None
    assert newest.location == progress.location
    assert site.run(savepoint=progress.location)


def test_a_lost_answer_is_found_in_the_stops_own_folder(site: Site) -> None:
    job, folder, trigger = site.run(), site.folder(), uuid4().hex
    site.engine.stop(job, f"file://{folder}", trigger)
    site.becomes(job, RunState.FINISHED)
    savepoints = [path.parent for path in folder.glob("savepoint-*/_metadata")]
    assert [f"file:{path}" for path in savepoints] == [site.finished(job, trigger).location]


def test_the_first_folder_of_a_trigger_counts(site: Site) -> None:
    job, first, second, trigger = site.run(), site.folder(), site.folder(), uuid4().hex
    site.engine.stop(job, f"file://{first}", trigger)
    site.engine.stop(job, f"file://{second}", trigger)
    location = site.finished(job, trigger).location
    assert location is not None
    assert location.startswith(f"file:{first}/")
    assert not second.exists()


def test_a_slow_savepoint_is_not_a_failed_one(site: Site, tmp_path: Path) -> None:
    hold = tmp_path / "hold"
    job, trigger = site.run("--hold-snapshot", str(hold)), uuid4().hex
    hold.touch()
    site.engine.stop(job, f"file://{site.folder()}", trigger)
    progress = site.engine.save_progress(job, trigger)
    assert (progress.done, progress.location, progress.failure) == (False, None, None)
    assert site.engine.status(job) is RunState.RUNNING
    hold.unlink()
    assert site.finished(job, trigger).location is not None


def test_a_stop_that_finds_no_running_tasks_fails_by_its_progress(site: Site) -> None:
    job = site.start(width=9)
    progress = site.stop(job)
    assert progress.location is None
    assert progress.failure is not None
    assert "\n" not in progress.failure
    # Flink tries anew when slots come free elsewhere, but it does not end
    assert site.engine.status(job) in (RunState.STARTING, RunState.RESTARTING)


def test_a_savepoint_is_restored_after_its_folder_has_moved(site: Site, tmp_path: Path) -> None:
    location = site.stop(site.run()).location
    assert location is not None
    new_folder = tmp_path / "elsewhere" / "savepoint"
    shutil.move(location.removeprefix("file:"), new_folder)
    assert site.run(savepoint=f"file://{new_folder}")


def test_checkpoints_of_a_job_that_finished_are_gone(site: Site) -> None:
    job = site.start("--records", "500")
    site.becomes(job, RunState.FINISHED)
    assert site.server.get(f"/jobs/{job}/checkpoints").json()["counts"]["completed"] > 0
    with pytest.raises(EngineRefusedError, match=r"every checkpoint .* was discarded"):
        site.engine.newest_state(job)
    assert site.newest_folder(job) == 0


def test_what_it_was_restored_from_counts_until_a_checkpoint_completes(site: Site) -> None:
    location = site.stop(site.run()).location
    job = site.start(width=9, savepoint=location)
    newest = wait_for(lambda: site.engine.newest_state(job), "the restored state")
    assert newest.location == location


def test_cancel_answers_409_or_404_once_the_job_is_gone(site: Site) -> None:
    job = site.run()
    site.stop(job)
    site.becomes(job, RunState.FINISHED)
    cancel = f"{site.server.url}/jobs/%s?mode=cancel"
    assert requests.patch(cancel % job, timeout=20).status_code == 409
    assert requests.patch(cancel % uuid4().hex, timeout=20).status_code == 404
    site.engine.cancel(job)
    site.engine.cancel(uuid4().hex)
    assert site.engine.status(job) is RunState.FINISHED


@pytest.mark.long
def test_a_job_s_own_checkpoint_folder_is_reported_and_listed(site: Site, tmp_path: Path) -> None:
    job = site.run("--checkpoints", f"file://{tmp_path}/own")

    def folder() -> str | None:
        checkpointing = site.engine.checkpointing(job)
        return checkpointing.folder if checkpointing is not None else None

    own = wait_for(folder, "a checkpoint")
    assert own == f"file:{tmp_path}/own/{job}"
    site.engine.cancel(job)
    site.becomes(job, RunState.CANCELED)
    newest = site.engine.newest_state(job)
    assert newest is not None
    states = StateFolder(site.server.state_dir).states(job, LAYOUT, own)
    assert f"file:{states[0].folder}" == newest.location
    new = site.run("--checkpoints", f"file://{tmp_path}/own", savepoint=newest.location)
    restored = site.server.get(f"/jobs/{new}/checkpoints").json()["latest"]["restored"]
    assert restored["external_path"] == newest.location
