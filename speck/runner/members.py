"""The processes of one program: which they are, what they use, and how they are ended."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from speck.runner.groups import Group
from speck.runner.lease import is_held
from speck.runner.processes import (
    Process,
    ProgramSession,
    find_holders,
    find_mains,
    find_members,
    list_recent_sessions,
    list_sessions,
    measure_memory,
    send,
)


@dataclass(slots=True)
class Usage:
    """What a program uses: CPU time since its start, and memory."""

    cpu_ms: float | None = None
    bytes: int | None = None


class Members:
    """All processes of a program, whatever sessions they make: those of its control group if it has
    one, of its session otherwise, and those that hold its lease if they have left that."""

    def __init__(self, lease: Path) -> None:
        self.usage = Usage()
        self.total_cpu_ms = 0.0
        """CPU time of all its runs that this runner has seen."""
        self._lease = lease
        self._group: Group | None = None
        self._kills = 0  # by the kernel, before the last start
        self._was_over = False
        self._spent_ms = 0.0

    def use_group(self, group: Group) -> None:
        """Let them be in a group from the next start on, or as before this runner began."""
        self._group = group
        self._kills = group.count_kills()

    def enter(self, pid: int, memory_bytes: int | None) -> None:
        """Count a process that is about to start the program; a group limits the memory. Raises
        OSError."""
        self._was_over = False
        if self._group is not None:
            self._group.make(memory_bytes)
            self._group.enter(pid)
            self._kills = self._group.count_kills()

    def find(
        self, session: ProgramSession | None, sessions: Mapping[int, list[Process]] | None = None
    ) -> list[Process]:
        """The processes that live; `sessions`: those of all, if they have been looked at."""
        in_group = self._group.members() if self._group is not None else []
        in_session = find_members(session, sessions) if session is not None else []
        members = list({each.pid: each for each in (*in_group, *in_session)}.values())
        return members or (find_holders(self._lease) if is_held(self._lease) else [])

    def ask_to_end(self, session: ProgramSession | None) -> None:
        """Send SIGTERM to the program itself, not to what it has started."""
        if session is not None:
            members = find_members(session, list_sessions())
            send(find_mains(members, session.id), signal.SIGTERM)

    def kill(self, session: ProgramSession | None) -> None:
        """End all of them."""
        if self._group is not None:
            self._group.kill()
        send(self.find(session), signal.SIGKILL)

    def measure(self, session: ProgramSession | None, memory_bytes: int | None) -> None:
        """Bring `usage` and `total_cpu_ms` up to date. Where they seem to use more than that much
        memory, what several share counts once."""
        members = self.find(session, list_recent_sessions())
        cpu_ms = sum(each.cpu_ms for each in members)
        if self._group is not None and (counted_ms := self._group.cpu_ms()) is not None:
            cpu_ms = counted_ms  # of earlier runs, too
        # what a process has used is gone with it if its parent had not waited for it
        cpu_ms = max(cpu_ms, self.usage.cpu_ms or 0.0)
        used = sum(each.bytes for each in members)
        if memory_bytes is not None and used > memory_bytes:
            used = measure_memory(members)
        self.usage = Usage(cpu_ms, used)
        self.total_cpu_ms = max(self.total_cpu_ms, self._spent_ms + cpu_ms)

    def exceed(self, memory_bytes: int | None) -> bool:
        """Whether they use more memory, and no group sees to that."""
        is_limited = self._group is not None and self._group.limits_memory
        if memory_bytes is not None and not is_limited and (self.usage.bytes or 0) > memory_bytes:
            self._was_over = True
            return True
        return False

    @property
    def lacked_memory(self) -> bool:
        """Whether the last run ended for want of memory."""
        kills = self._group.count_kills() if self._group is not None else 0
        return self._was_over or kills > self._kills

    def end_run(self) -> None:
        """Begin to measure anew: all of them are gone."""
        if self._group is None or self._group.cpu_ms() is None:
            self._spent_ms += self.usage.cpu_ms or 0.0
        self.usage = Usage()

    def remove_group(self) -> None:
        """The program does not start again."""
        if self._group is not None:
            self._group.remove()
