"""Requests that wait, and streams: how they end, and how many there may be."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from speck.api.context import EXTENSION, Context
from speck.api.permits import Holder
from tests.unit.api.bench import Bench, composition, job, site
from tests.waiting import LIMIT_S, wait_for


def test_events_stream_and_end_when_the_service_stops(bench: Bench) -> None:
    bench.client.post("/sites", json=site("edge-a"))
    bench.client.post("/sites", json=site("cloud"))
    headers = {"Accept": "text/event-stream", "Last-Event-ID": "1"}
    answer = bench.client.get("/events", headers=headers)
    assert answer.mimetype == "text/event-stream"
    parts = answer.iter_encoded()
    assert next(parts) == b": speck\n\n"
    text = next(parts).decode()
    assert text.startswith("id: 2\nevent: site\ndata: {")
    assert json.loads(text.partition("data: ")[2])["site"] == "cloud"
    _context(bench).stopping.set()
    assert list(parts) == []
    answer.close()


def test_streams_never_take_all_threads(bench: Bench) -> None:
    headers = {"Accept": "text/event-stream"}
    open_streams = [bench.client.get("/events", headers=headers) for _ in range(2)]
    refusal = bench.client.get("/events", headers=headers)
    assert refusal.status_code == 503
    assert refusal.headers["Retry-After"]
    open_streams[0].close()
    again = bench.client.get("/events", headers=headers)
    assert again.status_code == 200
    for stream in (*open_streams[1:], again):
        stream.close()


def test_waiting_requests_never_take_all_threads(bench: Bench) -> None:
    bench.add_sites()
    bench.world.engine("http://edge-a:8081").hold_starts = True
    waits = _context(bench).waits
    count = 0
    while waits.acquire(Holder()):
        count += 1
    assert count == 1  # of 8 threads: 2 streams, 2 agents, 1 piece of state, 2 always free
    answer = bench.client.post("/jobs?wait=3000", json=job("new"))
    assert answer.status_code == 202
    for _ in range(count):
        waits.release(Holder())


def _context(bench: Bench) -> Context:
    context: Context = bench.client.application.extensions[EXTENSION]
    return context


def _await_commands(client: FlaskClient) -> TestResponse:
    return client.get("/sites/edge-a/commands?wait=25")


def _follow_events(client: FlaskClient) -> TestResponse:
    return client.get("/events", headers={"Accept": "text/event-stream"})


def _await_change(client: FlaskClient) -> TestResponse:
    return client.post("/compositions?wait=25", json=composition(job("A")))


@pytest.mark.parametrize("ask", [_await_commands, _follow_events, _await_change])
def test_a_service_that_closes_ends_the_waits_of_its_requests(
    bench: Bench, ask: Callable[[FlaskClient], TestResponse], caplog: pytest.LogCaptureFixture
) -> None:
    """None of them reads the store once it is closed."""
    bench.add_sites()
    bench.world.engine("http://edge-a:8081").hold_starts = True
    shared = bench.client.application.extensions["speck"]
    permits = (shared.polls, shared.streams, shared.waits)
    free = sum(each.free for each in permits)
    answers: list[int] = []

    def call() -> None:
        answer = ask(bench.client.application.test_client())
        assert answer.data
        answers.append(answer.status_code)

    waiting = threading.Thread(target=call)
    waiting.start()
    wait_for(lambda: sum(each.free for each in permits) < free)
    if ask is _await_change:
        bench.wait_for_operation("start", "running")
    bench.service.close()
    waiting.join(LIMIT_S)
    assert answers and answers[0] in (200, 202, 503)
    assert "cannot read the store" not in caplog.text


def test_a_request_that_outlives_the_store_may_be_sent_again(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    """The service closes between two of its readings."""
    bench.service.close()
    answer = bench.client.get("/changes/01a21d23bf7bd5ad2c18")
    assert answer.status_code == 503 and "Retry-After" in answer.headers
    assert not [record for record in caplog.records if record.levelname == "ERROR"]
