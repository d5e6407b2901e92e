"""Detached processes that can be found again after their launcher has died.

Every process has a token in its environment. The token is recorded before the process starts, so a
launcher that dies at any instant leaves no process that cannot be found. The pid and start time of
a running process tell whether the pid still belongs to it.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from speck.errors import PermanentError

TOKEN_VARIABLE = "SPECK_FOG_PROCESS"

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_TICKS_S = os.sysconf("SC_CLK_TCK")
_POLL_S = 0.02

# Children of this process have to be reaped, or they remain as zombies.
_children: dict[int, subprocess.Popen[bytes]] = {}


@dataclass(frozen=True, slots=True)
class Command:
    """A program to start; stdout and stderr go to `log`, `env` is added to our environment."""

    what: str
    argv: Sequence[str]
    cwd: Path
    log: Path
    env: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Process:
    """A process that we started; `started` is its start time in clock ticks since boot."""

    pid: int
    started: int

    @property
    def running(self) -> bool:
        """Whether it still exists (zombies do not count)."""
        child = _children.get(self.pid)
        if child is not None:
            child.poll()
        return _start_ticks(self.pid) == self.started

    @property
    def rss_mb(self) -> float:
        """Resident memory in MB; 0 when it has ended."""
        if not self.running:
            return 0.0
        try:
            return float(psutil.Process(self.pid).memory_info().rss / 1e6)
        except psutil.Error:
            return 0.0

    def send(self, number: signal.Signals) -> None:
        """Send a signal; does nothing when the process has ended."""
        if self.running:
            try:
                os.kill(self.pid, number)
            except ProcessLookupError:
                return

    def stop(self, timeout_s: float = 15.0) -> None:
        """SIGTERM and wait; SIGKILL after `timeout_s`."""
        stop_all([self], timeout_s)

    def kill(self) -> None:
        """SIGKILL and wait until it has ended."""
        stop_all([self], 0.0)


Launch = Callable[[Command], Process]
"""Starts a process; a fog's function also records it."""


def spawn(command: Command, token: str = "") -> Process:
    """Start `command` in its own session, so that it outlives this process and its terminal.

    Raises PermanentError when the program cannot be executed.
    """
    env = {**os.environ, **command.env, TOKEN_VARIABLE: token}
    command.log.parent.mkdir(parents=True, exist_ok=True)
    try:
        with command.log.open("ab") as log:
            child = subprocess.Popen(
                list(command.argv),
                cwd=command.cwd,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
    except OSError as error:
        raise PermanentError(f"cannot start {command.what}: {error}") from error
    _children[child.pid] = child
    # A child that has ended already is a zombie until it is polled: its start time is known.
    return Process(child.pid, _start_ticks(child.pid, dead_too=True) or 0)


def stop_all(processes: Iterable[Process], timeout_s: float) -> None:
    """Send SIGTERM to all at once, and SIGKILL to those that run after `timeout_s`; returns when
    all have ended.

    Raises PermanentError when one survives SIGKILL (it hangs in the kernel).
    """
    remaining = [process for process in processes if process.running]
    if timeout_s > 0:
        for process in remaining:
            process.send(signal.SIGTERM)
        remaining = _wait_ended(remaining, timeout_s)
    for process in remaining:
        process.send(signal.SIGKILL)
    remaining = _wait_ended(remaining, 10.0)
    if remaining:
        pids = ", ".join(str(process.pid) for process in remaining)
        raise PermanentError(f"cannot end process {pids}: it does not react to SIGKILL")


def find_by_token(token: str) -> Process | None:
    """The running process that was started with `token`."""
    for process in psutil.process_iter(["environ"]):  # None for another user's process
        if (process.info["environ"] or {}).get(TOKEN_VARIABLE) == token:
            started = _start_ticks(process.pid)
            if started is not None:
                return Process(process.pid, started)
    return None


def boot_id() -> str:
    """Identifies the current boot of the machine; pids of an earlier boot mean nothing."""
    return _BOOT_ID.read_text().strip()


def wait_until(
    ready: Callable[[], bool],
    processes: Mapping[str, Process],
    what: str,
    logs: Sequence[Path],
    timeout_s: float,
) -> None:
    """Wait until `ready()`. Raises PermanentError with the logs' last lines when one of the
    processes ends first, or when `timeout_s` pass."""
    deadline = time.monotonic() + timeout_s
    while not ready():
        ended = [name for name, process in processes.items() if not process.running]
        if ended:
            raise PermanentError(f"cannot start {what}: {ended[0]} ended; {_last_lines(logs)}")
        if time.monotonic() > deadline:
            raise PermanentError(
                f"cannot start {what}: not ready after {timeout_s:.0f} s; {_last_lines(logs)}"
            )
        time.sleep(_POLL_S)


def find_program(name: str, hint: str, folders: Sequence[Path] = ()) -> Path:
    """Find a program on PATH or in `folders`. Raises PermanentError with `hint`, which says how
    to install it."""
    path = shutil.which(name)
    if path:
        return Path(path)
    for folder in folders:
        if os.access(folder / name, os.X_OK):
            return folder / name
    raise PermanentError(f"cannot find {name}: {hint}")


def _wait_ended(processes: Sequence[Process], timeout_s: float) -> list[Process]:
    deadline = time.monotonic() + timeout_s
    remaining = [process for process in processes if process.running]
    while remaining and time.monotonic() < deadline:
        time.sleep(_POLL_S)
        remaining = [process for process in remaining if process.running]
    return remaining


def _start_ticks(pid: int, *, dead_too: bool = False) -> int | None:
    """The start time of a process since boot; a time since the epoch changes with the clock."""
    try:
        process = psutil.Process(pid)
        if not dead_too and process.status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD):
            return None
        return round((process.create_time() - psutil.boot_time()) * _TICKS_S)
    except psutil.Error:
        return None


def _last_lines(logs: Sequence[Path], lines: int = 12) -> str:
    sections = []
    for log in logs:
        try:
            text = log.read_text(errors="replace")
        except OSError:
            continue
        # Java 24 and later warn at their start of what Flink's libraries call
        words = [line for line in text.splitlines() if line and not line.startswith("WARNING: ")]
        if words:
            sections.append(f"last lines of {log}:\n" + "\n".join(words[-lines:]))
    return "\n".join(sections) or f"nothing was written to {logs[0]}"
