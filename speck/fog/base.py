"""The base of a fog: its state file, and starting and ending the processes recorded there."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from speck.errors import PermanentError
from speck.fog.cgroups import Quotas, into
from speck.fog.paths import default_folder
from speck.fog.process import Command, Process, spawn, stop_all
from speck.fog.state import FogState, ProcessRecord, StateFile
from speck.fog.wan import proxied
from speck.fog.wan.namespaces import Network

Wrap = Callable[[str, Command], Command]
"""Takes a site's name and a command to start there; returns the command to start instead."""

WAN = "wan"
"""The name under which the WAN's processes are recorded, as if it were a site."""

SUPERVISOR = "supervisor"
"""The process that restarts dead ones; it is recorded as if it were a site of this name."""


class FogBase:
    """The fog with its files in `folder`; it outlives the process that brings it up."""

    def __init__(
        self, folder: Path | None = None, *, wrap: Wrap | None = None, lock_timeout_s: float = 0.0
    ) -> None:
        """`wrap` may change the command of a site's process, e.g. to trace it. `lock_timeout_s` is
        how long to wait while another process, such as the supervisor, changes this fog."""
        self.folder = (folder or default_folder()).absolute()
        self._file = StateFile(self.folder)
        self._state: FogState | None = None
        self._guard = threading.Lock()
        self._launching = True
        self._wrap = wrap
        self._lock_timeout_s = lock_timeout_s
        self._quotas = Quotas(self.folder)
        self._network = Network(self.folder)

    @contextmanager
    def _hold_lock(self) -> Iterator[None]:
        """Hold the fog's lock; the state is read from the file again."""
        with self._file.lock(self._lock_timeout_s):
            self._state = None
            yield

    def _launch(self, site: str, command: Command, speed: float | None = None) -> Process:
        """Record a process before it starts, start it, then record its pid."""
        record = ProcessRecord(site, command.what, secrets.token_hex(16))
        if self._wrap is not None and site not in (WAN, SUPERVISOR):
            command = self._wrap(site, command)
        command = self._place(site, command)
        if speed is not None:
            command = into(self._quotas.hold(site, speed), command)
        with self._guard:
            if not self._launching:
                raise PermanentError(f"cannot start {command.what} of {site}: interrupted")
            self._save(self._load().with_process(record))
            process = spawn(command, record.token)
            self._save(
                self._load().with_process(ProcessRecord(site, command.what, record.token, process))
            )
        return process

    def _place(self, site: str, command: Command) -> Command:
        """The command in the site's namespace, or with the addresses of the site's relays."""
        state = self._load()
        if state.wan is None or site in (WAN, SUPERVISOR):
            return command
        if state.wan.mode == "namespaces":
            return self._network.into(site, command)
        return proxied.route_brokers(state.site(site), state.wan, state.sites, command)

    def _end_all(self) -> int:
        state = self._file.load()
        if state is None:
            return 0
        self._save(state.find_processes())
        running = self._running()
        stop_all(running, 15.0)
        return len(running)

    def _running(self) -> list[Process]:
        state = self._load()
        places = [SUPERVISOR, *(site.name for site in state.sites), WAN]
        return [process for place in places for process in state.of(place).values()]

    def _load(self) -> FogState:
        if self._state is None:
            state = self._file.load()
            if state is None:
                raise PermanentError(
                    f"cannot find a fog in {self.folder}: bring one up (speck fog up)"
                )
            self._state = state.find_processes()
        return self._state

    def _save(self, state: FogState) -> None:
        self._file.save(state)
        self._state = state
