"""The commands of docs/security.md work as pasted, on one machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from speck.fog.ports import pick_port
from tests.waiting import wait_for

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
BLOCK = re.compile(r"<!-- test: internet -->\n```sh\n(.*?)```", re.DOTALL)


class Reader:
    """Somebody who pastes the commands in one shell; services run on in the background."""

    def __init__(self, folder: Path, port: int):
        self._folder = folder
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SPECK_")}
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        self._env = {**clean, "PATH": path, "SPECK_PORT": str(port), "NO_COLOR": "1"}
        self._env["SPECK_ANALYZER_WARM"] = "0"
        self._env["SPECK_LOG"] = "DEBUG"  # heartbeats are in the log only then
        self._exports = "umask 077"

    def paste(self, line: str) -> str:
        """Run a command to its end; what it prints."""
        if line.startswith("export "):
            self._exports += f"\n{line}"
        done = subprocess.run(
            ["bash", "-euc", f"{self._exports}\n{line}"],
            cwd=self._folder,
            env=self._env,
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
        return done.stdout + done.stderr

    @contextmanager
    def leave_running(self, line: str) -> Iterator[Path]:
        """Start a command of the kind that goes on until it is ended; the file with its log."""
        log = self._folder / f"{line.split()[1]}.log"
        command = line.removesuffix(" &").split()
        with log.open("wb") as out:
            process = subprocess.Popen(
                command, cwd=self._folder, env=self._env, stdout=out, stderr=out
            )
        try:
            yield log
        finally:
            process.terminate()
            process.wait(60)


def test_a_fog_over_the_internet(tmp_path: Path) -> None:
    port = pick_port("127.0.0.1", 0)
    (commands,) = BLOCK.findall(PAGE.read_text())
    for there, here in (
        ("10.0.0.1:8080", f"127.0.0.1:{port}"),
        ("10.0.0.1", "127.0.0.1"),
        ("10.0.0.7", "127.0.0.7"),
        ("/var/lib/speck", str(tmp_path / "home")),
        ("/var/lib/flink/state", str(tmp_path / "state")),
    ):
        commands = commands.replace(there, here)
    reader = Reader(tmp_path, port)
    logs: dict[str, Path] = {}
    with ExitStack() as stack:
        for line in commands.splitlines():
            if line.endswith(" &"):
                log = stack.enter_context(reader.leave_running(line))
                logs[line.split()[1]] = log
            else:
                reader.paste(line)
            if "serve" in logs:
                wait_for(lambda: f"speck serves at https://127.0.0.1:{port}" in read(logs["serve"]))
        wait_for(lambda: "POST /sites/edge-a/heartbeat 200" in read(logs["serve"]))
        checked = reader.paste("speck site check edge-a || true")
        assert "plain" not in checked
        assert "no file of that name" in checked  # nothing but the credentials is missing
    for secret in ("ca.key", "edge-a.key", "root.token", "edge-a.token"):
        assert (tmp_path / secret).stat().st_mode & 0o077 == 0, secret


def read(log: Path) -> str:
    return log.read_text(errors="replace")
