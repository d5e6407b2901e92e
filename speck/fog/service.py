"""Runs a speck service in a separate process, for the demo, benchmarks and end-to-end tests."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import requests

from speck.api.server import end_with_parent
from speck.errors import PermanentError
from speck.fog.ports import pick_port


@dataclass(frozen=True, slots=True)
class Served:
    """A running service: its URL, its process and its log."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path


@contextmanager
def serving(
    home: Path,
    jar_folders: Sequence[Path],
    *,
    timeout_s: float = 180.0,
    port: int = 0,
    more: Mapping[str, str] | None = None,
    module: str = "speck.api.server",
) -> Iterator[Served]:
    """Run `speck serve` with `home` on a loopback `port` (0: a free one) until the block ends;
    `more` holds further environment variables, `module` is the program.

    Raises PermanentError with the end of the log when it does not come up within `timeout_s`.
    """
    port = port or pick_port("127.0.0.1", 0)  # callers know a given port, so it must be kept
    home.mkdir(parents=True, exist_ok=True)
    log = home / "service.log"
    env = {
        **os.environ,
        "SPECK_HOME": str(home),
        "SPECK_HOST": "127.0.0.1",
        "SPECK_PORT": str(port),
        "SPECK_JARS": ":".join(map(str, jar_folders)),
        **(more or {}),
    }
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            env=env,
            stdout=out,
            stderr=out,
            preexec_fn=partial(end_with_parent, signal.SIGTERM),
        )
    served = Served(f"http://127.0.0.1:{port}", process, log)
    try:
        _await_ready(served, timeout_s)
        yield served
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _await_ready(served: Served, timeout_s: float) -> None:
    until = time.monotonic() + timeout_s
    while time.monotonic() < until and served.process.poll() is None:
        try:
            if requests.get(f"{served.url}/readyz", timeout=2).ok:
                return
        except requests.RequestException:
            time.sleep(0.05)
    tail = "\n".join(served.log.read_text(errors="replace").splitlines()[-20:])
    raise PermanentError(f"cannot start the service; its log ends:\n{tail}")
