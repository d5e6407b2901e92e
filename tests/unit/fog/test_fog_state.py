from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from speck.errors import PermanentError
from speck.fog.process import Command, Process, find_by_token, spawn
from speck.fog.site_record import SiteRecord
from speck.fog.sites import Fog
from speck.fog.state import FogState, ProcessRecord, StateFile
from tests.waiting import wait_for

SITE = SiteRecord("edge-a", "edge", "127.9.9.1", 1883, 8081, 8)
OURSELVES = ProcessRecord("edge-a", "broker", "t", Process(1, 2))


def sleeper(tmp_path: Path, token: str) -> Process:
    return spawn(Command("sleep", ["sleep", "300"], tmp_path, tmp_path / "sleep.log"), token)


def state(*processes: ProcessRecord) -> FogState:
    return FogState("single", 1.0, None, (SITE,), processes=processes)


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    file = StateFile(tmp_path)
    assert file.load() is None
    saved = state(OURSELVES, ProcessRecord("edge-a", "engine", "u"))
    file.save(saved)
    assert file.load() == saved
    file.remove()
    assert file.load() is None


def test_a_broken_file_is_told(tmp_path: Path) -> None:
    (tmp_path / "fog.json").write_text('{"v": 1}')
    with pytest.raises(PermanentError, match=r"^cannot read .*fog.json: KeyError"):
        StateFile(tmp_path).load()
    (tmp_path / "fog.json").write_text('{"v": 7}')
    with pytest.raises(PermanentError, match="version 7, expected 1"):
        StateFile(tmp_path).load()


def test_one_at_a_time(tmp_path: Path) -> None:
    with (
        StateFile(tmp_path).lock(),
        pytest.raises(PermanentError, match=r"^cannot change the fog in .*: another process"),
        StateFile(tmp_path).lock(),
    ):
        pass
    with StateFile(tmp_path).lock():
        pass


def test_a_process_takes_the_place_of_the_one_before() -> None:
    fresh = replace(OURSELVES, token="fresh")
    engine = ProcessRecord("edge-a", "engine", "u")
    assert state(OURSELVES, engine).with_process(fresh).processes == (engine, fresh)


def test_a_process_whose_pid_was_not_written_is_found(tmp_path: Path) -> None:
    process = sleeper(tmp_path, f"lost-{os.getpid()}")
    try:
        lost = ProcessRecord("edge-a", "engine", f"lost-{os.getpid()}")
        never = ProcessRecord("edge-a", "broker", f"never-{os.getpid()}")
        known = state(lost, never)
        # for a moment after its start the kernel shows no environment yet
        wait_for(lambda: find_by_token(lost.token) is not None)
        processes = known.find_processes()
        assert processes.of("edge-a") == {"engine": process}
        assert processes.of("edge-b") == {}
    finally:
        process.kill()


def test_pids_from_before_a_reboot_mean_nothing() -> None:
    assert replace(state(OURSELVES), boot="another").find_processes().processes == ()


def test_down_ends_what_a_killed_launcher_left(tmp_path: Path) -> None:
    token = f"left-{os.getpid()}"
    known, lost = sleeper(tmp_path, "known"), sleeper(tmp_path, token)
    fog = tmp_path / "fog"
    fog.mkdir()
    (fog / "sites").mkdir()
    StateFile(fog).save(
        state(
            ProcessRecord("edge-a", "broker", "known", known),
            ProcessRecord("edge-a", "engine", token),
        )
    )
    assert Fog(fog).down() == 2
    assert not known.running
    assert not lost.running
    assert not (fog / "sites").exists()
    assert Fog(fog).sites() == ()
    assert Fog(fog).down() == 0


def test_an_unknown_site() -> None:
    assert state().site("edge-a") == SITE
    with pytest.raises(PermanentError, match=r"^cannot find site 'x' in this fog: it has edge-a$"):
        state().site("x")
