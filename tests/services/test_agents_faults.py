"""Transfers that are cut, damaged, slow or forged, between real agents."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import requests

from speck.errors import PermanentError, TransientError, UnreachableError
from speck.model.engines import ArtifactKind, EngineAt
from speck.service import Service
from tests.agents import (
    AgentProcess,
    Field,
    answering,
    await_transfer,
    fields,
    heard,
    large,
    transfer,
    write_state,
)
from tests.memory_fog import FAST, HASTY, memory_service, site_body
from tests.waiting import wait_for

LARGE_MB = 200
MEMORY_MB = 60.0
"""What an agent may take, whatever the size of what it carries."""


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Field]:
    with fields(tmp_path) as pair:
        yield pair


class Spoiler:
    """A proxy before a server: it may flip one byte, cut after so many bytes, or be slow."""

    def __init__(
        self,
        port: int,
        host: str = "127.7.7.2",
        *,
        flip_at: int | None = None,
        cut_at: int | None = None,
        bytes_per_s: int | None = None,
    ):
        self._target = host, port
        self._bytes_per_s = bytes_per_s
        self._flip_at, self._cut_at = flip_at, cut_at
        self._pause = threading.Event()
        self._block = 1 << 16 if bytes_per_s is None else 1 << 10
        self.passed = 0
        self._server = socket.create_server(("127.7.7.9", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._server.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
                server = socket.create_connection(self._target)
                for end in (client, server):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 14)
            except OSError:
                return
            for pair in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pump, args=pair, daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, inward: bool) -> None:
        try:
            while data := source.recv(self._block):
                if self._bytes_per_s is not None and inward:
                    self._pause.wait(len(data) / self._bytes_per_s)
                target.sendall(self._spoilt(data) if inward else data)
        except OSError:
            pass
        finally:
            source.close()
            target.close()

    def _spoilt(self, data: bytes) -> bytes:
        begin, self.passed = self.passed, self.passed + len(data)
        if self._flip_at is not None and begin <= self._flip_at < self.passed:
            at = self._flip_at - begin
            self._flip_at = None
            return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]
        if self._cut_at is not None and self.passed >= self._cut_at:
            self._cut_at = None
            raise ConnectionResetError
        return data


def _behind(sites: Field, **faults: int) -> Spoiler:
    """Both agents; what edge-a sends to edge-b goes through a spoiler."""
    with socket.create_server(("127.7.7.2", 0)) as free:
        port = free.getsockname()[1]
    spoiler = Spoiler(port, **faults)
    sites.start("edge-a")
    sites.start(
        "edge-b", "--listen", f"127.7.7.2:{port}", "--advertise", f"http://127.7.7.9:{spoiler.port}"
    )
    sites.heard("edge-a", "edge-b")
    return spoiler


def _same(origin: Path, location: str | None) -> bool:
    arrived = Path(str(location).removeprefix("file://"))
    return {f.name: f.read_bytes() for f in arrived.iterdir()} == {
        f.name: f.read_bytes() for f in origin.iterdir()
    }


def test_a_byte_that_flips_on_the_way_is_noticed_and_it_is_sent_again(sites: Field) -> None:
    spoiler = _behind(sites, flip_at=1_000_000)
    origin = write_state(sites.state("edge-a") / "savepoints/s/1", 9, {"f": large(2)})
    troubles: list[str] = []

    def done() -> str | None:
        try:
            return sites.service.agents.carry(transfer(origin)).location
        except TransientError as error:
            troubles.append(str(error))
            return None

    wait_for(done, "the state")
    assert _same(origin, done())
    assert len(troubles) == 1
    assert "SHA-256 differs" in troubles[0]
    spoiler.close()


def test_a_cut_connection_goes_on_where_it_was_cut(sites: Field) -> None:
    spoiler = _behind(sites, cut_at=6_000_000)
    origin = write_state(sites.state("edge-a") / "savepoints/s/1", 9, {"f": large(10)})
    assert _same(origin, await_transfer(sites.service, transfer(origin)).location)
    assert spoiler.passed < 13_000_000, "it was sent again from the start"
    spoiler.close()


@pytest.mark.parametrize(
    ("victim", "direct"),
    [
        pytest.param("edge-a", True, id="edge-a-direct"),
        pytest.param("edge-b", False, id="edge-b-relayed", marks=pytest.mark.long),
        pytest.param("edge-a", False, id="edge-a-relayed", marks=pytest.mark.long),
        pytest.param("edge-b", True, id="edge-b-direct", marks=pytest.mark.long),
    ],
)
def test_an_agent_killed_in_mid_transfer_goes_on_when_it_is_back(
    sites: Field, victim: str, direct: bool
) -> None:
    sites.start_both(direct=direct)
    origin = write_state(sites.state("edge-a") / "savepoints/s/1", 9, {"f": large(100)})
    move = transfer(origin)
    wait_for(lambda: sites.service.agents.carry(move).bytes > 1 << 20, "the first bytes")
    sites.agents[victim].kill()
    assert not list((sites.state("edge-b") / "carried").glob("counter/*"))
    sites.agents[victim].start()
    assert _same(origin, await_transfer(sites.service, move).location)
    assert list((sites.state("edge-b") / "carried/.arriving").iterdir()) == []


@pytest.mark.long
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "relayed"])
def test_a_service_started_anew_in_mid_transfer_goes_on(tmp_path: Path, direct: bool) -> None:
    bodies = [{**site_body(name), "labels": {}} for name in ("edge-a", "edge-b")]
    agents: list[AgentProcess] = []
    origin = write_state(tmp_path / "edge-a/savepoints/s/1", 9, {"f": large(32)})
    move = transfer(origin)
    try:
        with memory_service(tmp_path, bodies) as service, answering(service) as url:
            agents.append(AgentProcess("edge-a", url, tmp_path / "edge-a"))
            options = ["--listen", "127.7.7.2:0"] if direct else []
            agents.append(AgentProcess("edge-b", url, tmp_path / "edge-b", options))
            heard(service, "edge-a", "edge-b")
            wait_for(lambda: service.agents.carry(move).bytes > 1 << 20, "the first bytes")
        again = Service(service.config, bounds=FAST, patience=HASTY)
        with closing(again), answering(again, int(url.rpartition(":")[2])):
            assert _same(origin, await_transfer(again, move).location)
            assert list((tmp_path / "edge-b/carried/.arriving").iterdir()) == []
    finally:
        for agent in agents:
            agent.kill()


@pytest.mark.long
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "relayed"])
def test_a_line_of_64_kbit_takes_its_time(tmp_path: Path, direct: bool) -> None:
    """300 kB at 8 kB/s: no limit on the whole, and one can see how far it is."""
    with fields(tmp_path) as sites:
        if direct:
            proxy = _behind(sites, bytes_per_s=8000)
        else:
            proxy = Spoiler(int(sites.url.rpartition(":")[2]), "127.0.0.1", bytes_per_s=8000)
            url = f"http://127.7.7.9:{proxy.port}"
            sites.agents["edge-a"] = AgentProcess("edge-a", url, sites.state("edge-a"))
            sites.start("edge-b")
            sites.heard("edge-a", "edge-b")
        content = {"f": large(1)[:300_000]}
        origin = write_state(sites.state("edge-a") / "savepoints/s/1", 9, content)
        positions: set[int] = set()

        def done() -> str | None:
            progress = sites.service.agents.carry(transfer(origin))
            positions.add(progress.bytes)
            return progress.location

        wait_for(done, "the state", 180)
        assert _same(origin, done())
        assert len(positions) > 5
        proxy.close()


@pytest.mark.long
@pytest.mark.parametrize("direct", [True, False], ids=["direct", "relayed"])
def test_a_large_state_needs_little_memory(sites: Field, direct: bool) -> None:
    sites.start_both(direct=direct)
    origin = write_state(sites.state("edge-a") / "savepoints/s/1", 9, {"f": large(LARGE_MB)})
    progress = await_transfer(sites.service, transfer(origin))
    assert progress.bytes >= LARGE_MB << 20
    peaks = {name: agent.peak_mb for name, agent in sites.agents.items()}
    assert max(peaks.values()) < MEMORY_MB, peaks


def test_asking_again_after_it_is_done_sends_nothing(sites: Field) -> None:
    sites.start_both()
    origin = write_state(sites.state("edge-a") / "savepoints/s/1", 9)
    first = await_transfer(sites.service, transfer(origin))
    (origin / "_metadata").unlink()
    sites.service.agents.transfers._transfers.clear()  # as after a restart of the service
    assert await_transfer(sites.service, transfer(origin)).location == first.location


def test_a_state_that_is_gone_is_a_failure_for_good(sites: Field) -> None:
    sites.start_both()
    path = sites.state("edge-a") / "savepoints/s/1"
    failure = await_transfer(sites.service, transfer(path)).failure
    assert failure is not None
    assert "the agent of edge-a says: cannot find a complete state at file://" in failure


def test_an_incomplete_state_is_none(sites: Field) -> None:
    sites.start_both()
    job = "cd" * 16
    root = sites.state("edge-a")
    write_state(root / "checkpoints" / job / "chk-4", 4)
    write_state(root / "checkpoints" / job / "chk-11", 11)
    write_state(root / "savepoints/counter" / job / "savepoint-1", 12)
    (root / "checkpoints" / job / "chk-13").mkdir()
    write_state(root / "checkpoints" / job / "chk-14", 14)
    (root / "checkpoints" / job / "chk-14/_metadata").write_bytes(b"\x49\x60")
    newest = sites.service.agents.newest(EngineAt("edge-a", ArtifactKind.JAR), job)
    assert newest is not None
    assert (newest.number, newest.on_request) == (12, True)
    assert sites.service.agents.newest(EngineAt("edge-a", ArtifactKind.JAR), "ef" * 16) is None
    sites.service.agents.drop("edge-a", newest.location)
    newest = sites.service.agents.newest(EngineAt("edge-a", ArtifactKind.JAR), job)
    assert newest is not None
    assert newest.number == 11


@pytest.mark.parametrize(
    "path", ["/etc", "file:///etc/passwd", "savepoints/../../x", "checkpoints"]
)
def test_nothing_outside_the_state_folder_is_touched(sites: Field, path: str) -> None:
    sites.start_both()
    with pytest.raises(PermanentError, match="not a state below"):
        sites.service.agents.drop("edge-a", path)
    failure = await_transfer(sites.service, transfer(Path(path))).failure
    assert failure is not None
    assert "cannot use" in failure


def test_a_silent_agent_is_unreachable(sites: Field) -> None:
    with pytest.raises(PermanentError, match="run `speck agent --site edge-a"):
        sites.service.agents.newest(EngineAt("edge-a", ArtifactKind.JAR), "x")
    sites.start_both()
    sites.agents["edge-a"].kill()
    sites.service.agents.silent_s = 0.5
    move = transfer(write_state(sites.state("edge-a") / "savepoints/s/1", 9))

    def unreachable() -> bool:
        try:
            sites.service.agents.carry(move)
        except UnreachableError as error:
            return "agent of edge-a" in str(error)
        return False

    wait_for(unreachable, "that the agent of edge-a is missed")
    findings = sites.service.sites.check("edge-a")
    (finding,) = [each for each in findings if each.value.startswith("silent since")]
    assert finding.part == "agent"
    sites.service.agents.silent_s = 15.0
    sites.agents["edge-a"].start()
    assert await_transfer(sites.service, move).location


def test_a_listener_takes_only_what_was_bidden_with_its_secret(sites: Field) -> None:
    sites.start_both()
    listen = sites.service.agents.beat("edge-b").listen
    move = transfer(sites.state("edge-a") / "savepoints/s/1")
    secrets = {None, "wrong", "ä".encode().decode("latin-1")}
    for secret in secrets:
        headers = {} if secret is None else {"Authorization": f"Bearer {secret}"}
        for name in (move.id, "../../etc/passwd", ""):
            answer = requests.put(
                f"{listen}/transfers/{name}?offset=0&total=5",
                data=b"12345",
                headers={k: v.encode("latin-1") for k, v in headers.items()},
                timeout=10,
            )
            assert answer.status_code == 403
    assert not (sites.state("edge-b") / "carried").exists()


def test_a_sites_token_moves_only_what_is_its_own(sites: Field) -> None:
    tokens = sites.service.tokens
    tokens.add("root", "admin")
    secrets = {name: tokens.add(f"agent-{name}", "site", name) for name in ("edge-a", "edge-b")}
    stranger = tokens.add("agent-other", "site", "other")
    for name, secret in secrets.items():
        file = sites.folder / f"token-{name}"
        file.write_text(secret)
        sites.start(name, "--token-file", str(file))
    sites.heard("edge-a", "edge-b")
    origin = write_state(sites.state("edge-a") / "savepoints/s/1", 9, {"f": large(1)})
    assert await_transfer(sites.service, transfer(origin)).location
    for agent in sites.agents.values():
        agent.kill()
    sites.service.agents.carry(transfer(origin, "t-2"))

    def ask(method: str, path: str, token: str) -> int:
        headers = {"Authorization": f"Bearer {token}"}
        return requests.request(
            method, sites.url + path, data=b"1", headers=headers, timeout=10
        ).status_code

    for method, path, owner in (
        ("GET", "/sites/edge-b/commands", "edge-b"),
        ("POST", "/sites/edge-b/commands/x", "edge-b"),
        ("PUT", "/transfers/t-2?total=5", "edge-a"),
        ("GET", "/transfers/t-2", "edge-b"),
    ):
        for name, secret in {**secrets, "other": stranger}.items():
            assert (ask(method, path, secret) == 403) == (name != owner), (method, path, name)
