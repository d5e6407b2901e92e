"""The HTTP client where the service, or what answers in its place, misbehaves."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from speck.client import Client, ClientError, NoAnswerInTimeError, NoServerError
from speck.errors import InvalidError, Problem
from tests.serving import serving


@dataclass
class Stub:
    """Gives canned answers (None: hangs up) in order, and keeps its requests."""

    url: str = ""
    answers: list[tuple[int, dict[str, str], bytes] | None] = field(default_factory=list)
    requests: list[tuple[str, str, dict[str, str]]] = field(default_factory=list)


@pytest.fixture
def stub() -> Iterator[Stub]:
    server = Stub()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else an answer's body waits 40 ms for the head's ACK

        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            server.requests.append((self.command, self.path, dict(self.headers)))
            answer = server.answers.pop(0)
            if answer is None:
                self.close_connection = True
                return
            status, headers, body = answer
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_DELETE = answer

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.url = f"http://127.0.0.1:{listening.server_port}"
    with serving(listening):
        yield server


def ok(body: object, **headers: str) -> tuple[int, dict[str, str], bytes]:
    return 200, headers, json.dumps(body).encode()


def test_problems_keep_path_and_line(stub: Stub) -> None:
    body = {
        "title": "Unprocessable Content",
        "status": 422,
        "detail": "cannot accept it",
        "errors": [{"path": "jobs[2].sink_topic", "message": "is odd", "line": 7}, {"path": ""}],
    }
    stub.answers = [(422, {}, json.dumps(body).encode())]
    with Client(stub.url) as client, pytest.raises(ClientError, match="cannot accept it") as error:
        client.job("a")
    assert error.value.status == 422
    assert error.value.problems[0] == Problem("jobs[2].sink_topic", "is odd", 7)


def test_a_fault_of_the_service_names_the_request(stub: Stub) -> None:
    body = {"title": "Internal Server Error", "detail": "cannot do it", "request_id": "abc"}
    stub.answers = [(500, {}, json.dumps(body).encode())]
    with Client(stub.url) as client, pytest.raises(ClientError, match=r"\(request abc\)$"):
        client.job("a")


@pytest.mark.parametrize(
    "answer",
    [(502, {}, b"<html>bad gateway</html>"), (404, {}, b"[]"), ok([1]), (200, {}, b"<html>")],
)
def test_something_else_answers(stub: Stub, answer: tuple[int, dict[str, str], bytes]) -> None:
    stub.answers = [answer]
    with Client(stub.url) as client, pytest.raises(ClientError, match="is it a speck service"):
        client.job("a")


def test_follows_no_redirect_and_so_shows_its_token_to_nobody(stub: Stub) -> None:
    stub.answers = [(302, {"Location": "http://127.0.0.1:1/"}, b"")]
    with Client(stub.url, "secret") as client, pytest.raises(ClientError, match="HTTP 302"):
        client.job("a")
    assert stub.requests[0][2]["Authorization"] == "Bearer secret"


def test_ignores_proxies_of_the_environment(stub: Stub, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    stub.answers = [ok({"job_name": "a"})]
    with Client(stub.url) as client:
        assert client.job("a") == {"job_name": "a"}


def test_a_lost_answer_to_an_apply_is_asked_for_again(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speck.client.transport._RETRIES_S", (0.0, 0.0))
    stub.answers = [None, None, ok({"change": "c"})]
    with Client(stub.url) as client:
        answer = client.apply(b"x", "application/yaml", revision=3, key="k")
    assert answer == {"change": "c"}
    assert len(stub.requests) == 3
    for method, path, headers in stub.requests:
        assert (method, path) == ("POST", "/compositions?adopt=false&drop_queues=false&force=false")
        assert headers["Idempotency-Key"] == "k"
        assert headers["If-Match"] == '"3"'


def test_a_lost_answer_to_anything_else_is_not(stub: Stub) -> None:
    stub.answers = [None]
    with Client(stub.url) as client, pytest.raises(NoServerError) as error:
        client.remove_site("a")
    assert not error.value.refused
    assert len(stub.requests) == 1


def test_reads_every_page(stub: Stub) -> None:
    more = {"Link": '</jobs?after=b>; rel="next"'}
    stub.answers = [
        ok({"jobs": [{"job_name": "a"}, {"job_name": "b"}]}, **more),
        ok({"jobs": [{"job_name": "c"}]}),
    ]
    with Client(stub.url) as client:
        assert [job["job_name"] for job in client.jobs(site="x")] == ["a", "b", "c"]
    assert [path for _, path, _ in stub.requests] == ["/jobs?site=x", "/jobs?site=x&after=b"]


def test_an_answer_that_does_not_come(stub: Stub) -> None:
    silent = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # never serves
    try:
        url = f"http://127.0.0.1:{silent.server_port}"
        with Client(url, answer_s=0.05) as client, pytest.raises(NoServerError, match=r"0\.05 s"):
            client.sites()
    finally:
        silent.server_close()


def test_the_users_own_limit_is_kept(stub: Stub) -> None:
    silent = ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler)  # never serves
    try:
        with Client(f"http://127.0.0.1:{silent.server_port}") as client:
            client.limit(0.05)
            with pytest.raises(NoAnswerInTimeError, match="within --timeout"):
                client.apply(b"", "text/yaml", revision=0, key="k")  # else asked again
            assert client.is_late
    finally:
        silent.server_close()


def test_names_are_one_part_of_a_path(stub: Stub) -> None:
    stub.answers = [ok({})]
    with Client(stub.url) as client:
        client.job("../sites/a?b")
        assert stub.requests[0][1] == "/jobs/..%2Fsites%2Fa%3Fb"
        with pytest.raises(InvalidError):
            client.job("..")


@pytest.mark.parametrize("token", ["a b", "a\nb", "ä"])
def test_refuses_what_can_be_no_token(token: str) -> None:
    with pytest.raises(InvalidError, match="cannot use the token"):
        Client("http://127.0.0.1:1", token)
