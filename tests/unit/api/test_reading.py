"""Reading writes nothing; lists, pages, events and what is shown of sites."""

from __future__ import annotations

import re

import pytest

from binders.memory.engine import MemoryEngine
from speck.api.access import ACCESS
from speck.deploy.operations import Patience
from speck.model.measurement import BrokerMeasures, JobMeasure, LinkMeasure, TaskMeasure
from speck.store.audit_seal import StoredSeal
from tests.memory_fog import jar_bytes
from tests.unit.api.bench import Bench, composition, job
from tests.waiting import wait_for


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
