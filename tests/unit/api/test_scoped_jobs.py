"""Jobs of a token with scopes, beside those of others."""

from __future__ import annotations

from typing import Any

import pytest

from speck.model.scopes import Scopes
from tests.calibrating import put_calibration
from tests.unit.api.scoped_field import ALONE, KINDS, OWN_ALONE, Field, alpha, beta, limited_job


@pytest.mark.parametrize(
    ("body", "path", "says"),
    [
        (beta(limited_job("beta-1", "edge-a", "alpha/inner", "beta/out")), "jobs[0].source_topic",
         "topic 'alpha/inner' is outside the token's scope 'beta/# speck-calibration/#'"),
        (beta(limited_job("beta-1", "edge-a", "beta/in", "alpha/in")), "jobs[0].sink_topic",
         "topic 'alpha/in' is outside"),
        (beta(limited_job("beta-1", "edge-b", "beta/in", "beta/out")), "jobs[0].site",
         "site 'edge-b' is outside"),
        (beta(limited_job("beta-1", "nowhere", "beta/in", "beta/out")), "jobs[0].site",
         "site 'nowhere' is outside"),
        (beta(limited_job("beta-1", "edge-a", "beta/in", "beta/out", sink_site="cloud")),
         "jobs[0].sink_site", "site 'cloud' is outside"),
        (beta(limited_job("beta-1", "edge-a", "beta/in", "beta/out", sink_broker="tcp://edge-b:1883")),
         "jobs[0].sink_broker", "no site within the token's scopes has the broker"),
        (beta(limited_job("beta-1", "edge-a", "beta/in", "beta/out", sink_broker="tcp://other:1883")),
         "jobs[0].sink_broker", "no site within the token's scopes has the broker"),
        (beta(inputs=[{"site": "edge-a", "topic": "alpha/in"}]), "inputs[0].topic",
         "topic 'alpha/in' is outside"),
        (beta(outputs=[{"site": "edge-b", "topic": "beta/out"}]), "outputs[0].site",
         "site 'edge-b' is outside"),
        (beta(outputs=[{"site": "edge-a", "topic": "alpha/out", "client_id": "b"}]),
         "outputs[0].topic", "topic 'alpha/out' is outside"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("query", ["", "?dry_run=true"])
def test_jobs_are_not_connected_to_what_lies_outside(
    body: dict[str, Any], path: str, says: str, query: str, field: Field
) -> None:
    answer = field.ask("POST", f"/compositions{query}", "all", json=body)
    assert answer.status_code == 403, answer.text
    (problem,) = answer.json["errors"]
    assert problem["path"] == path and says in problem["message"]
    assert says in answer.json["detail"]


def test_a_job_alone_is_not_connected_to_what_lies_outside(field: Field) -> None:
    body = {**OWN_ALONE, "source_topic": "alpha/inner"}
    for method, path in (("POST", "/jobs"), ("PUT", "/jobs/beta-alone")):
        answer = field.ask(method, path, "all", json=body)
        assert answer.status_code == 403
        assert [problem["path"] for problem in answer.json["errors"]] == ["source_topic"]


def test_a_cycle_through_jobs_of_others_names_none_of_them(field: Field) -> None:
    closing = limited_job("beta-loop", "edge-b", "alpha/out", "alpha/in")
    at = {"source_site": "edge-b", "sink_site": "edge-b"}
    alone = limited_job("beta-alone", "edge-a", "alpha/out", "alpha/in", **at)
    for method, path, body in (
        ("POST", "/compositions", beta(closing)),
        ("POST", "/jobs", closing),
        ("PUT", "/jobs/beta-alone", alone),
    ):
        answer = field.ask(method, path, "compositions", json=body)
        assert answer.status_code == 422
        assert "-> a job of somebody else ->" in answer.json["detail"], f"{method} {path}"
        assert "alpha-" not in answer.text and "'alpha'" not in answer.text


def test_names_outside_are_not_to_be_had(field: Field) -> None:
    for name in ("alpha", "gamma"):
        answer = field.ask("POST", "/compositions", "all", json={**beta(), "name": name})
        assert answer.status_code == 403
        assert "its name is outside the token's scope 'beta*'" in answer.json["detail"]
    answer = field.ask("POST", "/jobs", "all", json={**OWN_ALONE, "job_name": "gamma"})
    assert answer.status_code == 403


@pytest.mark.parametrize("name", ["alpha-1", "alpha-alone"])
def test_the_name_of_anothers_job_is_taken_and_nothing_more_is_said(
    name: str, field: Field
) -> None:
    body = beta(limited_job(name, "edge-a", "beta/in", "beta/out"))
    for query in ("", "?dry_run=true", "?adopt=true"):
        answer = field.ask("POST", f"/compositions{query}", "topics", json=body)
        assert answer.status_code == 409
        assert answer.json["detail"] == (
            f"cannot use the job name {name!r}: it is taken; choose another name"
        )
    answer = field.ask("POST", "/jobs", "topics", json=body["jobs"][0])
    assert answer.status_code == 409 and "it is taken" in answer.text
    answer = field.ask("POST", "/compositions", "topics", json={**beta(), "name": "alpha"})
    assert answer.status_code == 409 and "it is taken" in answer.text


def test_the_client_id_of_anothers_reader_is_taken_and_nothing_more_is_said(
    field: Field,
) -> None:
    outputs = [{"site": "edge-a", "topic": "beta/out", "client_id": "alpha-reader"}]
    answer = field.ask("POST", "/compositions", "all", json=beta(outputs=outputs))
    assert answer.status_code == 409
    assert answer.json["detail"] == (
        "cannot use the client id 'alpha-reader': it is taken; choose another"
    )


def test_an_unknown_site_suggests_no_site_outside(field: Field) -> None:
    secret = field.bench.service.tokens.add(
        "guess", "deployer", scopes=Scopes(sites=("edge-a*", "edg-*"))
    )
    body = beta(limited_job("beta-1", "edg-b", "beta/in", "beta/out"))
    answer = field.send("POST", "/compositions", secret, json=body)
    assert answer.status_code == 422
    assert "edge-b" not in answer.text and "no registered site is named edg-b" in answer.text


def test_a_composition_that_an_administrator_extended_beyond_is_theirs(field: Field) -> None:
    extended = beta(
        limited_job("beta-1", "edge-a", "beta/in", "beta/out"),
        limited_job("beta-2", "edge-b", "beta/out", "alpha/from-beta"),
    )
    answer = field.send("POST", "/compositions?wait=30", field.admin, json=extended)
    assert answer.json["state"] == "done"
    assert field.ask("GET", "/compositions/beta", "all").status_code == 404
    assert field.ask("DELETE", "/compositions/beta", "all").status_code == 404
    assert field.ask("GET", "/compositions/beta", "compositions").status_code == 200
    answer = field.ask("POST", "/compositions", "all", json=beta())
    assert answer.status_code == 403 and "beyond" not in answer.text
    back = field.send(
        "POST", "/compositions/beta/rollback?wait=30", field.admin, json={"revision": 1}
    )
    assert back.json["state"] == "done", back.text
    assert field.ask("GET", "/compositions/beta", "all").status_code == 200
    beyond = field.ask("POST", "/compositions/beta/rollback", "all", json={"revision": 2})
    assert beyond.status_code == 403 and "jobs[1].site" in beyond.text


def test_a_limited_deployer_does_its_work(field: Field) -> None:
    moved = beta(limited_job("beta-1", "edge-a", "beta/in", "beta/more", args=["x"]))
    for body in (moved, beta()):
        answer = field.ask("POST", "/compositions?wait=30", "all", json=body)
        assert answer.json["state"] == "done"
        assert field.ask("GET", answer.headers["Location"], "all").json["by"] == "all-deployer"
    assert field.ask("PUT", "/jobs/beta-alone", "all", json=OWN_ALONE).status_code == 200
    assert field.ask("POST", "/jobs/beta-1/savepoints", "all").status_code == 201
    assert field.ask("DELETE", "/jobs/beta-alone", "all").status_code == 204
    assert field.ask("DELETE", "/compositions/beta?wait=30", "all").status_code == 204
    for kind in ("compositions", "topics", "sites", "all"):
        changes = field.ask("GET", "/changes", kind).json["changes"]
        assert changes[0]["cause"] == "remove", f"what is gone is still seen by {kind}"
    assert field.ask("GET", "/compositions/beta", "all").status_code == 404


def test_an_idempotency_key_belongs_to_its_token(field: Field) -> None:
    headers = {"Idempotency-Key": "deploy-1"}
    first = field.send("POST", "/compositions", field.admin, json=alpha(), headers=headers)
    assert first.status_code in (200, 202)
    answer = field.ask("POST", "/compositions", "all", json=beta(), headers=headers)
    assert answer.status_code in (200, 202), answer.text
    assert answer.json["composition"] == "beta"
    again = field.ask("POST", "/compositions", "all", json=beta(), headers=headers)
    assert again.json["change"] == answer.json["change"]


def test_calibration_names_no_jobs_of_others(field: Field) -> None:
    admin = {"Authorization": f"Bearer {field.admin}"}
    cloud = limited_job("alpha-cloud", "edge-a", "alpha/x", "alpha/y")
    assert field.bench.client.post("/jobs", json=cloud, headers=admin).status_code == 201
    service = field.bench.service
    service.records.write(put_calibration(service, "cloud", 1.0, 1.0))
    answer = field.ask("POST", "/sites/edge-a/calibration", "all")
    assert answer.status_code == 409
    assert "beta-1" in answer.text and "a job of others" in answer.text
    assert "alpha-cloud" not in answer.text


def test_what_still_runs_outside_keeps_its_composition_outside(field: Field) -> None:
    own = limited_job("beta-1", "edge-a", "beta/in", "beta/out")
    extended = beta(own, limited_job("beta-2", "edge-b", "beta/out", "beta/end"))
    done = field.send("POST", "/compositions?wait=30", field.admin, json=extended)
    assert done.json["state"] == "done"
    field.bench.world.engine("http://edge-b:8081").unreachable = True
    assert field.send("POST", "/compositions", field.admin, json=beta()).status_code == 202
    field.bench.wait_until_blocked()
    assert field.ask("GET", "/compositions/beta", "sites").status_code == 404
    assert field.ask("DELETE", "/compositions/beta", "sites").status_code == 404
    assert field.ask("GET", "/compositions/beta", "topics").status_code == 200


@pytest.mark.parametrize("kind", KINDS)
def test_a_job_that_never_ran_is_outside_by_its_description(kind: str, field: Field) -> None:
    idle = {**ALONE, "job_name": "alpha-idle", "state": "stopped"}
    assert field.send("POST", "/jobs", field.admin, json=idle).status_code == 201
    assert field.ask("GET", "/jobs/alpha-idle", kind).status_code == 404
