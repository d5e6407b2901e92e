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
from typing import Any

import requests

from speck.api.server import end_with_parent
from speck.errors import PermanentError
from speck.fog.ports import pick_port
from speck.tls.contexts import ClientTls
from speck.tls.identity import Identity


@dataclass(frozen=True, slots=True)
class Served:
    """A running service: its URL, its process and its log; `tls` is what a client of it needs."""

    url: str
    process: subprocess.Popen[bytes]
    log: Path
    tls: ClientTls | None = None


@contextmanager
def serving(
    home: Path,
    jar_folders: Sequence[Path],
    *,
    timeout_s: float = 180.0,
    port: int = 0,
    more: Mapping[str, str] | None = None,
    module: str = "speck.api.server",
    tls: Identity | None = None,
) -> Iterator[Served]:
    """Run `speck serve` with `home` on a loopback `port` (0: a free one) until the block ends;
    `more` holds further environment variables, `module` is the program.
    With `tls` it serves only clients with a certificate of the same authority.

    Raises PermanentError with the end of the log when it does not come up within `timeout_s`.
    """
    port = port or pick_port("127.0.0.1", 0)  # callers know a given port, so it must be kept
    home.mkdir(parents=True, exist_ok=True)
    log = home / "service.log"
    env = {
        "SPECK_ANALYZER_WARM": "0",  # nothing that is measured or shown shares the machine with it
        **os.environ,
        "SPECK_HOME": str(home),
        "SPECK_HOST": "127.0.0.1",
        "SPECK_PORT": str(port),
        "SPECK_JARS": ":".join(map(str, jar_folders)),
        **(more or {}),
    }
    if tls is not None:
        files = {"TLS_CERT": tls.cert, "TLS_KEY": tls.key, "CLIENT_CA": tls.ca}
        env |= {f"SPECK_{name}": str(file) for name, file in files.items()}
    with log.open("ab") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", module],
            env=env,
            stdout=out,
            stderr=out,
            preexec_fn=partial(end_with_parent, signal.SIGTERM),
        )
    client_tls = tls.files if tls else None
    served = Served(f"{'https' if tls else 'http'}://127.0.0.1:{port}", process, log, client_tls)
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
    files: dict[str, Any] = {}
    if served.tls is not None:
        files = {"verify": str(served.tls.ca), "cert": (served.tls.cert, served.tls.key)}
    while time.monotonic() < until and served.process.poll() is None:
        try:
            if requests.get(f"{served.url}/readyz", timeout=2, **files).ok:
                return
        except requests.RequestException:
            time.sleep(0.05)
    tail = "\n".join(served.log.read_text(errors="replace").splitlines()[-20:])
    raise PermanentError(f"cannot start the service; its log ends:\n{tail}")
