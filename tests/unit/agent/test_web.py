"""The agent's HTTP client before a service that means no good."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from speck.agent import web
from speck.agent.web import Caller
from speck.errors import UnreachableError


@contextmanager
def answering(body: bytes) -> Iterator[Caller]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.handle_request)
        thread.start()
        yield Caller(f"http://127.0.0.1:{server.server_port}", lambda: None)
        thread.join()


def test_an_answer_has_a_limited_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web, "MAX_ANSWER", 1 << 20)
    with (
        answering(b" " * (1 << 21)) as caller,
        pytest.raises(UnreachableError, match="it has more than 1 MiB"),
    ):
        caller.call("GET", "/")


@pytest.mark.parametrize("body", [b"[" * 100_000, b"{", b"[]", b"\xff"])
def test_what_is_no_object_counts_as_an_empty_one(body: bytes) -> None:
    with answering(body) as caller:
        assert caller.json("GET", "/") == (200, {})
