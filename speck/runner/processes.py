"""The processes of a program: those of its session, read from /proc.

A program may start others, which may have process groups of their own; they stay in its session
unless they leave it on purpose (a control group, where there is one, holds those, too).
"""

from __future__ import annotations

import os
import signal
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")
_TICK_MS = 1000 / os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_DEAD = ("Z", "X", "x")
_RECENT_S = 1.0


@dataclass(frozen=True, slots=True)
class Process:
    """A line of /proc. `began` is in ticks since the machine was started; `cpu_ms` is that of the
    process and of those of its children that have ended; `bytes` are in memory."""

    pid: int
    parent: int
    session: int
    began: int
    cpu_ms: float
    bytes: int


_recent: tuple[float, Mapping[int, list[Process]]] = (float("-inf"), {})


@dataclass(frozen=True, slots=True)
class ProgramSession:
    """A session that the runner has made. Its id alone proves nothing, since it is used again: so
    do the machine's run (`boot`) and when its leader began."""

    id: int
    boot: str
    began: int


def read_boot() -> str:
    """What names this run of the machine."""
    with suppress(OSError):
        return (_PROC / "sys/kernel/random/boot_id").read_text().strip()
    return ""


def read_process(pid: int) -> Process | None:
    """A process that lives; None: there is none."""
    try:
        text = (_PROC / str(pid) / "stat").read_bytes().decode("latin-1")  # names are any bytes
        fields = text[text.rindex(")") + 2 :].split()
        if fields[0] in _DEAD:
            return None
        cpu_ms = sum(int(value) for value in fields[11:15]) * _TICK_MS
        parent, session, began, pages = (int(fields[at]) for at in (1, 3, 19, 21))
    except (OSError, ValueError, IndexError):
        return None
    return Process(pid, parent, session, began, cpu_ms, pages * _PAGE)


def list_sessions() -> Mapping[int, list[Process]]:
    """All processes by their session."""
    sessions: defaultdict[int, list[Process]] = defaultdict(list)
    for entry in os.listdir(_PROC):
        if entry.isdigit() and (process := read_process(int(entry))) is not None:
            sessions[process.session].append(process)
    return sessions


def list_recent_sessions() -> Mapping[int, list[Process]]:
    """All processes by their session, as they were within the last second: however many programs
    are measured, one look at all processes is enough."""
    global _recent
    now = time.monotonic()
    if now - _recent[0] >= _RECENT_S:
        _recent = now, list_sessions()
    return _recent[1]


def find_of_user(uid: int) -> list[Process]:
    """The processes that run as a user, or may become it again."""
    processes = []
    for entry in os.listdir(_PROC):
        with suppress(OSError):
            if entry.isdigit() and uid in _list_uids(_PROC / entry):
                processes.append(read_process(int(entry)))
    return [process for process in processes if process is not None]


def _list_uids(folder: Path) -> list[int]:
    """Of a process: the user that it runs as, and those that it may become again."""
    lines = (folder / "status").read_bytes().splitlines()
    words = next((line.split() for line in lines if line.startswith(b"Uid:")), [])
    return [int(word) for word in words[1:]]


def measure_memory(processes: Iterable[Process]) -> int:
    """Bytes in memory. Of what several share, such as forks of one, each has its part. This takes
    longer than to add `bytes`."""
    total = 0
    for process in processes:
        own = process.bytes
        with suppress(OSError, ValueError, StopIteration):  # ended, or not to be read
            lines = (_PROC / str(process.pid) / "smaps_rollup").read_bytes().splitlines()
            own = int(next(line for line in lines if line.startswith(b"Pss:")).split()[1]) << 10
        total += own
    return total


def find_members(
    session: ProgramSession, sessions: Mapping[int, list[Process]] | None = None
) -> list[Process]:
    """The processes of a session that live. No process gets an id that is still the session of
    others, so only a leader that began at another time shows that the id is used again."""
    if session.boot != read_boot():
        return []
    members = (list_sessions() if sessions is None else sessions).get(session.id, [])
    leader = next((each for each in members if each.pid == session.id), None)
    return [] if leader is not None and leader.began != session.began else list(members)


def find_holders(file: Path) -> list[Process]:
    """The processes that have a file open: what a program has started may have left its session, or
    the session is not known."""
    holders = []
    for entry in os.listdir(_PROC):
        with suppress(OSError):
            if entry.isdigit() and any(
                os.path.samefile(each.path, file) for each in os.scandir(_PROC / entry / "fd")
            ):
                holders.append(read_process(int(entry)))
    return [process for process in holders if process is not None]


def find_mains(members: Iterable[Process], leader: int) -> list[Process]:
    """The program itself: what the session's leader has started, or, without it, what has lost its
    parent."""
    members = list(members)
    pids = {each.pid for each in members}
    return [e for e in members if e.pid != leader and (e.parent == leader or e.parent not in pids)]


def send(processes: Iterable[Process], what: signal.Signals) -> None:
    """Send a signal to those of these processes that still live."""
    for process in processes:
        now = read_process(process.pid)
        if now is not None and now.began == process.began:
            with suppress(ProcessLookupError):
                os.kill(process.pid, what)
