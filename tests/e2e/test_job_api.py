"""The Job Management API alone, with curl, as in the paper."""

from __future__ import annotations

import json
import subprocess
from typing import Any
from urllib.parse import urlsplit

from tests.e2e.harness import Speck, await_each_once, job
from tests.waiting import wait_for


def curl(speck: Speck, method: str, path: str, body: object = None) -> tuple[int, Any]:
    """Status and JSON body."""
    command = ["curl", "--silent", "--show-error", "--max-time", "90", "--request", method]
    command += ["--write-out", "\n%{http_code}", speck.url + path]
    if body is not None:
        command += ["--header", "Content-Type: application/json", "--data", json.dumps(body)]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    text, _, status = out.rpartition("\n")
    return int(status), json.loads(text) if text.strip() else None


def test_one_job_from_post_to_delete(speck: Speck) -> None:
    body = job("alone", "edge-a", "alone/in", "alone/out")
    speck.jobs_alone["alone"] = None

    status, posted = curl(speck, "POST", "/jobs", body)
    assert (status, posted["state"], posted["composition"]) == (201, "running", None)
    first = posted["engine_job_id"]
    assert speck.engine("edge-a", f"/jobs/{first}")["state"] == "RUNNING"
    assert curl(speck, "POST", "/jobs", body)[0] == 200
    assert curl(speck, "POST", "/jobs", {**body, "args": ["--other"]})[0] == 409
    assert curl(speck, "GET", "/jobs/alone")[1]["engine_job_id"] == first
    assert [it["job_name"] for it in curl(speck, "GET", "/jobs")[1]["jobs"]] == ["alone"]

    status, updated = curl(speck, "PUT", "/jobs/alone", {**body, "args": ["--note", "2"]})
    assert (status, updated["state"], updated["site"]) == (200, "running", "edge-a")
    assert updated["engine_job_id"] != first

    moved = {**body, "site": "edge-b", "source_site": "edge-a", "sink_site": "edge-a"}
    status, there = curl(speck, "PUT", "/jobs/alone", moved)
    assert (status, there["state"], there["site"]) == (200, "running", "edge-b")
    assert speck.engine("edge-b", f"/jobs/{there['engine_job_id']}")["state"] == "RUNNING"
    assert speck.running() == ["edge-b: alone"]

    def savepoint() -> Any:
        answer = curl(speck, "POST", "/jobs/alone/savepoints")
        return answer if answer[0] == 201 else None

    _, savepoint_body = wait_for(savepoint, "a savepoint")
    assert savepoint_body["state"] == "done"
    assert urlsplit(savepoint_body["location"]).path.startswith(
        str(speck.fog.state_folder("edge-b"))
    )
    assert speck.job("alone")["engine_job_id"] == there["engine_job_id"]

    assert curl(speck, "DELETE", "/jobs/alone") == (204, None)
    assert speck.running() == []
    for method, path in (("GET", ""), ("DELETE", ""), ("POST", "/savepoints"), ("PUT", "")):
        status, problem = curl(speck, method, f"/jobs/alone{path}", body)
        assert (status, problem["status"]) == (404, 404), (method, path)


def test_a_job_that_cannot_start_leaves_nothing(speck: Speck) -> None:
    body = job("broken", "edge-a", "x/in", "x/out", entry_class="io.speck.jobs.LocalStats", args=[])
    speck.jobs_alone["broken"] = None
    status, problem = curl(speck, "POST", "/jobs", body)
    assert status == 502
    assert "edge-a" in problem["detail"] and "--streams" in problem["detail"]
    assert curl(speck, "GET", "/jobs/broken")[0] == 404


def test_messages_of_a_job_alone_survive_its_move(speck: Speck) -> None:
    """Two jobs posted alone are joined by their topics as those of a composition are."""
    for body in (
        job("last", "cloud", "solo/mid", "solo/out"),
        job("first", "edge-a", "solo/in", "solo/mid", sink_site="cloud"),
    ):
        speck.jobs_alone[body["job_name"]] = None
        assert curl(speck, "POST", "/jobs", body)[0] == 201
    tail = job("tail", "cloud", "solo/out", "solo/end")
    speck.apply(
        {
            "name": "tail",
            "jobs": [tail],
            "outputs": [{"site": "cloud", "topic": "solo/end", "client_id": "e2e-solo"}],
        }
    )
    source = speck.publisher("edge-a", "solo/in")
    out = speck.reader("cloud", "solo/end", "e2e-solo")
    source.count(range(1, 101))
    moved = job("first", "edge-b", "solo/in", "solo/mid", source_site="edge-a", sink_site="cloud")
    assert curl(speck, "PUT", "/jobs/first", moved)[0] == 200
    source.count(range(101, 201))
    await_each_once(200, out)
