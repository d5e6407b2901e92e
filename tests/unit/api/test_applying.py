"""Applying compositions: conflicts, consent, revisions, idempotency."""

from __future__ import annotations

from speck.errors import EngineRefusedError
from tests.unit.api.bench import Bench, composition, job


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


def test_a_job_that_the_engine_refuses_leaves_nothing_behind(bench: Bench) -> None:
    bench.add_sites()
    engine = bench.world.engine("http://edge-a:8081")
    engine.refuse("submit", 1, EngineRefusedError("cannot start new: main fails"))
    refusal = bench.client.post("/jobs", json=job("new"))
    assert refusal.status_code == 502
    assert refusal.json["detail"] == "cannot start new: main fails (site edge-a)"
    assert bench.client.get("/jobs/new").status_code == 404
    assert bench.client.post("/jobs", json=job("new")).status_code == 201
