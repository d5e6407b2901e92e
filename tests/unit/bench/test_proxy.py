from __future__ import annotations

import http.client
import os
import socket
import subprocess
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from bench.instruments.proxy import Proxy
from tests.serving import serving

HOST = "127.31.7.1"


class Target(ThreadingHTTPServer):
    """Answers every request with its path, and remembers which came."""

    daemon_threads = True

    def __init__(self) -> None:
        self.paths: list[str] = []
        super().__init__((HOST, 0), Handler)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else an answer's body waits 40 ms for the head's ACK
    server: Target

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        body = self.path.encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def target() -> Iterator[Target]:
    server = Target()
    with serving(server):
        yield server


@pytest.fixture
def proxy(target: Target) -> Iterator[Proxy]:
    with Proxy(HOST, (HOST, target.server_address[1])) as proxy:
        yield proxy


def get(proxy: Proxy, path: str, timeout_s: float = 5.0) -> str:
    connection = http.client.HTTPConnection(proxy.host, proxy.port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        return connection.getresponse().read().decode()
    finally:
        connection.close()


def test_passes(proxy: Proxy) -> None:
    assert get(proxy, "/one") == "/one"


def test_refuses_old_and_new_connections_and_passes_again(proxy: Proxy, target: Target) -> None:
    old = http.client.HTTPConnection(proxy.host, proxy.port, timeout=5)
    old.request("GET", "/before")
    old.getresponse().read()
    proxy.set("refuse")
    with pytest.raises((OSError, http.client.HTTPException)):
        old.request("GET", "/old")
        old.getresponse()
    with pytest.raises((OSError, http.client.HTTPException)):
        get(proxy, "/new")
    proxy.set()
    assert get(proxy, "/again") == "/again"
    assert target.paths == ["/before", "/again"]


def test_a_blackhole_keeps_connections_and_lets_through_later_what_it_held(
    proxy: Proxy, target: Target
) -> None:
    proxy.set("blackhole")
    connection = http.client.HTTPConnection(proxy.host, proxy.port, timeout=0.3)
    connection.request("GET", "/held")
    with pytest.raises(TimeoutError):
        connection.getresponse()
    assert target.paths == []
    proxy.set()
    assert get(proxy, "/after") == "/after"


def test_a_lost_answer_is_to_a_request_that_arrived(proxy: Proxy, target: Target) -> None:
    trap = proxy.trap("lose the answer", "GET /run", nth=2)
    assert get(proxy, "/run?1") == "/run?1"
    assert get(proxy, "/other") == "/other"
    with pytest.raises((OSError, http.client.HTTPException)):
        get(proxy, "/run?2")
    assert trap.sprung.is_set()
    assert target.paths == ["/run?1", "/other", "/run?2"]
    assert get(proxy, "/run?3") == "/run?3"


def test_a_dropped_request_never_arrives(proxy: Proxy, target: Target) -> None:
    trap = proxy.trap("drop the request", "GET /run")
    with pytest.raises((OSError, http.client.HTTPException)):
        get(proxy, "/run?1")
    assert trap.sprung.is_set()
    assert get(proxy, "/run?2") == "/run?2"
    assert target.paths == ["/run?2"]


def test_a_slow_line_takes_at_least_as_long_as_its_bits(proxy: Proxy) -> None:
    proxy.set(bits_per_s=16_000)
    began = time.monotonic()
    get(proxy, "/" + "x" * 500)
    assert time.monotonic() - began >= 1000 * 8 / 16_000  # there and back


def test_faults_meet_only_the_process_that_is_named(proxy: Proxy) -> None:
    other = subprocess.Popen(["sleep", "60"])
    try:
        proxy.disturb_only(other.pid)
        proxy.set("refuse")
        assert get(proxy, "/else") == "/else"
    finally:
        other.kill()
        other.wait()
    proxy.disturb_only(os.getpid())
    with pytest.raises((OSError, http.client.HTTPException)):
        get(proxy, "/me")


def test_a_connection_is_known_whose_port_others_had_before(proxy: Proxy) -> None:
    """The kernel gives a port again for another destination, and lists the old ones for a while."""
    address = ("127.31.7.9", 0)
    with socket.create_server(("", 0)) as server:
        for host in range(1, 33):
            connection = _from(address)
            connection.connect((f"127.31.8.{host}", server.getsockname()[1]))
            address = connection.getsockname()
            accepted_end, _ = server.accept()
            connection.close()
            accepted_end.close()
    proxy.disturb_only(os.getpid())
    proxy.set("refuse")
    connection = _from(address)
    connection.settimeout(5)
    connection.connect((proxy.host, proxy.port))
    with connection:
        assert _is_reset(connection)


def _is_reset(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"GET /one HTTP/1.1\r\n\r\n")
        return connection.recv(1) == b""
    except ConnectionError:
        return True


def _from(address: tuple[str, int]) -> socket.socket:
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    sock.bind(address)
    return sock


def test_flapping_ends_when_it_is_set_again(proxy: Proxy) -> None:
    proxy.flap(0.02, 0.02)
    proxy.set()
    assert [get(proxy, f"/{n}") for n in range(20)] == [f"/{n}" for n in range(20)]


def test_closed_it_listens_no_more(target: Target) -> None:
    proxy = Proxy(HOST, (HOST, target.server_address[1]))
    get(proxy, "/one")
    proxy.close()
    with pytest.raises(OSError):
        socket.create_connection((proxy.host, proxy.port), timeout=1)
