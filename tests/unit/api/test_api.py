"""What the table of routes does not show: headers, paging, streams, faults, bounds."""

from __future__ import annotations

import gzip
import hashlib
import json
import logging
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from flask.testing import FlaskClient
from werkzeug.test import TestResponse

from binders.memory.engine import MemoryEngine
from speck.api.access import ACCESS
from speck.api.context import EXTENSION, Context
from speck.api.permits import Holder
from speck.api.problems import status_of
from speck.deploy.operations import Patience
from speck.errors import (
    BrokerRefusedError,
    ConflictError,
    DuplicateJobError,
    EngineRefusedError,
    ForbiddenError,
    InvalidError,
    NotFoundError,
    PermanentError,
    SpeckError,
    StaleRevisionError,
    StoreError,
    StoreHeldError,
    TransientError,
    UnreachableError,
)
from speck.model.measurement import BrokerMeasures, JobMeasure, LinkMeasure, TaskMeasure
from speck.store.audit_seal import StoredSeal
from tests.memory_fog import jar_bytes
from tests.unit.api.conftest import Bench, composition, job, site
from tests.waiting import LIMIT_S, wait_for


@pytest.fixture
def deployed(bench: Bench) -> Bench:
    bench.add_sites()
    answer = bench.client.post("/compositions?wait=30", json=composition(job("A"), job("B")))
    assert answer.json["state"] == "done"
    return bench


def test_each_kind_of_error_has_its_status() -> None:
    expected = {
        NotFoundError("x"): 404,
        ConflictError("x"): 409,
        StaleRevisionError("x"): 412,
        ForbiddenError("x"): 403,
        EngineRefusedError("x"): 502,
        DuplicateJobError("x"): 502,
        BrokerRefusedError("x"): 502,
        UnreachableError("x"): 503,
        TransientError("x"): 503,
        StoreError("x"): 500,
        StoreHeldError("x"): 500,
        PermanentError("x"): 500,
        SpeckError("x"): 500,
        InvalidError("x"): 422,
        InvalidError("x", status=400): 400,
    }
    assert {error: status_of(error) for error in expected} == expected


def test_a_fault_is_told_by_its_request_id_only(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(**_: Any) -> Any:
        raise RuntimeError("secret words")

    monkeypatch.setattr(bench.service.sites, "all", broken)
    answer = bench.client.get("/sites", headers={"X-Request-Id": "my-request-1"})

    assert answer.status_code == 500
    assert answer.mimetype == "application/problem+json"
    assert answer.json["request_id"] == answer.headers["X-Request-Id"] == "my-request-1"
    assert "secret words" not in answer.text and "Traceback" not in answer.text
    assert "request my-request-1: GET /sites" in caplog.text and "secret words" in caplog.text


def test_a_request_id_that_could_forge_log_lines_is_replaced(bench: Bench) -> None:
    answer = bench.client.get("/livez", headers={"X-Request-Id": "a b; rm"})
    assert re.fullmatch(r"[0-9a-f]{16}", answer.headers["X-Request-Id"])


def test_a_busy_composition_names_the_change_in_the_way(deployed: Bench) -> None:
    deployed.world.engine("http://edge-a:8081").hold_starts = True
    client = deployed.client
    first = client.post("/compositions", json=composition(job("A", args=["x"]), job("B")))
    second = client.post("/compositions", json=composition(job("A"), job("B")))
    assert second.status_code == 409
    assert second.json["change"] == first.json["change"]
    assert first.json["change"] in second.json["detail"]


def test_a_blocked_change_is_superseded(deployed: Bench) -> None:
    deployed.world.broker("tcp://edge-b:1883").unreachable = True
    client = deployed.client
    jobs = (job("A"), job("B"), job("X", site="edge-b"))
    first = client.post("/compositions", json=composition(*jobs)).json["change"]
    deployed.wait_until_blocked()
    second = client.post("/compositions?drop_queues=true", json=composition(job("A"), job("B")))
    assert second.status_code == 202
    old = client.get(f"/changes/{first}").json
    assert (old["state"], old["superseded_by"]) == ("cancelled", second.json["change"])


def test_a_queue_is_dropped_only_with_consent(bench: Bench) -> None:
    bench.add_sites()
    client = bench.client
    assert client.post("/jobs", json=job("A", state="stopped")).status_code == 201
    for method, path, body in (
        ("DELETE", "/jobs/A", None),
        ("PUT", "/jobs/A", job("A", state="stopped", source_topic="other")),
    ):
        answer = client.open(path, method=method, json=body)
        assert answer.status_code == 409
        assert answer.mimetype == "application/problem+json"
        (queue,) = answer.json["queues"]
        assert (queue["reader"], queue["messages"], queue["count"]) == ("A", None, "unknown")
        assert queue["text"] in answer.json["detail"]
    assert client.delete("/jobs/A?drop_queues=true").status_code == 204


def test_a_dry_run_shows_the_queues_and_is_no_conflict(bench: Bench) -> None:
    bench.add_sites()
    client = bench.client
    stopped = composition(job("A", state="stopped"), job("B"))
    assert client.post("/compositions?wait=10", json=stopped).json["state"] == "done"
    without = composition(job("B"))
    for query in ("dry_run=true", "dry_run=true&drop_queues=true&drain_limit=7.5"):
        limit_s = 7.5 if "drop_queues" in query else None
        for answer in (
            client.post(f"/compositions?{query}", json=without),
            client.delete(f"/compositions/demo?{query}"),
        ):
            assert answer.status_code == 200
            plan = answer.json["plan"]
            assert [queue["reader"] for queue in plan["queues"]] == ["A"]
            assert plan["drain_limit_s"] == limit_s
    for answer in (
        client.post("/compositions", json=without),
        client.delete("/compositions/demo"),
        client.post("/compositions/demo/rollback", json={"revision": 1, "x": 1}),
    ):
        assert answer.status_code == (409 if "queues" in answer.json else 422)
    assert client.delete("/compositions/demo?drop_queues=true&drain_limit=-1").status_code == 400
    for method, place, body in (
        ("post", "/compositions", without),
        ("delete", "/compositions/demo", None),
        ("post", "/compositions/demo/rollback", {"revision": 1}),
        ("post", "/jobs", job("X")),
        ("put", "/jobs/X", job("X")),
        ("delete", "/jobs/X", None),
    ):
        for consent in ("", "&drop_queues=false"):
            answer = client.open(f"{place}?drain_limit=5{consent}", method=method, json=body)
            assert answer.status_code == 400, place
            (problem,) = answer.json["errors"]
            assert problem["path"] == "drain_limit" and "drop_queues=true" in problem["message"]
    done = client.delete("/compositions/demo?drop_queues=true&drain_limit=7.5&wait=10")
    assert done.status_code == 204
    change = client.get(f"/changes/{client.get('/changes').json['changes'][0]['id']}").json
    assert change["drain_limit_s"] == 7.5
    assert [queue["reader"] for queue in change["dropped"]] == ["A"]
    assert change["dropped"][0]["text"].startswith("dropped the queue of A at ")


def test_removing_most_jobs_needs_force(bench: Bench) -> None:
    bench.add_sites()
    client = bench.client
    three = composition(job("A"), job("B"), job("C"))
    assert client.post("/compositions?wait=10", json=three).json["state"] == "done"
    refusal = client.post("/compositions", json=composition(job("A")))
    assert refusal.status_code == 409
    assert "(B, C)" in refusal.json["detail"] and "?force=true" in refusal.json["detail"]
    forced = client.post(
        "/compositions?force=true&drop_queues=true&wait=10", json=composition(job("A"))
    )
    assert forced.json["state"] == "done"
    change = client.get(f"/changes/{forced.json['change']}").json
    assert (change["cause"], change["drop_queues"], change["leave"]) == ("apply", True, [])
    back = client.post("/compositions/demo/rollback?wait=10", json={"revision": 1})
    assert client.get(f"/changes/{back.json['change']}").json["cause"] == "rollback"


def test_etag_is_the_revision_that_if_match_takes(deployed: Bench) -> None:
    etag = deployed.client.get("/compositions/demo").headers["ETag"]
    assert etag == '"1"'
    changed = composition(job("A"))
    headers = {"If-Match": etag}
    assert (
        deployed.client.post("/compositions?wait=30", json=changed, headers=headers).json[
            "revision"
        ]
        == 2
    )
    assert deployed.client.post("/compositions", json=changed, headers=headers).status_code == 412
    assert deployed.client.get("/compositions/demo").headers["ETag"] == '"2"'


def test_an_idempotency_key_gives_the_first_answer_again(bench: Bench) -> None:
    bench.add_sites()
    headers = {"Idempotency-Key": "k1"}
    body = composition(job("A"))
    first = bench.client.post("/compositions?wait=30", json=body, headers=headers)
    again = bench.client.post("/compositions", json=body, headers=headers)
    other = bench.client.post("/compositions", json=composition(job("B")), headers=headers)
    assert again.json["change"] == first.json["change"]
    assert other.status_code == 409
    assert len(bench.client.get("/changes").json["changes"]) == 1


def test_a_revision_tells_who_made_it(bench: Bench) -> None:
    bench.add_sites()
    bench.service.tokens.add("root", "admin")
    secret = bench.service.tokens.add("ana", "deployer")
    headers = {"Authorization": f"Bearer {secret}"}
    bench.client.post("/compositions?wait=30", json=composition(job("A")), headers=headers)
    revisions = bench.client.get("/compositions/demo/revisions", headers=headers).json["revisions"]
    assert [revision["by"] for revision in revisions] == ["ana"]


def home(bench: Bench) -> dict[str, bytes]:
    """All files of the home folder, artifacts included, but for locks: those are empty."""
    folder = bench.service.config.home
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name != ".lock"
    }


def is_audit_sealed(bench: Bench) -> bool:
    """Whether the store has the hash of the newest line, which it gets a second later."""
    lines = bench.service.config.audit.joinpath("00000001.jsonl").read_text().splitlines()
    seal = StoredSeal(bench.service.records).load()
    return seal is not None and seal.n == len(lines)


def test_a_dry_run_writes_no_byte(bench: Bench) -> None:
    bench.add_sites()
    wait_for(lambda: is_audit_sealed(bench), "the audit log's newest hash in the store")
    before = home(bench)
    answer = bench.client.post("/compositions?dry_run=true", json=composition(job("A"))).json
    assert answer["change"] is None
    assert answer["plan"]["summary"]["add"] == 1
    assert home(bench) == before
    bench.client.post("/compositions?wait=30", json=composition(job("A")))
    assert home(bench) != before


def late_start(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """A's start is recorded as failed, although the job runs: its source was not connected."""
    engine = bench.world.engine("http://edge-a:8081")
    bench.service.executions.patience = Patience(connect_s=0.0, start_s=0.05)
    with monkeypatch.context() as patched:
        patched.setattr(MemoryEngine, "is_connected", lambda *_: False)
        bench.client.post("/compositions?wait=30", json=composition(job("A")))
    assert not bench.service.records.inventory("demo").jobs["A"].confirmed
    assert engine.running()


def test_what_a_viewer_reads_writes_no_byte(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.add_sites()
    late_start(bench, monkeypatch)
    bench.jar.write_bytes(jar_bytes(b"another one than was accepted"))
    (change,) = (it["id"] for it in bench.client.get("/changes").json["changes"])
    (artifact,) = (it["sha256"] for it in bench.client.get("/artifacts").json["artifacts"])
    named = {
        "/compositions/": "demo",
        "/jobs/": "A",
        "/sites/": "edge-a",
        "/changes/": change,
        "/artifacts/": artifact,
    }
    wait_for(lambda: is_audit_sealed(bench), "the audit log's newest hash in the store")
    before, read = home(bench), []
    for rule in bench.client.application.url_map.iter_rules():
        path = str(rule)
        begin = next((begin for begin in named if path.startswith(f"{begin}<")), None)
        if "GET" not in (rule.methods or ()) or ("<" in path and begin is None):
            continue
        if ACCESS["GET", path].logged:
            continue  # a line in the audit log
        if begin is not None:
            path = re.sub("<[^>]*>", named[begin], path, count=1)
        if "<" not in path and bench.client.get(path).status_code == 200:
            read.append(path)
        assert home(bench) == before, path
    assert {"/compositions/demo/plan", "/compositions/demo/drift", "/jobs/A", "/sites"} <= {*read}
    bench.client.post("/compositions?wait=30", json=composition(job("A")))
    assert bench.service.records.inventory("demo").jobs["A"].confirmed


def test_a_job_that_the_engine_refuses_leaves_nothing_behind(bench: Bench) -> None:
    bench.add_sites()
    engine = bench.world.engine("http://edge-a:8081")
    engine.refuse("submit", 1, EngineRefusedError("cannot start new: main fails"))
    refusal = bench.client.post("/jobs", json=job("new"))
    assert refusal.status_code == 502
    assert refusal.json["detail"] == "cannot start new: main fails (site edge-a)"
    assert bench.client.get("/jobs/new").status_code == 404
    assert bench.client.post("/jobs", json=job("new")).status_code == 201


def test_pages_follow_each_other_by_the_header_link(bench: Bench) -> None:
    bench.add_sites()
    pages = []
    path: str | None = "/sites?limit=2"
    while path:
        answer = bench.client.get(path)
        pages.append([site_body["name"] for site_body in answer.json["sites"]])
        link = answer.headers.get("Link")
        path = link.split(">")[0].lstrip("<") if link else None
    assert pages == [["cloud", "edge-a"], ["edge-b"]]


def test_changes_come_newest_first_and_after_goes_back(deployed: Bench) -> None:
    deployed.client.post("/compositions?wait=30", json=composition(job("A")))
    newest, oldest = (c["id"] for c in deployed.client.get("/changes").json["changes"])
    assert newest > oldest
    older = deployed.client.get(f"/changes?after={newest}").json["changes"]
    assert [change["id"] for change in older] == [oldest]


def test_lists_are_filtered(deployed: Bench) -> None:
    client = deployed.client
    assert client.get("/jobs?site=cloud").json == {"jobs": []}
    assert len(client.get("/jobs?site=edge-a&state=running").json["jobs"]) == 2
    assert client.get("/compositions?site=cloud").json == {"compositions": []}
    assert len(client.get("/compositions?state=running").json["compositions"]) == 1
    assert client.get("/changes?site=cloud").json == {"changes": []}
    assert len(client.get("/changes?site=edge-a").json["changes"]) == 1
    events = client.get("/events?kind=site&site=cloud").json["events"]
    assert [event["message"] for event in events] == ["site cloud registered"]


def test_events_go_on_behind_a_number(bench: Bench) -> None:
    bench.add_sites()
    first = bench.client.get("/events?limit=1")
    assert first.headers["Link"] == '</events?limit=1&after=1>; rel="next"'
    rest = bench.client.get("/events?after=1").json["events"]
    assert [event["id"] for event in rest] == [2, 3]


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


@pytest.mark.parametrize(
    ("length", "status"), [(10, 400), (1 << 40, 413)], ids=["cut short", "too large"]
)
def test_an_artifact_that_is_not_taken_leaves_nothing(
    length: int, status: int, bench: Bench
) -> None:
    answer = bench.client.put(
        f"/artifacts/{'5' * 64}", data=b"abc", environ_overrides={"CONTENT_LENGTH": str(length)}
    )
    assert answer.status_code == status
    folder = bench.service.config.artifacts
    assert not folder.exists() or list(folder.iterdir()) == []


def test_an_artifact_is_used_by_its_hash(bench: Bench) -> None:
    bench.add_sites()
    content = bench.jar.read_bytes()
    sha256 = hashlib.sha256(content).hexdigest()
    assert bench.client.put(f"/artifacts/{sha256}", data=content).status_code == 201
    answer = bench.client.post("/jobs", json=job("new", job_path=f"artifact:{sha256}"))
    assert answer.status_code == 201


def test_a_deployer_names_no_client_that_speck_did_not_create(bench: Bench) -> None:
    bench.add_sites()
    admin, deployer = (
        {"Authorization": f"Bearer {bench.service.tokens.add(role, role)}"}
        for role in ("admin", "deployer")
    )
    broker = bench.world.broker("tcp://edge-a:1883")
    broker.subscribe("plc-line-7", "plant/line-7").holder = "the machine itself"

    def post(client_id: str, who: dict[str, str], query: str = "?wait=30") -> Any:
        output = {"topic": "A-out", "site": "edge-a", "client_id": client_id}
        body = {**composition(job("A")), "outputs": [output]}
        return bench.client.post(f"/compositions{query}", json=body, headers=who)

    for query in ("", "?dry_run=true"):
        refused = post("plc-line-7", deployer, query)
        assert refused.status_code == 422
        (fault,) = refused.json["errors"]
        assert fault["path"] == "outputs[0].client_id"
        assert "choose an id that begins with speck-out-" in fault["message"]
    assert broker.thrown_out == []
    assert broker.sessions["plc-line-7"].topics == {"plant/line-7"}
    assert post("speck-out-dashboard", deployer).status_code == 200
    assert post("dashboard", admin).status_code == 200, "an administrator knows their clients"
    assert post("dashboard", deployer).status_code == 200, "now speck has made it"
    assert post("other", deployer).status_code == 422


def test_an_administrator_lists_client_ids_for_deployers(bench: Bench) -> None:
    bench.add_sites()
    admission = bench.service.compositions._admission
    admission._client_ids = (*admission._client_ids, "demo-*")
    bench.service.tokens.add("root", "admin")
    deployer = {"Authorization": f"Bearer {bench.service.tokens.add('ci', 'deployer')}"}
    output = {"topic": "A-out", "site": "edge-a", "client_id": "demo-local"}
    body = {**composition(job("A")), "outputs": [output]}
    assert bench.client.post("/compositions", json=body, headers=deployer).status_code == 202


def test_a_deployer_chooses_no_spark_master(bench: Bench) -> None:
    """Whoever may choose the master makes this machine run the driver of a stranger's cluster."""
    bench.service.tokens.add("root", "admin")
    deployer = {"Authorization": f"Bearer {bench.service.tokens.add('ci', 'deployer')}"}
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        stranger.setblocking(False)
        master = f"spark://127.0.0.1:{stranger.getsockname()[1]}"
        refused = bench.client.post("/analyses", json={"master": master}, headers=deployer)
        with pytest.raises(BlockingIOError):
            stranger.accept()
    assert refused.status_code == 422
    assert "an administrator adds one with SPECK_SPARK_MASTERS" in refused.json["detail"]
    assert bench.service.analyses.all() == []


def test_backup_is_the_whole_store(deployed: Bench) -> None:
    lines = gzip.decompress(deployed.client.get("/backup").data).splitlines()
    keys = {json.loads(line).get("key") for line in lines}
    assert {"site/edge-a", "head/demo", "inv/demo/A", "inv/demo/B"} <= keys


def test_a_token_is_shown_once(bench: Bench) -> None:
    answer = bench.client.post("/tokens", json={"name": "root", "role": "admin"})
    secret = answer.json["token"]
    assert answer.headers["Cache-Control"] == "no-store"
    answer_to_list = bench.client.get("/tokens", headers={"Authorization": f"Bearer {secret}"})
    assert secret not in answer_to_list.text and "sha256" not in answer_to_list.text


def test_a_site_that_was_not_polled_is_neither_up_nor_down(deployed: Bench) -> None:
    for name in ("edge-a", "edge-b"):
        deployed.service.polls.forget(name)
    deployed.service.sites.refresh(["edge-a"])
    text = deployed.client.get("/metrics").text
    assert 'speck_site_up{site="edge-a"} 1.0' in text
    assert 'speck_site_up{site="edge-b"}' not in text
    assert 'speck_sites{state="unknown"} 1.0' in text


def test_a_fresh_list_polls_what_it_shows_and_once_for_all_pages(deployed: Bench) -> None:
    engines = {name: deployed.world.engine(f"http://{name}:8081") for name in ("edge-a", "edge-b")}

    def polls(query: str) -> dict[str, int]:
        for engine in engines.values():
            engine.calls.clear()
        assert deployed.client.get(query).status_code == 200
        return {name: engine.count("view") for name, engine in engines.items()}

    assert polls("/jobs?fresh=true&limit=1&after=A") == {"edge-a": 0, "edge-b": 0}
    assert polls("/sites?fresh=true&limit=1&after=edge-a") == {"edge-a": 0, "edge-b": 0}
    assert polls("/jobs?fresh=true&site=cloud") == {"edge-a": 0, "edge-b": 0}
    assert polls("/jobs?fresh=true&site=edge-a") == {"edge-a": 1, "edge-b": 0}
    assert polls("/sites?fresh=true&site=edge-b") == {"edge-a": 0, "edge-b": 1}


def test_metrics_tell_of_sites_jobs_changes_and_requests(deployed: Bench) -> None:
    deployed.world.engine("http://edge-b:8081").unreachable = True
    deployed.client.get("/nothing")
    deployed.service.sites.refresh(["edge-b"])
    text = deployed.client.get("/metrics").text
    for line in (
        'speck_site_up{site="edge-a"} 1.0',
        'speck_site_up{site="edge-b"} 0.0',
        'speck_jobs{state="running"} 2.0',
        "speck_jobs_mended_total 0.0",
        'speck_changes{state="done"} 1.0',
        'speck_operations{kind="start",state="done"} 2.0',
        'speck_http_requests_total{method="POST",route="/sites",status="201"} 3.0',
        'speck_http_requests_total{method="any",route="none",status="404"} 1.0',
    ):
        assert line in text.splitlines()


def test_metrics_tell_of_work_what_is_known_now(deployed: Bench) -> None:
    sampler = deployed.service.sampler
    (job,) = [
        j for (_, name), j in deployed.service.records.incarnations.all().items() if name == "A"
    ]
    task = TaskMeasure("v", "x", 0, 1, True, True, 1.0, 2.0, 3.0, 40, 20, None, None)
    engine = deployed.world.engine("http://edge-a:8081")
    engine.measures[job.engine_job_id] = JobMeasure(job.engine_job_id, (task,), restarts=2)
    deployed.world.broker("tcp://edge-a:1883").measures = BrokerMeasures(messages_in=7, queued=3)
    deployed.world.broker("tcp://edge-b:1883").unreachable = True
    sampler.poll()
    wait_for(lambda: sampler.polls + sampler.gaps >= 6, "six polls")
    lines = deployed.client.get("/metrics").text.splitlines()
    for line in (
        'speck_job_records_in_total{composition="demo",job="A",site="edge-a"} 40.0',
        'speck_job_restarts_total{composition="demo",job="A",site="edge-a"} 2.0',
        'speck_broker_messages_in_total{site="edge-a"} 7.0',
        'speck_broker_queued{site="edge-a"} 3.0',
        "speck_collector_polls_total 5.0",
        "speck_collector_gaps_total 1.0",
    ):
        assert line in lines
    for unknown in (
        'speck_job_bytes_in_total{composition="demo",job="A"',
        'speck_job_busy_ratio{composition="demo",job="A"',
        'speck_broker_bytes_in_total{site="edge-a"}',
        'speck_broker_messages_in_total{site="edge-b"}',
    ):
        assert not any(line.startswith(unknown) for line in lines)


def test_metrics_and_rates_have_what_connectors_report(deployed: Bench) -> None:
    incarnations = deployed.service.records.incarnations.all()
    (job,) = [j for (_, name), j in incarnations.items() if name == "A"]
    engine = deployed.world.engine("http://edge-a:8081")
    link = LinkMeasure("cannot write", left_out=2, lost=1, dropped=3)
    engine.measures[job.engine_job_id] = JobMeasure(job.engine_job_id, (), link=link)
    sampler = deployed.service.sampler
    sampler.poll()
    wait_for(lambda: sampler.polls + sampler.gaps >= 6, "six polls")
    deployed.service.watch.poll()
    lines = deployed.client.get("/metrics").text.splitlines()
    for line in (
        'speck_records_left_out_total{job="A"} 2.0',
        'speck_records_lost_total{job="A"} 4.0',
        'speck_link_problem{job="A"} 1.0',
    ):
        assert line in lines
    (rates,) = [r for r in deployed.client.get("/rates").json["jobs"] if r["job_name"] == "A"]
    assert (rates["records_left_out"], rates["records_lost"], rates["sessions_lost"]) == (2, 4, 0)
    (shown,) = [j for j in deployed.client.get("/jobs").json["jobs"] if j["job_name"] == "A"]
    assert shown["error"] == "cannot write"


@pytest.mark.parametrize("path", ["/docs", "/openapi.json"])
def test_what_anybody_may_ask_for_is_rendered_once(
    path: str, bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = bench.client.get(path).data

    def fail(*_: object, **__: object) -> None:
        raise AssertionError("rendered again")

    for name in ("render_template", "document"):
        monkeypatch.setattr(f"speck.api.system.{name}", fail)
    assert bench.client.get(path).data == page


def test_the_docs_need_no_other_host(bench: Bench) -> None:
    page = bench.client.get("/docs")
    assert not re.search(r"(src|href)=\"?(https?:)?//", page.text)
    assert "<script" not in page.text
    assert "default-src 'none'" in page.headers["Content-Security-Policy"]
    for path in bench.client.get("/openapi.json").json["paths"]:
        assert path in page.text
    linked = set(re.findall(r'href="#([^"]+)"', page.text))
    assert linked <= set(re.findall(r'id="([^"]+)"', page.text))


def test_every_reference_in_the_openapi_document_leads_somewhere(bench: Bench) -> None:
    answer = bench.client.get("/openapi.json")
    references = set(re.findall(r'"\$ref":\s*"#/([^"]+)"', answer.text))
    assert len(references) > 20
    for reference in references:
        node: Any = answer.json
        for step in reference.split("/"):
            assert step in node, reference
            node = node[step]
        assert node, reference


def _context(bench: Bench) -> Context:
    context: Context = bench.client.application.extensions[EXTENSION]
    return context


def test_the_limit_of_jobs_is_configured(bench: Bench) -> None:
    bench.add_sites()
    client = bench.open(replace(bench.service.config, max_jobs=1))
    answer = client.post("/compositions?dry_run=true", json=composition(job("A"), job("B")))
    assert answer.status_code == 422
    assert answer.json is not None
    assert answer.json["errors"] == [{"path": "jobs", "message": "must be at most 1 jobs"}]
    assert client.post("/compositions?dry_run=true", json=composition(job("A"))).status_code == 200


@pytest.mark.parametrize("media", ["application/yaml", "text/yaml"])
def test_a_composition_is_read_as_the_document_that_can_be_applied_again(
    bench: Bench, media: str
) -> None:
    bench.add_sites()
    applied = composition(job("A"))
    applied["inputs"] = [{"site": "edge-a", "topic": "A-in"}]
    applied["outputs"] = [{"site": "edge-a", "topic": "A-out", "client_id": "speck-out-a"}]
    bench.client.post("/compositions?wait=30", json=applied)
    read = bench.client.get("/compositions/demo", headers={"Accept": media})
    assert read.content_type == f"{media}; charset=utf-8"
    assert read.headers["ETag"] == '"1"'
    again = bench.client.post(
        "/compositions?dry_run=true", data=read.data, headers={"Content-Type": media}
    )
    assert again.status_code == 200, again.text
    assert again.json["plan"]["summary"]["unchanged"] == 1
    assert again.json["plan"]["operations"] == []
    desired = bench.client.get("/compositions/demo").json["desired"]
    assert desired["inputs"] == applied["inputs"]
    assert [port["client_id"] for port in desired["outputs"]] == ["speck-out-a"]


def test_the_history_of_a_removed_composition_can_be_read(bench: Bench) -> None:
    bench.add_sites()
    bench.client.post("/compositions?wait=30", json=composition(job("A")))
    assert bench.client.delete("/compositions/demo?wait=30").status_code == 204
    assert bench.client.get("/compositions/demo").status_code == 404
    revisions = bench.client.get("/compositions/demo/revisions").json["revisions"]
    assert [each["revision"] for each in revisions] == [1]
    assert bench.client.get("/compositions/never/revisions").status_code == 404


def test_the_root_leads_to_the_documentation(bench: Bench) -> None:
    answer = bench.client.get("/")
    assert (answer.status_code, answer.headers["Location"]) == (302, "/docs")


def test_what_agents_and_monitoring_ask_is_not_in_the_log(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.add_sites()
    caplog.set_level(logging.INFO, "speck.access")
    caplog.clear()
    assert bench.client.get("/livez").status_code == 200
    assert bench.client.post("/sites/edge-a/heartbeat", json={}).status_code == 200
    assert bench.client.get("/sites/edge-a/commands?wait=0").status_code == 200
    assert [record.getMessage() for record in caplog.records if record.name == "speck.access"] == []
    assert bench.client.post("/sites/nowhere/heartbeat", json={}).status_code == 404
    assert bench.client.get("/sites").status_code == 200
    logged = [record.getMessage() for record in caplog.records if record.name == "speck.access"]
    assert [line.split(" ")[:3] for line in logged] == [
        ["POST", "/sites/nowhere/heartbeat", "404"],
        ["GET", "/sites", "200"],
    ]


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
