"""Real agents, real HTTP: state travels between two folders, straight or relayed."""

from __future__ import annotations

import resource
import socket
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

import psutil
import pytest
import requests

from speck.agent.listener import CONNECTIONS_MOST
from speck.agent.web import Caller
from speck.fog.service import serving
from speck.model.site import AgentReport
from tests.agents import Field, await_transfer, fields, large, transfer, write_state
from tests.certificates import Authority
from tests.memory_fog import site_body
from tests.waiting import wait_for


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Field]:
    with fields(tmp_path) as pair:
        yield pair


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "relayed"])
def test_a_state_travels(sites: Field, direct: bool) -> None:
    sites.start_both(direct=direct)
    files = {"state-1": large(3), "state-2": b""}
    origin = write_state(sites.state("edge-a") / "savepoints/counter/x/savepoint-1", 9, files)
    progress = await_transfer(sites.service, transfer(origin))
    assert progress.failure is None
    arrived = Path(str(progress.location).removeprefix("file://"))
    assert arrived.is_relative_to(sites.state("edge-b"))
    assert {f.name: f.read_bytes() for f in arrived.iterdir()} == {
        f.name: f.read_bytes() for f in origin.iterdir()
    }
    assert list((sites.state("edge-b") / "carried/.arriving").iterdir()) == []
    (event,) = [e for e in sites.service.records.events.after() if "carried" in e.message]
    assert ("(direct)" if direct else "(relayed)") in event.message


@pytest.mark.long
def test_a_hundred_agents_that_wait_leave_threads_for_others(tmp_path: Path) -> None:
    """Over the real server; each waits as long as it is let."""
    answers: list[int] = []
    ended = threading.Event()
    names = [f"edge-{number}" for number in range(100)]

    def poll(url: str, name: str) -> None:
        caller = Caller(url, lambda: None)
        while not ended.is_set():
            status, answer = caller.json("GET", f"/sites/{name}/commands?wait=25", timeout_s=60)
            answers.append(status)
            ended.wait(float(answer["again"]))
        caller.close()

    with serving(tmp_path / "home", [], more={"SPECK_SIMULATED": "1"}) as server:
        for name in names:
            body = {**site_body(name), "labels": {}}
            assert requests.post(f"{server.url}/sites", json=body, timeout=30).status_code == 201
        threads = [
            threading.Thread(target=poll, args=(server.url, name), daemon=True) for name in names
        ]
        for thread in threads:
            thread.start()
        wait_for(lambda: len(answers) > 300, "agents that were sent away and came again")
        for _ in range(20):
            for path in ("/livez", "/readyz", "/jobs"):
                assert requests.get(server.url + path, timeout=5).status_code == 200
        assert set(answers) == {200}
        ended.set()


STRANGERS = 2500


@pytest.mark.long
def test_strangers_take_neither_threads_nor_the_way_of_a_state(sites: Field) -> None:
    """They connect, say one letter and wait."""
    sites.start_both()
    listen = str(sites.service.agents.beat("edge-b").listen)
    host, _, port = listen.removeprefix("http://").partition(":")
    process = psutil.Process(sites.agents["edge-b"].process.pid)
    threads = process.num_threads()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as held:
        held.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        strangers = []
        for _ in range(STRANGERS):
            stranger = held.enter_context(socket.create_connection((host, int(port)), timeout=60))
            with suppress(OSError):  # it is closed already
                stranger.sendall(b"P")
            strangers.append(stranger)
        assert process.num_threads() <= threads + CONNECTIONS_MOST
        origin = write_state(sites.state("edge-a") / "savepoints/counter/x/savepoint-1", 9)
        assert await_transfer(sites.service, transfer(origin)).failure is None
        for stranger in strangers:  # each is closed, the last after its deadline
            with suppress(ConnectionError):
                assert stranger.recv(1) == b""
    wait_for(lambda: process.num_threads() <= threads + 4, "the threads of strangers to end")


def test_a_piece_needs_the_token_of_its_own_transfer(sites: Field) -> None:
    sites.start("edge-b", "--listen", "127.7.7.2:0")
    sites.heard("edge-b")
    listen = str(sites.service.agents.beat("edge-b").listen)
    secrets = {}
    for identity in ("t-1", "t-2"):  # their source never sends
        sites.service.agents.heartbeat("edge-a", AgentReport(state_folder="/s"))
        sites.service.agents.carry(transfer(Path("/s/savepoints/a/b"), identity))
    for command in sites.service.agents.open_commands("edge-b", (), 0.0):
        secrets[command.body["transfer"]] = command.body["secret"]

    def put(identity: str, secret: str | None) -> int:
        headers = {"Authorization": f"Bearer {secret}"} if secret else {}
        url = f"{listen}/transfers/{identity}?offset=0&total=9"
        return requests.put(url, data=b"123", headers=headers, timeout=30).status_code

    wait_for(lambda: put("t-1", secrets["t-1"]) != 403, "the agent to begin")
    assert put("t-1", None) == put("t-1", "guessed") == put("t-1", secrets["t-2"]) == 403
    assert put("t-3", secrets["t-1"]) == 403


@pytest.mark.parametrize("trusted", [True, False], ids=["trusted", "of another authority"])
def test_a_state_travels_over_tls(sites: Field, tmp_path: Path, trusted: bool) -> None:
    """Straight between agents that trust each other; else the service passes it on."""
    authority = Authority.create(tmp_path / "fog")
    other = Authority.create(tmp_path / "other")
    server = authority.issue("listener", "IP:127.7.7.2")
    client = (authority if trusted else other).issue("edge-a", "DNS:edge-a")

    def options(*pairs: object) -> list[str]:
        return [str(each) for each in pairs]

    listen = ("--listen", "127.7.7.2:0", "--tls-cert", server[0], "--tls-key", server[1])
    sites.start("edge-b", *options(*listen, "--client-ca", authority.cert))
    sites.start("edge-a", *options("--ca", authority.cert, "--cert", client[0], "--key", client[1]))
    sites.heard("edge-a", "edge-b")
    assert str(sites.service.agents.beat("edge-b").listen).startswith("https://127.7.7.2:")
    origin = write_state(sites.state("edge-a") / "savepoints/counter/x/savepoint-1", 9)

    progress = await_transfer(sites.service, transfer(origin))

    assert progress.failure is None
    (event,) = [e for e in sites.service.records.events.after() if "carried" in e.message]
    assert ("(direct)" if trusted else "(relayed)") in event.message
