"""The client and the CLI before a server that means no good, or is no speck service."""

from __future__ import annotations

import gzip
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from speck.client import Client, ClientError, NoServerError, administration_calls, bounds, transport
from speck.errors import SpeckError
from tests.unit.cli.conftest import Run

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
NASTY = "a\x1b[31m\x07\x9b2J\u202eevil\u2066\r\x00\x7f"


@contextmanager
def answering(answer: Callable[[socket.socket], None]) -> Iterator[str]:
    """A server that reads a request and lets `answer` reply; its address."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=reply, args=(connection,), daemon=True).start()

        def reply(connection: socket.socket) -> None:
            with connection, suppress(OSError):
                while connection.recv(65536):
                    answer(connection)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)


def send(body: bytes, *headers: str) -> Callable[[socket.socket], None]:
    lines = "".join(f"{line}\r\n" for line in (f"Content-Length: {len(body)}", *headers))
    return lambda connection: connection.sendall(HEAD + lines.encode() + b"\r\n" + body)


def drip_body(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"Content-Length: 100000\r\n\r\n{")
    while True:
        connection.sendall(b" ")
        time.sleep(0.05)


def drip_headers(connection: socket.socket) -> None:
    connection.sendall(HEAD)
    while True:
        connection.sendall(b"X: y\r\n"[:1])
        time.sleep(0.05)


def drip_chunks(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
    while True:
        connection.sendall(b"1\r\n \r\n")
        time.sleep(0.05)


def send_for_ever(connection: socket.socket) -> None:
    connection.sendall(HEAD + b"Connection: close\r\n\r\n{")
    while True:
        connection.sendall(b" " * 65536)


def send_pages_for_ever(connection: socket.socket) -> None:
    page = json.dumps({"sites": [{"name": "x" * 1000}] * 100}).encode()
    send(page, 'Link: </sites?after=x>; rel="next"')(connection)


BOMB = gzip.compress(b" " * (20 << 20))
"""Ten times as long as what is allowed below."""


@pytest.mark.parametrize(
    "answer",
    [
        send(BOMB, "Content-Encoding: gzip"),
        send(BOMB, "Content-Encoding: deflate"),
        send(BOMB, "Content-Encoding: GZIP, gzip"),
        send_for_ever,
        send(b" " * 3_000_000),
        send_pages_for_ever,
    ],
)
def test_an_answer_has_a_limited_size(
    answer: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds.read_body, "__defaults__", (2 << 20,))
    monkeypatch.setattr(transport, "MAX_LIST", 2 << 20)
    with (
        answering(answer) as url,
        Client(url) as client,
        pytest.raises(ClientError, match=r"cannot read the answer of .*is it a speck service"),
    ):
        client.sites()


@pytest.mark.parametrize("answer", [drip_body, drip_headers, drip_chunks])
def test_an_answer_has_a_limited_time_however_steadily_it_comes(
    answer: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transport, "CONNECT_S", 0.2)
    with (
        answering(answer) as url,
        Client(url, answer_s=0.3) as client,
        pytest.raises(NoServerError),
    ):
        client.sites()


@pytest.mark.parametrize("answer", [drip_body, drip_chunks])
def test_a_download_has_a_limited_time_too(
    answer: Callable[[socket.socket], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(administration_calls, "LONG_S", 0.5)
    monkeypatch.setattr(transport, "CONNECT_S", 0.2)
    with (
        answering(answer) as url,
        Client(url, answer_s=0.3) as client,
        pytest.raises(SpeckError, match="cannot"),
    ):
        list(client.backup())


def test_a_compressed_download_is_refused() -> None:
    with (
        answering(send(BOMB, "Content-Encoding: gzip")) as url,
        Client(url) as client,
        pytest.raises(ClientError, match="it is compressed"),
    ):
        list(client.backup())


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"sites":' * 50_000,
        b'{"a":' + b"9" * 6000 + b"}",
        b"{}",
        b'{"sites": 5}',
        b'{"sites": null}',
        b'{"sites": [5]}',
        b'{"sites": [{}]}',
        b'{"sites": [{"name": {}}]}',
        b"NaN",
        b"\xff\xfe",
    ],
)
@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_what_no_service_answers_is_one_sentence(body: bytes, form: str, alone: Run) -> None:
    with answering(send(body)) as url:
        result = alone("site", "list", "-o", form, SPECK_SERVER=url)
    if result.exit_code == 0:  # JSON and YAML are passed on as they are
        assert form != "table"
        return
    assert result.exit_code == 1
    assert "cannot" in result.stderr and "Traceback" not in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


@pytest.mark.parametrize("errors", [b"5", b"[5]", b'"x"', b'[{"line": "x"}]', b"{}"])
def test_odd_problems_are_an_error_all_the_same(errors: bytes) -> None:
    body = b'{"title": "no", "errors": ' + errors + b"}"
    head = b"HTTP/1.1 400 no\r\nContent-Length: %d\r\n\r\n" % len(body)
    with (
        answering(lambda connection: connection.sendall(head + body)) as url,
        Client(url) as it,
        pytest.raises(ClientError, match="no"),
    ):
        it.sites()


# -- control characters -------------------------------------------------------------------


EVENT = {"id": 1, "at": NASTY, "kind": NASTY, "message": NASTY, "site": NASTY}
ENTRY = {
    "n": 1,
    "at": NASTY,
    "token": NASTY,
    "address": NASTY,
    "verb": NASTY,
    "object": NASTY,
    "outcome": NASTY,
    NASTY: {NASTY: [NASTY]},
}
SITE = {
    "name": NASTY,
    "tier": NASTY,
    "state": NASTY,
    "slots": {"free": NASTY, "total": NASTY},
    "spe": {"kind": NASTY, "address": NASTY},
    "broker": {"kind": NASTY, "address": NASTY},
    "engine_version": NASTY,
    "error": NASTY,
    "labels": {NASTY: NASTY},
    "last_seen": NASTY,
    "polled_at": NASTY,
    "uplink_mbps": NASTY,
    "agent": None,
    "calibration": None,
}
TOKEN = dict.fromkeys(("name", "role", "site", "at", "by", "expires", "last_used"), NASTY)
VERDICT = {"ok": True, "lines": NASTY, "first": NASTY, "last_hash": NASTY, "faults": [NASTY]}
COMMANDS = [
    (("events",), {"events": [EVENT]}),
    (("audit", "tail"), {"entries": [ENTRY]}),
    (("site", "list"), {"sites": [SITE]}),
    (("site", "show", "x"), SITE),
    (("token", "list"), {"tokens": [{**TOKEN, "compositions": [NASTY], "topics": [NASTY]}]}),
    (
        ("artifacts", "list"),
        {
            "artifacts": [
                {
                    "sha256": NASTY,
                    "bytes": 1,
                    "at": NASTY,
                    "by": NASTY,
                    "uses": [{"composition": NASTY, "revision": NASTY, "job_name": NASTY}],
                }
            ]
        },
    ),
    (
        ("jobs",),
        {
            "jobs": [
                dict.fromkeys(
                    (
                        "job_name",
                        "composition",
                        "site",
                        "state",
                        "attempt",
                        "failures",
                        "records_left_out",
                        "records_lost",
                        "sessions_lost",
                        "source_topic",
                        "sink_topic",
                        "error",
                    ),
                    NASTY,
                )
            ]
        },
    ),
    (
        ("site", "check", "x"),
        {
            "name": NASTY,
            "ok": True,
            "findings": [
                dict.fromkeys(
                    ("part", "severity", "setting", "value", "consequence", "mend", "remedy"), NASTY
                )
            ],
        },
    ),
]


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
@pytest.mark.parametrize(("command", "body"), COMMANDS, ids=lambda it: str(it)[:20])
def test_no_control_character_of_a_server_reaches_the_terminal(
    command: tuple[str, ...], body: dict[str, object], form: str, alone: Run
) -> None:
    with answering(send(json.dumps(body).encode())) as url:
        result = alone(*command, "-o", form, SPECK_SERVER=url)
    for text in (result.stdout, result.stderr):
        assert text.replace("\n", "").isprintable(), text
    assert "evil" in result.stdout + result.stderr


@pytest.mark.parametrize("form", ["table", "json", "yaml"])
def test_no_control_character_of_a_refusal_reaches_the_terminal(form: str, alone: Run) -> None:
    body = json.dumps({"title": NASTY, "detail": NASTY, "errors": [{"path": NASTY}]}).encode()
    head = b"HTTP/1.1 400 no\r\nContent-Length: %d\r\n\r\n" % len(body)
    with answering(lambda connection: connection.sendall(head + body)) as url:
        result = alone("events", "-o", form, SPECK_SERVER=url)
    assert result.exit_code == 1 and "evil" in result.stderr
    assert result.stderr.replace("\n", "").isprintable()


def test_json_says_the_same_with_escapes(alone: Run) -> None:
    with answering(send(json.dumps({"events": [EVENT]}).encode())) as url:
        result = alone("events", "-o", "json", SPECK_SERVER=url)
    assert json.loads(result.stdout) == {"events": [EVENT]}
