"""`speck serve` as a real process."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import zipfile
from collections.abc import Iterator
from pathlib import Path
from threading import Thread
from typing import Any

import psutil
import pytest
import requests

from speck.clock import SystemClock
from speck.model.scopes import Scopes
from speck.service.tokens import Tokens
from speck.store.audit_log import read_entries, verify
from speck.store.records import Records
from tests.server_process import PATIENCE_S, Server, serving, start
from tests.waiting import wait_for

SITE = {
    "name": "edge-a",
    "tier": "edge",
    "spe": {"kind": "memory", "address": "http://edge-a:8081"},
    "broker": {"kind": "memory", "address": "tcp://edge-a:1883"},
}


def start_refused(home: Path, **env: str) -> tuple[int, str]:
    """Exit status and words of a server that cannot start."""
    process, log = start(home, **env)
    return process.wait(PATIENCE_S), log.whole()


def raw(url: str, request: bytes) -> tuple[int, dict[str, str], Any]:
    """Status, headers and JSON body of the answer to exactly these bytes."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), PATIENCE_S) as connection:
        connection.sendall(request)
        answer = b""
        while chunk := connection.recv(65536):
            answer += chunk
    head, _, body = answer.partition(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines)
    return int(first.split()[1]), headers, json.loads(body)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """A server that tests leave as it was, and its home."""
    home = tmp_path_factory.mktemp("shared") / "home"
    with serving(home) as server:
        yield server, home


@pytest.fixture
def server(shared: tuple[Server, Path]) -> Server:
    return shared[0]


def test_it_serves_and_ends_cleanly(home: Path) -> None:
    with serving(home) as server:
        assert requests.get(f"{server.url}/readyz", timeout=10).json() == {"status": "ready"}
        assert requests.post(f"{server.url}/sites", json=SITE, timeout=10).status_code == 201
        assert server.end() == 0
        log = server.log.read_text()
    assert "Traceback" not in log
    assert re.search(r"^\d\d:\d\d:\d\d POST /sites 201 \d+ ms - [0-9a-f]{16}$", log, re.M)
    assert "/readyz" not in log
    with serving(home) as again:
        assert len(requests.get(f"{again.url}/sites", timeout=10).json()["sites"]) == 1


def test_a_chunked_body_is_refused(server: Server) -> None:
    body = (chunk for chunk in (b"jobs: []\n", b"name: x\n"))
    answer = requests.post(
        f"{server.url}/compositions",
        data=body,
        headers={"Content-Type": "application/yaml"},
        timeout=10,
    )
    assert answer.status_code == 411
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("request_text", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\nX: %s\r\n\r\n" % (b"a" * 9000), 431),
        (b"GET /%s HTTP/1.1\r\nHost: localhost\r\n\r\n" % (b"a" * 9000), 414),
        (b"nonsense\r\n\r\n", 400),
        (b"POST /jobs HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n", 400),
    ],
    ids=["header too long", "path too long", "no HTTP", "bad length"],
)
def test_what_is_no_request_gets_a_problem(
    request_text: bytes, status: int, server: Server
) -> None:
    code, headers, body = raw(server.url, request_text)
    assert (code, headers["content-type"]) == (status, "application/problem+json")
    assert (body["status"], body["request_id"]) == (status, headers["x-request-id"])


def test_a_store_that_another_holds_is_one_clear_sentence(shared: tuple[Server, Path]) -> None:
    _, home = shared
    status, words = start_refused(home)
    assert status == 1
    assert words == (
        f"cannot open the store at {home}/store: another speck holds it; stop that one first\n"
    )


def test_a_port_that_another_holds_is_one_clear_sentence(server: Server, tmp_path: Path) -> None:
    port = server.url.rpartition(":")[2]
    status, words = start_refused(tmp_path / "other", SPECK_PORT=port)
    assert status == 1
    assert words == (
        f"cannot listen on 127.0.0.1:{port}: Address already in use;"
        " choose another address with --host and --port, or SPECK_HOST and SPECK_PORT\n"
    )


def test_past_loopback_it_needs_a_token(home: Path) -> None:
    status, words = start_refused(home, SPECK_HOST="0.0.0.0")
    assert status == 1
    assert words == (
        "cannot listen on 0.0.0.0, past loopback, before a token exists: make one with"
        " `speck token add NAME --role admin`, or set SPECK_HOST to 127.0.0.1\n"
    )
    clock = SystemClock()
    records = Records.open(home / "store", clock)
    secret = Tokens(records, clock).add("root", "admin")
    records.store.close()
    with serving(home, SPECK_HOST="0.0.0.0") as server:
        headers = {"Authorization": f"Bearer {secret}"}
        assert requests.get(f"{server.url}/sites", timeout=10).status_code == 401
        answer = requests.get(f"{server.url}/sites", headers=headers, timeout=10)
        assert answer.status_code == 200


@pytest.mark.parametrize("name", ["SIGHUP", "SIGTTIN", "SIGUSR2"])
def test_signals_that_would_start_a_second_worker_are_harmless(name: str, server: Server) -> None:
    before, ignored = server.workers(), server.log.read_text().count("ignored a signal")
    server.process.send_signal(signal.Signals[name])
    wait_for(lambda: server.log.read_text().count("ignored a signal") > ignored)
    assert requests.get(f"{server.url}/readyz", timeout=10).status_code == 200
    assert server.workers() == before and len(before) == 1


def test_a_worker_that_is_killed_is_replaced_and_nothing_is_lost(home: Path) -> None:
    with serving(home) as server:
        requests.post(f"{server.url}/sites", json=SITE, timeout=10)
        old = server.workers()
        os.kill(old[0], signal.SIGKILL)
        wait_for(lambda: server.log.read_text().count("speck serves at") == 2)
        assert len(requests.get(f"{server.url}/sites", timeout=10).json()["sites"]) == 1
        assert server.workers() != old


@pytest.mark.long
def test_open_event_streams_do_not_hold_up_the_end(home: Path) -> None:
    with serving(home) as server:
        accept = {"Accept": "text/event-stream"}
        with requests.get(f"{server.url}/events", headers=accept, stream=True, timeout=30) as feed:
            parts = feed.iter_content(None)
            assert next(parts) == b": speck\n\n"
            requests.post(f"{server.url}/sites", json=SITE, timeout=10)
            assert b"site edge-a registered" in next(parts)
            server.process.send_signal(signal.SIGTERM)
            assert list(parts) == []
        assert server.process.wait(PATIENCE_S) == 0
        assert "Traceback" not in server.log.read_text()


@pytest.mark.long
def test_a_job_that_is_waited_for_does_not_hold_up_the_end(home: Path, tmp_path: Path) -> None:
    """The broker of the job does not answer; the end brings its change to a safe point, where the
    next start takes it up."""
    jars = tmp_path / "jars"
    jars.mkdir()
    _make_jar(jars / "a.jar")
    away = {**SITE, "broker": {"kind": "mqtt", "address": f"tcp://127.0.0.1:{_free_port()}"}}
    job = {
        "job_name": "A",
        "site": "edge-a",
        "source_topic": "a",
        "sink_topic": "b",
        "entry_class": "package.Job",
        "job_path": "a.jar",
    }
    with serving(home, SPECK_JARS=str(jars)) as server:
        assert requests.post(f"{server.url}/sites", json=away, timeout=10).status_code == 201
        answers: list[requests.Response] = []

        waiting = Thread(
            target=lambda: answers.append(
                requests.post(f"{server.url}/jobs?wait=600", json=job, timeout=PATIENCE_S)
            )
        )
        waiting.start()
        wait_for(lambda: requests.get(f"{server.url}/changes", timeout=10).json()["changes"])
        assert server.end() == 0
        waiting.join(PATIENCE_S)
    assert answers[0].status_code == 202, "it goes on at the next start"
    assert answers[0].headers["Location"].startswith("/changes/")


def _make_jar(file: Path) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("package/Job.class", b"")


def _free_port() -> int:
    with socket.socket() as trial:
        trial.bind(("127.0.0.1", 0))
        return int(trial.getsockname()[1])


@pytest.mark.long
def test_the_worker_ends_with_its_master(home: Path) -> None:
    with serving(home) as server:
        (worker,) = server.workers()
        port = server.url.rpartition(":")[2]
        server.process.kill()
        server.process.wait(PATIENCE_S)
        wait_for(lambda: not psutil.pid_exists(worker) or _is_zombie(worker))
        with serving(home, SPECK_PORT=port) as again:  # port and store are free
            assert requests.get(f"{again.url}/readyz", timeout=10).ok


def _is_zombie(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def _make_tokens(home: Path) -> dict[str, str]:
    """Tokens of an administrator, and of deployers a and b, each for what is its own."""
    home.mkdir()
    records = Records.open(home / "store", SystemClock())
    tokens = Tokens(records, SystemClock())
    secrets = {"root": tokens.add("root", "admin")}
    for name in ("a", "b"):
        scopes = Scopes(compositions=(f"{name}*",), topics=(f"{name}/#",))
        secrets[name] = tokens.add(name, "deployer", scopes=scopes)
    records.store.close()
    return secrets


@pytest.mark.long
def test_a_deployer_is_kept_from_anothers_and_the_log_outlives_the_process(
    home: Path, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "test.jar", "w") as jar:
        jar.writestr("package/ExampleJob.class", b"")
    secrets = _make_tokens(home)

    def job(owner: str, source: str, sink: str) -> dict[str, str]:
        about = {"job_name": f"{owner}-job", "site": "edge-a", "job_path": "test.jar"}
        topics = {"source_topic": source, "sink_topic": sink}
        return {**about, **topics, "entry_class": "package.ExampleJob"}

    def ask(url: str, who: str, method: str, path: str, **more: Any) -> requests.Response:
        headers = {"Authorization": f"Bearer {secrets[who]}"}
        return requests.request(method, url + path, headers=headers, timeout=60, **more)

    with serving(home, SPECK_JARS=str(tmp_path)) as server:
        assert ask(server.url, "root", "POST", "/sites", json=SITE).status_code == 201
        own = {"name": "a", "jobs": [job("a", "a/in", "a/out")]}
        done = ask(server.url, "a", "POST", "/compositions?wait=60", json=own)
        assert done.json()["state"] == "done"
        for source, sink in (("a/out", "b/out"), ("b/in", "a/in")):
            theirs = {"name": "b", "jobs": [job("b", source, sink)]}
            answer = ask(server.url, "b", "POST", "/compositions", json=theirs)
            assert answer.status_code == 403, "neither reads nor feeds what is another's"
        for method, path in (("GET", "/compositions/a"), ("DELETE", "/compositions/a")):
            assert ask(server.url, "b", method, path).status_code == 404
        assert ask(server.url, "b", "GET", "/jobs").json() == {"jobs": []}
        os.killpg(server.process.pid, signal.SIGKILL)
        server.process.wait(PATIENCE_S)
    recorded = [(e["token"], e["verb"], e["object"], e["outcome"]) for e in _audit(home)]
    assert recorded == [
        ("root", "POST", "/sites/edge-a", 201),
        ("a", "POST", "/compositions/a", 200),
        ("b", "POST", "/compositions/b", 403),
        ("b", "POST", "/compositions/b", 403),
        ("b", "GET", "/compositions/a", 404),
        ("b", "DELETE", "/compositions/a", 404),
    ]
    with serving(home, SPECK_JARS=str(tmp_path)) as again:
        assert ask(again.url, "b", "GET", "/compositions/a").status_code == 404
        assert again.end() == 0
    assert len(_audit(home)) == 7
    assert verify(home / "audit").faults == ()


def _audit(home: Path) -> list[dict[str, Any]]:
    return list(read_entries(home / "audit"))
