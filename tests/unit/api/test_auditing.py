"""Which requests are in the audit log, and what it says of them."""

from __future__ import annotations

import hashlib
import shutil
from typing import Any, NamedTuple

import pytest

from speck.model.scopes import Scopes
from speck.store.audit_log import read_entries, verify
from tests.memory_fog import jar_bytes
from tests.unit.api.bench import Bench, composition, job, site


@pytest.fixture
def tokens(bench: Bench) -> dict[str, str]:
    """Tokens of an administrator, a deployer, a viewer and a limited deployer; sites are there."""
    bench.add_sites()
    add = bench.service.tokens.add
    secrets = {role: add(role, role) for role in ("admin", "deployer", "viewer")}
    return {**secrets, "limited": add("limited", "deployer", scopes=Scopes(compositions=("b*",)))}


def ask(bench: Bench, method: str, path: str, secret: str | None, **more: Any) -> Any:
    headers = {"Authorization": f"Bearer {secret}"} if secret else {}
    return bench.client.open(path, method=method, headers=headers, **more)


def newest(bench: Bench, skip: int = 0) -> list[tuple[Any, ...]]:
    entries = list(read_entries(bench.service.config.audit))[skip:]
    return [(e["token"], e["verb"], e["object"], e["outcome"]) for e in entries]


def test_each_change_is_recorded_with_who_asked_for_it(
    bench: Bench, tokens: dict[str, str]
) -> None:
    begun = len(newest(bench))
    body = composition(job("A"))
    applied = ask(bench, "POST", "/compositions?wait=30", tokens["deployer"], json=body)
    ask(bench, "POST", "/jobs", tokens["deployer"], json=job("alone"))
    ask(bench, "PUT", "/sites/edge-b", tokens["admin"], json=site("edge-b", uplink_mbps=3))
    ask(bench, "POST", "/tokens", tokens["admin"], json={"name": "x", "role": "viewer"})
    ask(bench, "DELETE", "/tokens/x", tokens["admin"])
    assert newest(bench, begun) == [
        ("deployer", "POST", "/compositions/demo", 200),
        ("deployer", "POST", "/jobs/alone", 201),
        ("admin", "PUT", "/sites/edge-b", 200),
        ("admin", "POST", "/tokens/x", 201),
        ("admin", "DELETE", "/tokens/x", 204),
    ]
    entry = list(read_entries(bench.service.config.audit))[begun]
    assert entry["change"] == applied.json["change"] and entry["address"] == "127.0.0.1"
    assert entry["request"] == applied.headers["X-Request-Id"]
    changes = bench.service.changes.all()
    assert [change.by for change in changes] == ["deployer", "deployer"]
    events = list(bench.service.records.events.after())
    actors = {(e.kind, e.by) for e in events if e.kind in ("site", "token", "change")}
    assert actors >= {("site", "admin"), ("token", "admin"), ("change", "deployer")}
    assert verify(bench.service.config.audit).faults == ()


def test_events_of_artifacts_name_who_deleted_them(bench: Bench, tokens: dict[str, str]) -> None:
    jar = jar_bytes(b"unused")
    path = f"/artifacts/{hashlib.sha256(jar).hexdigest()}"
    assert ask(bench, "PUT", path, tokens["deployer"], data=jar).status_code == 201
    assert ask(bench, "DELETE", path, tokens["deployer"]).status_code == 204
    *_, event = bench.service.records.events.after()
    assert (event.kind, event.by) == ("artifact", "deployer")


def test_refusals_are_recorded_and_reads_are_not(bench: Bench, tokens: dict[str, str]) -> None:
    begun = len(newest(bench))
    for path in ("/jobs", "/sites/edge-a", "/compositions/nothing", "/livez", "/nothing"):
        ask(bench, "GET", path, tokens["viewer"])
    ask(bench, "POST", "/compositions?dry_run=true", tokens["deployer"], json=composition(job("A")))
    ask(bench, "POST", "/sites/edge-a/heartbeat", tokens["admin"])
    assert newest(bench, begun) == []
    ask(bench, "GET", "/jobs", None)
    ask(bench, "GET", "/jobs", "speck_wrong")
    ask(bench, "GET", "/tokens", tokens["viewer"])
    ask(bench, "DELETE", "/jobs/nothing", tokens["deployer"])
    ask(bench, "POST", "/jobs", tokens["deployer"], json=job("x", site="nowhere"))
    ask(bench, "POST", "/sites/edge-a/heartbeat", tokens["viewer"])
    ask(bench, "GET", "/compositions/alpha", tokens["limited"])
    assert newest(bench, begun) == [
        (None, "GET", "/jobs", 401),
        (None, "GET", "/jobs", 401),
        ("viewer", "GET", "/tokens", 403),
        ("deployer", "DELETE", "/jobs/nothing", 404),
        ("deployer", "POST", "/jobs/x", 422),
        ("viewer", "POST", "/sites/edge-a/heartbeat", 403),
        ("limited", "GET", "/compositions/alpha", 404),
    ]
    *_, last = read_entries(bench.service.config.audit)
    assert last["refused_by"] == "scope"


def test_without_tokens_changes_are_made_by_local(bench: Bench) -> None:
    bench.add_sites()
    answer = bench.client.post("/jobs", json=job("alone"))
    assert answer.status_code == 201
    (change,) = bench.client.get("/changes").json["changes"]
    assert change["by"] == "local"
    assert bench.client.get("/tokens/self").json["name"] == "local"


def test_a_repair_names_speck(bench: Bench) -> None:
    bench.add_sites()
    bench.client.post("/compositions?wait=30", json=composition(job("A")))
    pool = bench.world.engine("http://edge-a:8081")
    pool.fail(pool.running()[0].id, "no luck")
    running = bench.service.repairs.repair("demo")
    assert running is not None and running.over.wait(30)
    assert bench.client.get("/changes").json["changes"][0]["by"] == "speck"


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def test_a_full_disk_stops_no_reading(
    bench: Bench, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(1 << 40, 1 << 40, 0))
    assert ask(bench, "GET", "/jobs", tokens["viewer"]).status_code == 200
    assert ask(bench, "GET", "/tokens", tokens["viewer"]).status_code == 403
    assert ask(bench, "GET", "/audit", tokens["admin"]).status_code == 200
    monkeypatch.undo()
    ask(bench, "GET", "/tokens", tokens["viewer"])
    *_, last = read_entries(bench.service.config.audit)
    assert last["missing"] == 1


def test_a_disk_that_tells_no_size_takes_entries(
    bench: Bench, tokens: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda _: Usage(0, 0, 0))
    before = len(list(read_entries(bench.service.config.audit)))
    ask(bench, "GET", "/tokens", tokens["viewer"])
    *_, last = read_entries(bench.service.config.audit)
    assert len(list(read_entries(bench.service.config.audit))) > before
    assert "missing" not in last


def test_the_log_is_read_in_pages(bench: Bench, tokens: dict[str, str]) -> None:
    read = ask(bench, "GET", "/audit?limit=2", tokens["admin"]).json["entries"]
    assert [entry["n"] for entry in read] == [2, 3]
    first = ask(bench, "GET", "/audit?after=0&limit=2", tokens["admin"])
    assert [entry["n"] for entry in first.json["entries"]] == [1, 2]
    assert "after=2" in first.headers["Link"]
    assert ask(bench, "GET", "/audit", tokens["deployer"]).status_code == 403


def test_an_adoption_is_recorded_with_its_options(bench: Bench, tokens: dict[str, str]) -> None:
    begun = len(newest(bench))
    ask(bench, "POST", "/restored/adopt?cancel=true", tokens["deployer"])
    ask(bench, "POST", "/restored/adopt?cancel=true&older_state=false", tokens["admin"])
    assert newest(bench, begun) == [
        ("deployer", "POST", "/restored/adopt", 403),
        ("admin", "POST", "/restored/adopt?cancel=true", 409),
    ]
