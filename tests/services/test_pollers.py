"""Poller processes: real ones, over simulated engines and a real broker."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import psutil
import pytest

from bench.simulated_flink import Flink
from bench.simulated_site import Site as SimulatedSite
from speck.binding import BrokerPoll, EnginePoll, Target
from speck.config import Config
from speck.errors import TransientError, UnreachableError
from speck.fog.mosquitto import Mosquitto
from speck.model.observation import BrokerView, EngineView
from speck.service import Service
from speck.sites.pollers import process
from speck.sites.pollers.messages import Inbox, PollRequest, pack
from speck.sites.pollers.pool import Pollers
from speck.sites.pollers.process import Poller
from speck.spec.site_schema import site_from_data
from tests.mosquitto_server import mosquitto
from tests.waiting import wait_for


class Engine:
    """One simulated Flink that counts its requests; closed, it keeps them waiting."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        self.open = threading.Event()
        self.open.set()
        flink = Flink(SimulatedSite("site", 4, 10.0, lambda _: 0.0))
        engine = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                engine.requests[self.path] += 1
                engine.open.wait(60)
                _, status, content = flink.answer("GET", self.path, b"")
                text = json.dumps(content).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.address = f"http://127.0.0.1:{self.server.server_port}"
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self.open.set()
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine()
    yield engine
    engine.close()


@pytest.fixture
def pollers() -> Iterator[Pollers]:
    pollers = Pollers(2)
    yield pollers
    pollers.close()


def view(pollers: Pollers, engine: Engine) -> EngineView:
    answer = pollers.ask(EnginePoll.VIEW, "flink", Target(engine.address))()
    assert isinstance(answer, EngineView)
    return answer


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_an_engine_is_polled_once_for_each_request(pollers: Pollers, engine: Engine) -> None:
    with ThreadPoolExecutor(8) as pool:
        views = list(pool.map(lambda _: view(pollers, engine), range(40)))
    assert {each.slots.free if each.slots else None for each in views} == {4}
    assert engine.requests == {"/overview": 40, "/jobs/overview": 40}


def test_a_broker_is_polled(pollers: Pollers, tmp_path: Path) -> None:
    with mosquitto(tmp_path) as broker:
        target = Target(broker.address)
        assert pollers.ask(BrokerPoll.REACH, "mqtt", target)() == "mqtt 5"
        assert isinstance(pollers.ask(BrokerPoll.VIEW, "mqtt", target)(), BrokerView)
        _, of_measure = pollers.ask(BrokerPoll.MEASURE, "mqtt", target)()
        assert isinstance(of_measure, BrokerView)


def test_a_failure_is_the_caller_s(pollers: Pollers, engine: Engine) -> None:
    engine.close()
    with pytest.raises(UnreachableError, match="cannot reach the engine at http://127"):
        view(pollers, engine)


def test_a_killed_poller_is_started_again_and_what_waits_is_answered(engine: Engine) -> None:
    pollers = Pollers(1)
    try:
        view(pollers, engine)
        (first,) = pollers.pids
        engine.open.clear()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(view, pollers, engine)
            wait_for(lambda: engine.requests["/overview"] == 2, "the request")
            os.kill(first, signal.SIGKILL)
            wait_for(lambda: engine.requests["/overview"] == 3, "the request of the next process")
            engine.open.set()
            assert waiting.result(60).slots is not None
        assert pollers.pids != [first]
        assert is_gone(first)
        requests = engine.requests.copy()
        view(pollers, engine)
        assert engine.requests - requests == {"/overview": 1, "/jobs/overview": 1}
    finally:
        pollers.close()


def test_a_request_that_ends_two_pollers_fails(engine: Engine) -> None:
    pollers = Pollers(1)
    try:
        engine.open.clear()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(view, pollers, engine)
            for number in (1, 2):
                wait_for(lambda n=number: engine.requests["/overview"] == n, "the request")
                os.kill(pollers.pids[0], signal.SIGKILL)
            with pytest.raises(TransientError, match="its poller has died twice"):
                waiting.result(60)
    finally:
        pollers.close()


def test_they_end_when_they_are_closed_and_fail_what_waits(engine: Engine) -> None:
    pollers = Pollers(2)
    view(pollers, engine)
    wait_for(lambda: len(pollers.pids) == 2, "two processes")
    pids = pollers.pids
    engine.open.clear()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(view, pollers, engine)
        wait_for(lambda: engine.requests["/overview"] == 2, "the request")
        pollers.close()
        with pytest.raises(TransientError, match="the service is stopping"):
            waiting.result(60)
    assert all(is_gone(pid) for pid in pids)


def test_they_end_with_a_service_that_is_killed() -> None:
    program = (
        "from speck.sites.pollers.pool import Pollers\n"
        "import time\n"
        "pollers = Pollers(1)\n"
        "while not pollers.pids: time.sleep(0.01)\n"
        "print(*pollers.pids, flush=True)\n"
        "input()\n"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as service:
        assert service.stdout is not None
        pid = int(service.stdout.readline())
        service.kill()
    wait_for(lambda: is_gone(pid), "the end of the poller")


def test_the_service_starts_them_once_there_are_many_sites(tmp_path: Path) -> None:
    engines = [Engine(), Engine()]
    config = Config(tmp_path / "home", watch_s=0, collect_s=0, pollers=1, poller_sites=2)
    with mosquitto(tmp_path / "broker") as one, mosquitto(tmp_path / "other") as other:
        service = Service(config)
        try:
            for n, (engine, broker) in enumerate(zip(engines, (one, other), strict=True)):
                service.sites.add(
                    site_from_data(
                        {
                            "name": f"edge-{n}",
                            "tier": "edge",
                            "spe": {"kind": "flink", "address": engine.address},
                            "broker": {"kind": "mqtt", "address": broker.address},
                        }
                    )
                )
                assert service.polling.apart == (n == 1)
            (pid,) = service.polling.pids

            def are_up() -> bool:
                service.watch.poll()
                return [site.state for site in service.sites.all()] == ["up", "up"]

            wait_for(are_up, "both sites")  # the process takes a moment to start
        finally:
            service.close()
            for engine in engines:
                engine.close()
    assert is_gone(pid)


def test_a_poll_that_somebody_waits_for_goes_first(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "URGENT_S", 60.0)
    usual, soon = Engine(), Engine()
    ours, its = socket.socketpair()
    running = threading.Thread(target=Poller(its).run, daemon=True)
    running.start()
    try:
        replies = Inbox(ours)

        def send(number: int, asked: Engine, *, urgent: bool) -> None:
            target = Target(asked.address)
            request = PollRequest(number, EnginePoll.VIEW, "flink", target, urgent=urgent)
            ours.sendall(pack(request))

        engine.open.clear()
        send(1, engine, urgent=True)
        wait_for(lambda: engine.requests["/overview"] == 1, "the request")
        send(2, usual, urgent=False)
        send(3, soon, urgent=True)
        numbers = [replies.receive().number]
        assert not usual.requests
        engine.open.set()
        numbers += [replies.receive().number for _ in range(2)]
        assert numbers == [3, 1, 2]
    finally:
        ours.close()
        its.close()
        usual.close()
        soon.close()


def test_a_broker_that_is_no_longer_polled_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ours, _ = socket.socketpair()
    with ours, mosquitto(tmp_path / "a") as gone, mosquitto(tmp_path / "b") as other:
        poller = Poller(ours)

        def poll(address: str) -> None:
            poller._poll(PollRequest(1, BrokerPoll.VIEW, "mqtt", Target(address)))

        def connections(broker: Mosquitto) -> int:
            found = psutil.Process().net_connections("tcp")
            return sum(bool(each.raddr) and each.raddr.port == broker.port for each in found)

        poll(gone.address)
        poll(other.address)
        assert (connections(gone), connections(other)) == (1, 1), "of the next poll of each"
        monkeypatch.setattr(process, "UNUSED_S", 0.0)
        poll(f"tcp://localhost:{other.port}")  # a broker that was not polled before
        assert connections(gone) == 0
