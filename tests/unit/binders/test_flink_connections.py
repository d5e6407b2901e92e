"""The connections to one engine: kept, replaced, shared among threads; no Flink."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from binders.flink import connections
from binders.flink.rest import FlinkRest, NoAnswerInTimeError
from speck.errors import UnreachableError
from speck.tls.authority import Authority
from speck.tls.contexts import server_context
from tests.serving import serving

LIMIT_S = 30.0


class Server(ThreadingHTTPServer):
    """Answers each request with its path; counts connections and keeps requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.scheme = "http"
        self.opened = 0
        self.requests: list[str] = []
        self.arrived = threading.Semaphore(0)
        self.go = threading.Event()
        self.done = threading.Semaphore(0)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def handle_error(self, request: object, client_address: object) -> None:
        if not isinstance(sys.exception(), ConnectionError):  # a client may leave at any time
            super().handle_error(request, client_address)  # type: ignore[arg-type]

    def shutdown_request(self, request: object) -> None:
        super().shutdown_request(request)  # type: ignore[arg-type]
        self.done.release()


class Handler(BaseHTTPRequestHandler):
    server: Server
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.opened += 1

    def _answer(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.server.requests.append(f"{self.command} {self.path}")
        self.server.arrived.release()
        if self.path == "/end-instead":
            self.close_connection = True
            return
        if self.path == "/wait":
            self.server.go.wait(LIMIT_S)
        if self.path == "/cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n[")
            self.close_connection = True
            return
        if self.path == "/until-the-end":
            self.wfile.write(b'HTTP/1.1 200 OK\r\n\r\n"/until-')
            self.wfile.write(b'the-end"')
            self.close_connection = True
            return
        self._say(self.path)
        if self.path == "/twice":
            self.server.go.wait(LIMIT_S)
            self._say("/unasked")
            self.server.done.release()
        self.close_connection = self.path == "/end-after"  # which its answer does not mention

    def _say(self, text: str) -> None:
        content = f'"{text}"'.encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(content)}\r\n\r\n"
        self.wfile.write(head.encode() + content)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer


@pytest.fixture
def server() -> Iterator[Server]:
    server = Server()
    with serving(server):
        yield server
        server.go.set()


@pytest.fixture(params=["http", "https"])
def rest(request: pytest.FixtureRequest, server: Server, tmp_path: Path) -> Iterator[FlinkRest]:
    """A client of the server, plain and over TLS."""
    credentials = None
    if request.param == "https":
        now = datetime.now(UTC)
        authority = Authority.create(tmp_path, now)
        authority.issue("edge-a", now, hosts=["127.0.0.1"])
        context = server_context(tmp_path / "edge-a.crt", tmp_path / "edge-a.key")
        server.socket = context.wrap_socket(server.socket, server_side=True)
        server.scheme = "https"
        credentials = tmp_path / "credentials"
        credentials.write_text(f"ca={authority.cert}\n")
        credentials.chmod(0o600)
    rest = FlinkRest(server.url, credentials=credentials)
    yield rest
    rest.close()


CALLS: dict[str, Callable[[FlinkRest, str], object]] = {
    "GET": lambda rest, path: rest.get(path),
    "POST": lambda rest, path: rest.post(path, {"a": 1}),
    "PATCH": lambda rest, path: rest.patch(path, {}),
    "DELETE": lambda rest, path: rest.delete(path),
}
each_method = pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)


def wait(event: threading.Semaphore) -> None:
    assert event.acquire(timeout=LIMIT_S)


@each_method
def test_a_connection_is_kept(
    server: Server, rest: FlinkRest, call: Callable[[FlinkRest, str], object]
) -> None:
    assert [call(rest, f"/{n}") for n in range(5)] == [f"/{n}" for n in range(5)]
    assert server.opened == 1


@each_method
def test_a_connection_that_the_engine_has_closed_is_replaced(
    server: Server, rest: FlinkRest, call: Callable[[FlinkRest, str], object]
) -> None:
    assert rest.get("/end-after") == "/end-after"
    wait(server.done)
    assert call(rest, "/next") == "/next"
    assert (len(server.requests), server.opened) == (2, 2)


@each_method
def test_no_request_is_repeated_that_the_engine_may_have_received(
    server: Server, rest: FlinkRest, call: Callable[[FlinkRest, str], object]
) -> None:
    rest.get("/first")
    with pytest.raises(UnreachableError, match=r"closed connection without response$") as error:
        call(rest, "/end-instead")
    assert not isinstance(error.value, NoAnswerInTimeError)
    assert len(server.requests) == 2
    assert call(rest, "/next") == "/next"


def test_an_answer_that_nobody_asked_for_is_not_that_of_the_next_request(
    server: Server, rest: FlinkRest
) -> None:
    assert rest.get("/twice") == "/twice"
    server.go.set()
    wait(server.done)
    assert rest.get("/next") == "/next"
    assert server.opened == 2


def test_an_answer_may_end_with_its_connection(server: Server, rest: FlinkRest) -> None:
    assert rest.get("/until-the-end") == "/until-the-end"
    assert rest.get("/next") == "/next"


def test_half_an_answer_is_none(server: Server, rest: FlinkRest) -> None:
    with pytest.raises(UnreachableError, match="1 bytes read, 99 more expected"):
        rest.get("/cut")
    assert rest.get("/next") == "/next"


def test_an_answer_that_comes_too_late_is_not_that_of_the_next_request(
    server: Server, rest: FlinkRest
) -> None:
    with rest.within(0.2), pytest.raises(NoAnswerInTimeError, match=r"no answer in time$"):
        rest.get("/wait")
    server.go.set()
    assert rest.get("/next") == "/next"


def test_more_threads_than_connections_wait_for_one(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 2)
    rest = FlinkRest(server.url)
    with ThreadPoolExecutor(6) as pool:
        answers = [pool.submit(rest.get, "/wait") for _ in range(6)]
        wait(server.arrived)
        wait(server.arrived)
        with rest.within(0.1), pytest.raises(UnreachableError) as error:
            rest.get("/late")
        server.go.set()
        assert [answer.result(LIMIT_S) for answer in answers] == ["/wait"] * 6
    rest.close()
    assert str(error.value).endswith(": no free connection in time")
    assert not isinstance(error.value, NoAnswerInTimeError), "nothing was sent"
    assert server.opened == 2
    assert server.requests == ["GET /wait"] * 6


def test_a_closed_client_ends_its_connections_and_opens_no_more(server: Server) -> None:
    rest = FlinkRest(server.url)
    with ThreadPoolExecutor(3) as pool:
        answers = [pool.submit(rest.get, "/wait") for _ in range(3)]
        for _ in answers:
            wait(server.arrived)
        server.go.set()
        for answer in answers:
            answer.result(LIMIT_S)
        server.go.clear()
        last = pool.submit(rest.get, "/wait")
        wait(server.arrived)
        rest.close()
        wait(server.done)
        wait(server.done)
        server.go.set()
        assert last.result(LIMIT_S) == "/wait"
        wait(server.done)
    with pytest.raises(UnreachableError, match="its connections are closed"):
        rest.get("/next")


def test_names_that_an_engine_made_up_are_quoted_in_a_target(
    server: Server, rest: FlinkRest
) -> None:
    assert rest.get("/a b\r\nc/é") == "/a%20b%0D%0Ac/%C3%A9"


def test_a_change_is_reported_once_sent_and_before_its_answer(server: Server) -> None:
    sent: list[str] = []
    rest = FlinkRest(server.url, on_request=lambda: sent.append("sent") or server.go.set())
    rest.get("/read")
    assert not sent
    assert rest.post("/wait", {}) == "/wait"
    assert sent == ["sent"]
    rest.close()


def test_two_answers_are_awaited_together(server: Server, rest: FlinkRest) -> None:
    with ThreadPoolExecutor(1) as pool:
        both = pool.submit(rest.get_both, "/wait", "/second")
        wait(server.arrived)
        wait(server.arrived)
        assert not both.done()
        server.go.set()
        assert both.result(LIMIT_S) == ("/wait", "/second")
    assert [rest.get("/next"), rest.get("/next")] == ["/next"] * 2
    assert server.opened == 2


def test_two_answers_need_no_second_connection(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 1)
    rest = FlinkRest(server.url)
    assert rest.get_both("/first", "/second") == ("/first", "/second")
    assert server.opened == 1
    rest.close()


@pytest.mark.parametrize("pair", [("/cut", "/good"), ("/good", "/cut")])
def test_where_one_of_two_answers_fails_both_connections_are_free_again(
    server: Server, monkeypatch: pytest.MonkeyPatch, pair: tuple[str, str]
) -> None:
    monkeypatch.setattr(connections, "CONNECTIONS", 2)
    rest = FlinkRest(server.url)
    for _ in range(3):
        with pytest.raises(UnreachableError, match="1 bytes read, 99 more expected"):
            rest.get_both(*pair)
    assert rest.get_both("/first", "/second") == ("/first", "/second")
    rest.close()
