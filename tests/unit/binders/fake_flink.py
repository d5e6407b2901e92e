"""A server that answers as Flink does, or otherwise."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JOB = "a" * 32


class Fake(ThreadingHTTPServer):
    """Answers by path; keeps its requests."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.answers: dict[str, tuple[int, str | bytes, dict[str, str]]] = {}
        self.requests: list[tuple[str, dict[str, str], bytes]] = []
        self.silent: set[str] = set()
        self.over = threading.Event()
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def say(self, path: str, body: Any, status: int = 200, **headers: str) -> None:
        text = body if isinstance(body, str | bytes) else json.dumps(body)
        self.answers[path] = (status, text, headers)

    def bodies(self, path: str) -> list[bytes]:
        return [body for line, _, body in self.requests if line.partition(" ")[2] == path]


class Handler(BaseHTTPRequestHandler):
    server: Fake
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # else an answer's body waits 40 ms for the head's ACK

    def _answer(self) -> None:
        length = int(self.headers.get("Content-Length", 0))
        body = self.rfile.read(length)
        self.server.requests.append((f"{self.command} {self.path}", dict(self.headers), body))
        if self.path in self.server.silent:
            self.server.over.wait()
        unknown = (404, "<html>never heard of it</html>", {})
        status, text, headers = self.server.answers.get(self.path.partition("?")[0], unknown)
        content = text.encode() if isinstance(text, str) else text
        self.send_response(status)
        for name, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_POST = do_PATCH = do_DELETE = _answer

    def log_message(self, *_: object) -> None:
        """Quiet."""
