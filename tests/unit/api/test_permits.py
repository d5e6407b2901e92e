"""Shares of permits, and that routes take them."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
from flask.testing import FlaskClient

from binders.memory import World
from speck.api.context import EXTENSION, Context
from speck.api.permits import Holder, Permits
from speck.errors import TransientError
from speck.model.accepted import Accepted
from speck.model.plan import Plan
from speck.model.plan_outline import PlanOutline
from tests.unit.api.bench import Bench, composition, job, site
from tests.waiting import wait_for

VIEWER, OTHER = Holder("viewer", is_admin=False), Holder("other", is_admin=False)
ADMIN = Holder("root", is_admin=True)


def take_all(permits: Permits, holder: Holder) -> int:
    """How many permits the holder gets."""
    count = 0
    while permits.acquire(holder):
        count += 1
    return count


def test_a_token_gets_half_of_the_places_and_others_leave_one_for_administrators() -> None:
    permits = Permits(8)
    assert take_all(permits, VIEWER) == 4
    assert take_all(permits, OTHER) == 3
    assert take_all(permits, ADMIN) == 1
    permits.release(VIEWER)
    assert take_all(permits, OTHER) == 1
    assert take_all(permits, VIEWER) == 0, "the last one is for administrators"
    assert take_all(permits, ADMIN) == 0
    permits.release(OTHER)
    permits.release(OTHER)
    assert take_all(permits, VIEWER) == 1
    assert take_all(permits, ADMIN) == 1


def test_without_tokens_everybody_is_one_administrator() -> None:
    assert take_all(Permits(8), Holder()) == 8


@pytest.mark.parametrize("most", [1, 2, 3])
def test_few_places_can_be_used_by_anybody(most: int) -> None:
    assert take_all(Permits(most), VIEWER) == 1


def test_a_place_that_becomes_free_goes_to_one_who_waits() -> None:
    permits = Permits(1)
    permits.acquire(VIEWER)
    results: list[bool] = []
    waiting = threading.Thread(target=lambda: results.append(permits.acquire(OTHER, 60.0)))
    waiting.start()
    wait_for(lambda: permits._waiting)
    assert not permits.acquire(ADMIN, 60.0), "as many may wait as there are permits"
    permits.release(VIEWER)
    waiting.join(60)
    assert results == [True]
    assert permits.free == 0


# -- over HTTP ----------------------------------------------------------------------------


class Guests:
    """Clients with tokens of their own."""

    def __init__(self, bench: Bench):
        self.bench = bench
        tokens = bench.service.tokens
        self.secrets = {"root": tokens.add("root", "admin")}
        for name, role in (("viewer", "viewer"), ("other", "viewer"), ("deployer", "deployer")):
            self.secrets[name] = tokens.add(name, role)
        self.secrets["edge-a"] = tokens.add("edge-a", "site", "edge-a")

    def call(self, name: str, method: str, path: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {self.secrets[name]}", **more.pop("headers", {})}
        client: FlaskClient = self.bench.client.application.test_client()
        return client.open(path, method=method, headers=headers, **more)

    @property
    def context(self) -> Context:
        context: Context = self.bench.client.application.extensions[EXTENSION]
        return context


@pytest.fixture
def guests(bench: Bench) -> Guests:
    bench.add_sites()
    bench.client.post("/compositions?wait=60", json=composition(job("a")))
    return Guests(bench)


@pytest.mark.parametrize("kind", ["streams", "downloads", "site_calls", "polls"])
def test_a_viewer_cannot_take_the_places_of_an_administrator(kind: str, guests: Guests) -> None:
    permits: Permits = getattr(guests.context, kind)
    assert take_all(permits, VIEWER) >= 1
    take_all(permits, OTHER)
    assert permits.acquire(ADMIN)


def test_streams_of_a_viewer_leave_one_for_the_administrator(guests: Guests) -> None:
    stream = {"headers": {"Accept": "text/event-stream"}}
    with ExitStack() as stack:
        statuses = []
        for name in ("viewer", "viewer", "other", "root"):
            answer = guests.call(name, "GET", "/events", **stream)
            stack.callback(answer.close)
            statuses.append(answer.status_code)
    assert statuses == [200, 503, 503, 200]


@pytest.mark.parametrize(
    "path", ["/metrics/export", "/metrics/export?format=csv", "/metrics/export?format=jsonl"]
)
def test_an_export_holds_its_place_until_it_is_sent(path: str, guests: Guests) -> None:
    downloads = guests.context.downloads
    first = guests.call("viewer", "GET", path, buffered=False)
    assert first.status_code == 200
    refusal = guests.call("viewer", "GET", path)
    assert (refusal.status_code, refusal.headers["Retry-After"]) == (503, "5")
    assert refusal.json["detail"].startswith("cannot send the tasks now")
    assert downloads.free == 1
    first.close()
    assert downloads.free == 2
    assert guests.call("viewer", "GET", path, buffered=True).status_code == 200
    assert guests.call("viewer", "HEAD", path).status_code == 200
    assert downloads.free == 2


def test_a_backup_is_a_download_too(guests: Guests) -> None:
    answer = guests.call("root", "GET", "/backup", buffered=False)
    assert guests.context.downloads.free == 1
    assert guests.context.tasks.free == 1, "it is made"
    assert len(answer.data) == answer.content_length
    answer.close()
    assert guests.context.downloads.free == 2


def test_an_export_that_fails_gives_its_place_back(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert guests.call("viewer", "GET", "/metrics/export?table=none").status_code == 400

    def fail(*_: object) -> None:
        raise TransientError("cannot export")

    monkeypatch.setattr(guests.bench.service.dataset, "export", fail)
    assert guests.call("viewer", "GET", "/metrics/export").status_code == 503
    assert guests.context.downloads.free == 2


def test_a_download_ends_when_its_token_is_removed(guests: Guests) -> None:
    answer = guests.call("viewer", "GET", "/metrics/export", buffered=False)
    guests.bench.service.tokens.remove("viewer")
    with pytest.raises(PermissionError):
        answer.data  # noqa: B018
    answer.close()
    assert guests.context.downloads.free == 2


# -- calls that look at sites -------------------------------------------------------------

LOOKS = [
    ("GET", "/compositions/demo/plan", None),
    ("POST", "/compositions?dry_run=true", composition(job("a"))),
    ("POST", "/compositions", composition(job("a"), job("b"))),
    ("POST", "/compositions/demo/rollback?dry_run=true", {"revision": 1}),
    ("DELETE", "/compositions/demo", None),
    ("GET", "/jobs/a/exceptions", None),
    ("GET", "/jobs/a/metrics", None),
    ("POST", "/jobs/a/savepoints?wait=0", None),
    ("POST", "/jobs?wait=0", job("c")),
    ("PUT", "/jobs/c?wait=0", job("c")),
    ("DELETE", "/jobs/a?wait=0", None),
    ("PUT", "/sites/edge-b", site("edge-b")),
    ("GET", "/restored", None),
]


@pytest.mark.parametrize(("method", "path", "body"), LOOKS)
def test_what_looks_at_sites_has_a_place_or_is_told_to_come_later(
    method: str, path: str, body: Any, guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("speck.api.context.SITE_CALL_PATIENCE_S", 0.0)
    permits = guests.context.site_calls
    while permits.acquire(Holder()):
        pass
    refusal = guests.call("root", method, path, json=body)
    assert (refusal.status_code, refusal.headers["Retry-After"]) == (503, "5")
    assert "try again later" in refusal.json["detail"]
    assert guests.call("viewer", "GET", "/jobs").status_code == 200
    permits.release(Holder())
    permits.release(Holder())
    assert guests.call("root", method, path, json=body).status_code < 500
    assert permits.free == 2


def test_plans_of_a_hanging_engine_hold_a_few_threads(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    held, release = [], threading.Event()

    def plan(name: str) -> PlanOutline:
        held.append(name)
        assert release.wait(60)
        return PlanOutline.of(Plan("c", (), ()))

    monkeypatch.setattr(guests.bench.service.composition_views, "plan", plan)
    monkeypatch.setattr("speck.api.context.SITE_CALL_PATIENCE_S", 0.1)
    statuses: list[int] = []

    def ask() -> None:
        statuses.append(guests.call("viewer", "GET", "/compositions/demo/plan").status_code)

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    wait_for(lambda: len(statuses) == 19, "the refusals")
    assert set(statuses) == {503}
    assert held == ["demo"], "the viewer's share of two"
    dry_run = guests.call("deployer", "POST", "/compositions?dry_run=true", json=composition())
    assert dry_run.status_code == 503, "the last permit is for administrators"
    release.set()
    for thread in threads:
        thread.join()
    assert statuses.count(200) == 1


def test_a_request_that_waits_for_a_change_has_the_place_of_one_that_waits(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    free: list[tuple[int, int]] = []

    def apply(*_: object) -> Accepted:
        free.append((guests.context.waits.free, guests.context.site_calls.free))
        return Accepted(None, "c", 1, PlanOutline.of(Plan("c", (), ())))

    monkeypatch.setattr(guests.bench.service.compositions, "apply", apply)
    waits = guests.context.waits.free
    for query in ("?wait=5", "", "?wait=5&dry_run=true"):
        guests.call("deployer", "POST", f"/compositions{query}", json=composition(job("a")))
    assert free == [(waits - 1, 2), (waits, 1), (waits, 1)]


# -- tokens that are removed --------------------------------------------------------------


def call_meanwhile(call: Callable[[], Any]) -> tuple[list[Any], threading.Thread]:
    answers: list[Any] = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    return answers, thread


@pytest.mark.parametrize("end", ["remove", "expire"])
def test_the_poll_of_a_removed_token_ends_at_once(
    end: str, guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokens = guests.bench.service.tokens
    answers, thread = call_meanwhile(
        lambda: guests.call("edge-a", "GET", "/sites/edge-a/commands?wait=30")
    )
    wait_for(lambda: guests.context.polls.free == 1)
    if end == "remove":
        tokens.remove("edge-a")
    else:
        monkeypatch.setattr(type(tokens), "is_valid", lambda self, name: name != "edge-a")
    thread.join(20)
    assert [(answer.status_code, answer.json.get("title")) for answer in answers] == [
        (401, "Unauthorized")
    ]
    assert "removed or has expired" in answers[0].json["detail"]
    assert guests.context.polls.free == 2


WAITS = [
    ("POST", "/compositions?wait=60", composition(job("a"), job("b"))),
    ("DELETE", "/compositions/demo?wait=60", None),
    ("POST", "/compositions/demo/rollback?wait=60", {"revision": 1}),
    ("POST", "/jobs?wait=60", job("c")),
    ("PUT", "/jobs/alone?wait=60", {**job("alone"), "args": ["--x"]}),
    ("DELETE", "/jobs/alone?wait=60", None),
    ("POST", "/jobs/a/savepoints?wait=60", None),
    ("GET", "/links/tap?site=edge-a&topic=x&seconds=60", None),
]


@pytest.mark.parametrize(("method", "path", "body"), WAITS)
def test_the_wait_of_a_removed_token_ends_at_once(
    method: str, path: str, body: Any, guests: Guests
) -> None:
    changed = composition({**job("a"), "args": ["--x"]})
    guests.call("root", "POST", "/compositions?wait=60", json=changed)
    guests.call("root", "POST", "/jobs?wait=60", json=job("alone"))
    pool = World.current().engine("http://edge-a:8081")
    pool.hold_starts = pool.hold_savepoints = True
    free = guests.context.waits.free
    answers, thread = call_meanwhile(lambda: guests.call("deployer", method, path, json=body))
    wait_for(lambda: guests.context.waits.free == free - 1 or answers)
    guests.bench.service.tokens.remove("deployer")
    thread.join(20)
    assert [(answer.status_code, answer.json.get("title")) for answer in answers] == [
        (401, "Unauthorized")
    ]
    assert "removed or has expired" in answers[0].json["detail"]
    assert guests.context.waits.free == free
    pool.let_go()


def test_the_wait_for_an_analysis_of_a_removed_token_ends_at_once(
    guests: Guests, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = guests.bench.service
    monkeypatch.setattr(service.advisor, "begin", lambda *_, **__: "a1")
    monkeypatch.setitem(service.analyses.runs._runs, "a1", SimpleNamespace(over=threading.Event()))
    free = guests.context.waits.free
    answers, thread = call_meanwhile(
        lambda: guests.call("deployer", "POST", "/advice?wait=60", json={"composition": "demo"})
    )
    wait_for(lambda: guests.context.waits.free == free - 1 or answers)
    service.tokens.remove("deployer")
    thread.join(20)
    assert [(answer.status_code, answer.json.get("title")) for answer in answers] == [
        (401, "Unauthorized")
    ]


def test_taps_have_their_share_of_the_waits_and_leave_the_tasks_alone(guests: Guests) -> None:
    permits = guests.context.waits
    while permits.acquire(OTHER):
        pass
    tap = "/links/tap?site=edge-a&topic=x&seconds=0.1"
    assert guests.call("other", "GET", tap).status_code == 503, "of its own share"
    while permits.acquire(Holder("deployer", is_admin=False)):
        pass
    refusal = guests.call("deployer", "GET", tap)
    assert (refusal.status_code, refusal.headers["Retry-After"]) == (503, "5")
    tasks = guests.context.tasks
    while tasks.acquire(ADMIN):
        pass
    permits.release(OTHER)
    permits.release(OTHER)
    permits.release(Holder("deployer", is_admin=False))
    assert guests.call("deployer", "GET", tap).status_code == 200
