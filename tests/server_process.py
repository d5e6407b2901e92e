"""`speck serve` as a process of its own, for tests that need to kill it or to spoil its disk."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import psutil

from tests.waiting import wait_for

PATIENCE_S = 240.0


class Log:
    """What a process says. Not a file: a test may take room or the right to write away."""

    def __init__(self, stream: IO[bytes]):
        self._content = bytearray()
        self._over = threading.Thread(target=self._read, args=(stream,), daemon=True)
        self._over.start()

    def read_text(self) -> str:
        return self._content.decode()

    def whole(self) -> str:
        """Everything, once the process has ended."""
        self._over.join(PATIENCE_S)
        return self.read_text()

    def _read(self, stream: IO[bytes]) -> None:
        while chunk := stream.read1(65536):  # type: ignore[attr-defined]
            self._content += chunk


@dataclass(frozen=True)
class Server:
    """A running `speck serve`."""

    process: subprocess.Popen[bytes]
    log: Log
    url: str

    def workers(self) -> list[int]:
        """Process ids of the master's children."""
        return [child.pid for child in psutil.Process(self.process.pid).children()]

    def end(self, number: signal.Signals = signal.SIGTERM) -> int:
        """Its exit status after a signal."""
        self.process.send_signal(number)
        return self.process.wait(PATIENCE_S)


def start(
    home: Path, prepare: Callable[[], None] | None = None, **env: str
) -> tuple[subprocess.Popen[bytes], Log]:
    """Start it; `prepare` is called in the new process first."""
    settings = {"SPECK_HOME": str(home), "SPECK_PORT": "0", "SPECK_SIMULATED": "1"}
    settings |= {"SPECK_ANALYZER_WARM": "0", **env}
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SPECK_")}
    process = subprocess.Popen(
        [sys.executable, "-m", "speck.api.server"],
        env={**clean, **settings},
        stderr=subprocess.PIPE,
        preexec_fn=prepare,
        start_new_session=True,  # so that master and worker can be killed at once
    )
    assert process.stderr is not None
    return process, Log(process.stderr)


@contextmanager
def serving(home: Path, prepare: Callable[[], None] | None = None, **env: str) -> Iterator[Server]:
    """A server that has printed its address."""
    process, log = start(home, prepare, **env)
    try:
        ready = wait_for(
            lambda: re.search(r"speck serves at (\S+)", log.read_text()) or process.poll()
        )
        assert isinstance(ready, re.Match), log.read_text()
        yield Server(process, log, ready[1].replace("0.0.0.0", "127.0.0.1"))
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
