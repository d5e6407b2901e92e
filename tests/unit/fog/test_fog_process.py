from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from speck.errors import PermanentError
from speck.fog.process import (
    Command,
    Process,
    find_by_token,
    find_program,
    spawn,
    stop_all,
    wait_until,
)
from tests.waiting import wait_for

SLEEP = ("sleep", "300")
TOKEN = f"token-{os.getpid()}"  # another run of these tests has other ones
IGNORE_TERM = """
import signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
time.sleep(300)
"""
STUBBORN = (sys.executable, "-c", IGNORE_TERM)


def command(tmp_path: Path, *argv: str) -> Command:
    return Command("thing", argv, tmp_path, tmp_path / "log" / "thing.log")


@pytest.fixture
def sleeper(tmp_path: Path) -> Iterator[Process]:
    process = spawn(command(tmp_path, *SLEEP), TOKEN)
    yield process
    process.kill()


def test_a_started_process_runs_in_a_session_of_its_own(sleeper: Process) -> None:
    assert sleeper.running
    assert sleeper.rss_mb > 0
    assert os.getsid(sleeper.pid) == sleeper.pid


def test_a_process_is_found_by_its_token(sleeper: Process) -> None:
    # while a process replaces its image, the kernel shows no environment for a moment
    wait_for(lambda: find_by_token(TOKEN) == sleeper, "the process to be listed")
    assert find_by_token(TOKEN[:-1]) is None
    sleeper.stop()
    assert find_by_token(TOKEN) is None


def test_a_pid_that_was_given_to_another_process_is_not_ours(sleeper: Process) -> None:
    other = Process(sleeper.pid, sleeper.started + 1)
    assert not other.running
    assert other.rss_mb == 0
    other.kill()
    other.send(signal.SIGKILL)
    assert sleeper.running


def test_an_ended_child_does_not_run_although_nobody_waited_for_it(tmp_path: Path) -> None:
    process = spawn(command(tmp_path, "true"))
    with pytest.raises(PermanentError, match="ended"):
        wait_until(lambda: False, {"thing": process}, "thing", [tmp_path / "no.log"], 10)
    assert not process.running


def test_stop_kills_what_does_not_listen(tmp_path: Path) -> None:
    process = spawn(command(tmp_path, *STUBBORN))
    log = tmp_path / "log" / "thing.log"
    wait_until(lambda: log.read_text() != "", {"thing": process}, "thing", [log], 20)
    process.stop(timeout_s=0.2)
    assert not process.running


def test_all_are_stopped_at_once(tmp_path: Path) -> None:
    processes = [spawn(command(tmp_path, *SLEEP)) for _ in range(3)]
    stop_all(processes, 10)
    assert not any(process.running for process in processes)


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PermanentError, match=r"^cannot start thing: .*no-such-program"):
        spawn(command(tmp_path, "no-such-program"))
    with pytest.raises(PermanentError, match=r"^cannot find no-such-program: buy it$"):
        find_program("no-such-program", "buy it", [tmp_path])


def test_a_program_is_found_past_the_path(tmp_path: Path) -> None:
    program = tmp_path / "odd-program"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    assert find_program("odd-program", "", [tmp_path]) == program


def test_a_failed_start_quotes_the_log(tmp_path: Path) -> None:
    script = "echo 'WARNING: harmless'; echo first; echo cannot bind >&2; exit 1"
    process = spawn(command(tmp_path, "sh", "-c", script))
    log = tmp_path / "log" / "thing.log"
    with pytest.raises(PermanentError) as error:
        wait_until(lambda: False, {"sh": process}, "thing", [log], 10)
    assert str(error.value) == (
        f"cannot start thing: sh ended; last lines of {log}:\nfirst\ncannot bind"
    )


def test_waiting_has_an_end(sleeper: Process, tmp_path: Path) -> None:
    log = tmp_path / "empty.log"
    with pytest.raises(PermanentError) as error:
        wait_until(lambda: False, {"sleep": sleeper}, "thing", [log], 0.05)
    assert str(error.value) == (
        f"cannot start thing: not ready after 0 s; nothing was written to {log}"
    )
