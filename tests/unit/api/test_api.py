"""How errors are answered, and what is asked of the application itself."""

from __future__ import annotations

import gzip
import json
import logging
import re
from dataclasses import replace
from typing import Any

import pytest

from speck.api.problems import status_of
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
from tests.unit.api.bench import Bench, composition, job


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


def test_the_limit_of_jobs_is_configured(bench: Bench) -> None:
    bench.add_sites()
    client = bench.open(replace(bench.service.config, max_jobs=1))
    answer = client.post("/compositions?dry_run=true", json=composition(job("A"), job("B")))
    assert answer.status_code == 422
    assert answer.json is not None
    assert answer.json["errors"] == [{"path": "jobs", "message": "must be at most 1 jobs"}]
    assert client.post("/compositions?dry_run=true", json=composition(job("A"))).status_code == 200


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
