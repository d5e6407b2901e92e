"""The agent against a service that a test plays, over real HTTP."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import speck
from binders.flink.layout import LAYOUT as FLINK
from speck.agent.agent import Agent, Settings
from speck.errors import PermanentError
from tests.agents import write_state

LIMIT_S = 120.0
JOB = "ab" * 16
LAYOUT = FLINK.to_json()


class Service:
    """Answers polls from `commands`, one list for each; keeps the posts that it receives."""

    def __init__(self) -> None:
        self.commands: queue.Queue[list[dict[str, Any]]] = queue.Queue()
        self.polls: queue.Queue[str] = queue.Queue()
        self.posts: queue.Queue[tuple[str, dict[str, Any]]] = queue.Queue()
        self.known_site = True
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True  # else an answer's body waits 40 ms for the head's ACK

            def do_GET(self) -> None:
                service.polls.put(self.path)
                self._answer(200, {"commands": service.commands.get(), "again": 0.0})

            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.posts.put((self.path, body))
                if self.path == "/sites":
                    service.known_site = True
                self._answer(200 if service.known_site else 404, {})

            def _answer(self, status: int, body: dict[str, Any]) -> None:
                text = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, format: str, *args: Any) -> None:
                """Quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, args=(0.05,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def next_post(self, path: str) -> dict[str, Any]:
        """The next body that was posted to `path`."""
        while True:
            posted_path, body = self.posts.get(timeout=LIMIT_S)
            if posted_path == path:
                return body

    def next_poll(self) -> str:
        return self.polls.get(timeout=LIMIT_S)


@pytest.fixture
def service() -> Iterator[Service]:
    server = Service()
    yield server
    server.server.shutdown()
    server.server.server_close()


def run(settings: Settings) -> Agent:
    agent = Agent(settings)
    threading.Thread(target=agent.run, daemon=True).start()
    return agent


def settings(service: Service, folder: Path, **more: Any) -> Settings:
    return Settings("edge-a", service.url, folder / "state", **more)


def test_it_reports_and_does_what_it_is_bidden(service: Service, tmp_path: Path) -> None:
    write_state(tmp_path / "state/checkpoints" / JOB / "chk-4", 4)
    agent = run(settings(service, tmp_path, listen=("127.0.0.1", 0)))
    beat = service.next_post("/sites/edge-a/heartbeat")
    assert beat["state_folder"] == str(tmp_path / "state")
    assert beat["free_bytes"] > 0
    assert beat["cores"] >= 1
    assert beat["memory_bytes"] > beat["memory_available_bytes"] > 0
    assert "cpu" in beat
    assert beat["listen"].startswith("http://127.0.0.1:")
    assert "known" not in service.next_poll()
    service.commands.put([{"id": "b-1", "kind": "list", "engine_job_id": JOB, "layouts": [LAYOUT]}])
    answer = service.next_post("/sites/edge-a/commands/b-1")
    assert answer["state"] == "done"
    assert [state["number"] for state in answer["states"]] == [4]
    agent.stop()


def test_what_is_given_up_is_not_called_known(service: Service, tmp_path: Path) -> None:
    """Else the service would answer at once, again and again."""
    agent = run(settings(service, tmp_path))
    service.next_poll()
    command = {"id": "b-1", "kind": "receive", "transfer": "t", "job_name": "j", "secret": "s"}
    service.commands.put([command])
    assert service.next_post("/sites/edge-a/commands/b-1") == {"state": "ready", "bytes": 0}
    assert service.next_poll().endswith("&known=b-1")
    service.commands.put([])
    assert "known" not in service.next_poll()
    agent.stop()


def test_no_more_is_begun_than_it_can_do(service: Service, tmp_path: Path) -> None:
    agent = run(settings(service, tmp_path))
    service.next_poll()
    many = [
        {"id": f"b-{n}", "kind": "receive", "transfer": f"t-{n}", "job_name": "j", "secret": "s"}
        for n in range(12)
    ]
    service.commands.put(many)
    command_ids = service.next_poll().partition("&known=")[2].split(",")
    assert len(command_ids) == 8
    service.commands.put([command for command in many if command["id"] not in command_ids[:3]])
    while "b-8" not in service.next_poll():
        service.commands.put([command for command in many if command["id"] not in command_ids[:3]])
    agent.stop()


@pytest.mark.parametrize(
    ("command", "error", "again"),
    [
        ({"kind": "dance"}, "this agent does not support it; update the agent", False),
        ({"kind": "list"}, "cannot list: KeyError", True),
        ({"kind": "list", "engine_job_id": "../x"}, "is not an engine job id", False),
        (
            {"kind": "list", "engine_job_id": 7, "layouts": [LAYOUT]},
            "cannot list: AttributeError",
            True,
        ),
        ({"kind": "drop", "path": "/etc", "layouts": [LAYOUT]}, "not a state below", False),
        (
            {"kind": "send", "path": "savepoints/s/1", "layouts": [LAYOUT]},
            "cannot find a complete state",
            False,
        ),
    ],
)
def test_what_it_cannot_do_it_says(
    service: Service, tmp_path: Path, command: dict[str, Any], error: str, again: bool
) -> None:
    agent = run(settings(service, tmp_path))
    service.commands.put([{"id": "b-1", **command}])
    answer = service.next_post("/sites/edge-a/commands/b-1")
    assert (answer["state"], answer["again"]) == ("failed", again)
    assert error in answer["error"]
    agent.stop()


def test_it_registers_its_site(service: Service, tmp_path: Path) -> None:
    service.known_site = False
    addresses = {
        "engine": "http://127.0.0.1:9",
        "broker": "tcp://127.0.0.1:9",
        "credentials": "edge-a",
        "broker_kind": "memory",
    }
    agent = run(settings(service, tmp_path, tier="cloud", **addresses))
    assert service.next_post("/sites") == {
        "name": "edge-a",
        "tier": "cloud",
        "spe": {"address": "http://127.0.0.1:9"},  # the service knows which kind it is
        "broker": {"kind": "memory", "address": "tcp://127.0.0.1:9", "credentials": "edge-a"},
    }
    service.next_post("/sites/edge-a/heartbeat")
    agent.stop()


def test_without_addresses_it_says_how_to_register(
    service: Service, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    service.known_site = False
    agent = run(settings(service, tmp_path, beat_s=0.01))
    for _ in range(3):
        service.next_post("/sites/edge-a/heartbeat")
    agent.stop()
    assert "register it with `speck site add`" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"token_file": Path("/nowhere/token")}, "cannot read the token file /nowhere/token"),
        ({"listen": ("0.0.0.0", 8090)}, "give --advertise"),
        ({"listen": ("192.0.2.1", 8090)}, "cannot listen on 192.0.2.1:8090"),
    ],
)
def test_what_keeps_it_from_starting(
    service: Service, tmp_path: Path, more: dict[str, Any], message: str
) -> None:
    with pytest.raises(PermanentError, match=message):
        Agent(settings(service, tmp_path, **more)).run()


def test_the_agent_runs_without_any_package() -> None:
    """A site without Docker gets the folder `speck` and Debian's Python."""
    root = Path(speck.__file__).parent.parent
    program = f"import sys; sys.path.insert(0, {str(root)!r}); import speck.agent.agent"
    bare = [sys.executable, "-I", "-S", "-c", program]
    assert subprocess.run(bare, capture_output=True, text=True).stderr == ""
