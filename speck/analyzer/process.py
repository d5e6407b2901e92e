"""A process of the analyzer, with its JVM, as the service sees it: it is started by the first
request, answers one after the other, and ends with the service."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from speck.analyzer.request import WARM_UP, AnalyzerRequest
from speck.model.values import JsonObject

GRACE_S = 5.0
"""How long a process has to end before it is killed."""

Outcome = tuple[str, str]
"""The state of an analysis that is over, and its error."""


class SparkApplication:
    """One process; once it has ended, another one is needed. One thread sends requests, any may
    call `end`. `log` is the file for what the process prints."""

    def __init__(self, argv: Sequence[str], log: Path):
        self._argv = argv
        self._log = log
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._is_ended = False
        self.is_warm = False
        """Whether it was up before the request that it answers, or the next one."""

    @property
    def is_usable(self) -> bool:
        """Whether it can take a request: it was neither ended, nor has it died."""
        process = self._process
        return not self._is_ended and (process is None or process.poll() is None)

    @property
    def pid(self) -> int | None:
        """The id of the process, which leads a group; None before the first request."""
        return self._process.pid if self._process else None

    def ask(self, request: AnalyzerRequest, report: Callable[[str], None]) -> Outcome | None:
        """Send a request and wait for its outcome; None if the process ends before. `report` is
        called with each step that begins. Raises OSError if the process cannot be started."""
        process = self._send(request.to_json())
        if process is None:
            return None
        assert process.stdout is not None
        for line in process.stdout:
            message = json.loads(line)
            if "step" in message:
                report(message["step"])
                continue
            self.is_warm = True
            return message["state"], message.get("error", "")
        process.wait()
        return None

    def warm_up(self) -> None:
        """Start the process, which gets ready; does not wait. Raises OSError if it cannot be
        started."""
        self._send(WARM_UP)
        self.is_warm = True

    def _send(self, message: JsonObject) -> subprocess.Popen[bytes] | None:
        """Send a message to the process, which is returned; None if it was ended."""
        process = self._start()
        if process is not None:
            assert process.stdin is not None
            with suppress(OSError):  # a process that has just died: its output ends, too
                process.stdin.write(json.dumps(message).encode() + b"\n")
                process.stdin.flush()
        return process

    def measure_memory(self) -> int:
        """Bytes of resident memory of the process and its JVM."""
        total = 0
        if self._process is None:
            return total
        with suppress(psutil.Error):
            process = psutil.Process(self._process.pid)
            for each in (process, *process.children(recursive=True)):
                with suppress(psutil.Error):
                    total += each.memory_info().rss
        return total

    def describe_end(self) -> str:
        """Why it ended: the last line of its log that begins with `cannot`, else its status."""
        lines: list[str] = []
        with suppress(OSError):
            lines = self._log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if line.startswith("cannot ")]
        status = self._process.returncode if self._process else None
        return (errors or [f"the analyzer ended with status {status}; see {self._log}"])[-1][:2000]

    def end(self) -> None:
        """End the process and its JVM: SIGTERM now, SIGKILL after a while. Does not wait."""
        with self._lock:
            self._is_ended = True
            process = self._process
        if process is None or process.poll() is not None:
            return
        _signal(process, signal.SIGTERM)
        killer = threading.Timer(GRACE_S, _kill, (process,))
        killer.daemon = True
        killer.start()

    def await_end(self) -> None:
        """Wait until a process that was told to end has ended, and free its pipes."""
        process = self._process
        if process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            process.wait(2 * GRACE_S)
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                with suppress(OSError):
                    pipe.close()

    def _start(self) -> subprocess.Popen[bytes] | None:
        with self._lock:
            if self._is_ended:
                return None
            if self._process is None:
                self._log.parent.mkdir(parents=True, exist_ok=True)
                with self._log.open("wb") as log:
                    self._process = subprocess.Popen(
                        self._argv,
                        stdin=subprocess.PIPE,
                        stdout=subprocess.PIPE,
                        stderr=log,
                        start_new_session=True,
                    )
            return self._process


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    """Signal the whole group: the process and its JVM."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
