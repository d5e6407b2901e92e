"""What logs say of requests that hold secrets."""

from __future__ import annotations

import logging
from types import SimpleNamespace

import pytest

from speck.api.masking import mask_text, mask_url
from speck.api.server.worker import ConnectionWorker
from speck.store.audit_log import read_entries
from tests.unit.api.bench import Bench

SECRET = "hunter2-and-more"
OWN = "speck_" + "A1b2-" * 8


@pytest.mark.parametrize(
    "query",
    [
        f"token={SECRET}",
        f"access_token={SECRET}&limit=3",
        f"limit=3&password={SECRET}&password={SECRET}",
        f"api_key={SECRET}%20x",
        f"%74oken={SECRET}",
        f"x={SECRET}%ff",
    ],
)
def test_a_value_under_a_name_that_no_route_declares_is_hidden(query: str) -> None:
    shown = mask_url("/jobs", query, {"limit", "after"})
    assert SECRET not in shown and "***" in shown
    assert ("limit=3" in shown) == ("limit=3" in query)


@pytest.mark.parametrize(
    "text",
    [
        f"/tokens/{OWN}",
        f"/jobs?after={OWN}",
        f"/jobs/{OWN.replace('_', '%5f')}",
        f"http://ana:{SECRET}@host/jobs",
        f"//ana:{SECRET}@host/jobs",
    ],
)
def test_what_looks_like_a_secret_is_hidden_wherever_it_stands(text: str) -> None:
    path, _, query = text.partition("?")
    for shown in (mask_text(text), mask_url(path, query, {"after"})):
        assert OWN not in shown and SECRET not in shown and "A1b2" not in shown


def test_a_log_line_has_no_control_characters() -> None:
    assert mask_url("/a\n\x1b[2J", "after=%0a%1b", {"after"}).isprintable()


@pytest.mark.parametrize(
    "path",
    [
        f"/jobs?token={SECRET}",
        f"/tokens?secret={SECRET}",
        f"/jobs/{OWN}",
        f"/jobs?after={OWN}",
        f"/nothing?token={SECRET}",
        f"/compositions?dry_run={OWN}",
    ],
)
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_no_secret_of_a_request_is_in_any_log(
    method: str, path: str, bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.service.tokens.add("root", "admin")
    caplog.set_level(logging.DEBUG)
    headers = {
        "Authorization": f"Basic {SECRET}",
        "Cookie": SECRET,
        "Referer": f"http://x/?token={SECRET}",
        "User-Agent": SECRET,
    }
    bench.client.open(path, method=method, headers=headers)
    written = caplog.text + str(list(read_entries(bench.service.config.audit)))
    assert SECRET not in written and OWN not in written
    assert f"{method} /" in caplog.text


def test_what_is_no_request_is_not_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    worker = SimpleNamespace(log=logging.getLogger("gunicorn.error"))
    client = SimpleNamespace(sendall=lambda data: None)
    with caplog.at_level(logging.DEBUG):
        ConnectionWorker.handle_error(
            worker,  # type: ignore[arg-type]
            None,
            client,
            ("10.0.0.1", 1),
            ValueError(f"GET /?token={SECRET} HTTP/9"),
        )
    assert "ValueError" in caplog.text and SECRET not in caplog.text
