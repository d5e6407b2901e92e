"""What answers while the store cannot be opened, and when it gives way."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from flask import Flask

from speck.api.context import EXTENSION
from speck.api.server import unavailable_app as standby_module
from speck.api.server.unavailable_app import UnavailableApp
from speck.errors import StoreError, StoreFullError
from tests.waiting import wait_for

FULL = StoreFullError("cannot write to the store at /x: it is full; free space")


class Opening:
    """Opens an application once it has `failed` so many times."""

    def __init__(self, failures: int, error: StoreError = FULL):
        self.failures_left = failures
        self.app = Flask("opened")
        self.app.extensions[EXTENSION] = SimpleNamespace(stopping=_Flag())
        self.app.add_url_rule("/sites", "sites", lambda: "sites")
        self._error = error

    def __call__(self) -> Flask:
        if self.failures_left:
            self.failures_left -= 1
            raise self._error
        return self.app


class _Flag:
    def __init__(self) -> None:
        self.raised = False

    def set(self) -> None:
        self.raised = True


@pytest.fixture(autouse=True)
def _hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(standby_module, "RETRY_S", 0.001)


def get(standby: UnavailableApp, path: str) -> tuple[int, dict[str, str], bytes]:
    """Status, headers and body of a GET."""
    head: list[Any] = []
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": path,
        "SERVER_NAME": "localhost",
        "SERVER_PORT": "80",
        "wsgi.url_scheme": "http",
    }
    body = b"".join(standby(environ, lambda *parts: head.extend(parts)))
    return int(head[0].split()[0]), dict(head[1]), body


def test_a_store_that_opens_is_served_at_once() -> None:
    standby = UnavailableApp(Opening(0))
    standby.start()
    assert get(standby, "/sites")[::2] == (200, b"sites")


def test_without_room_everything_but_livez_is_a_problem_that_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(standby_module, "RETRY_S", 3600.0)
    standby = UnavailableApp(Opening(10**9))
    standby.start()
    for path in ("/readyz", "/sites", "/nothing"):
        status, headers, body = get(standby, path)
        assert status == 507
        assert headers["Content-Type"] == "application/problem+json"
        assert int(headers["Retry-After"]) > 0
        detail = json.loads(body)["detail"]
        assert "the store's disk is full: free space on it" in detail
        assert "/x" not in detail, "anybody may ask: folders are named in the log only"
        assert json.loads(body)["request_id"] == headers["X-Request-Id"]
    assert get(standby, "/livez")[::2] == (200, b'{"status":"ok"}\n')
    standby.stop()


def test_it_gives_way_once_there_is_room() -> None:
    standby = UnavailableApp(Opening(5))
    standby.start()
    wait_for(lambda: get(standby, "/sites")[0] == 200)


def test_another_reason_is_raised_at_the_start() -> None:
    standby = UnavailableApp(Opening(1, StoreError("cannot open the store at /x: Corruption")))
    with pytest.raises(StoreError, match="Corruption"):
        standby.start()


def test_a_stop_is_told_to_the_application() -> None:
    opening = Opening(0)
    standby = UnavailableApp(opening)
    standby.start()
    standby.stop()
    assert opening.app.extensions[EXTENSION].stopping.raised


def test_after_a_stop_nothing_is_opened_any_more() -> None:
    opening = Opening(0)
    standby = UnavailableApp(opening)
    standby.stop()
    opening.failures_left = 1
    standby.start()
    assert opening.failures_left == 1
