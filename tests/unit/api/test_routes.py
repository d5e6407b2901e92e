"""Every route with each of its answers: status, media type and exact shape."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import pytest
from flask import Flask

from speck.api.access import ACCESS
from speck.api.app import ROUTES
from speck.api.routes import Routes
from tests.unit.api.bench import Bench, job, open_bench
from tests.unit.api.route_cases import CASES, PROBLEM, Case
from tests.unit.api.route_states import DEMO


def _prepare(bench: Bench) -> Bench:
    bench.add_sites()
    deployed = bench.client.post("/compositions?wait=30", json=DEMO)
    assert deployed.json["state"] == "done"
    assert bench.client.post("/jobs", json=job("alone")).status_code == 201
    return bench


class TestOneApplication:
    """What changes nothing is asked of one application."""

    @pytest.fixture(scope="class")
    @classmethod
    def prepared(cls, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
        with open_bench(tmp_path_factory.mktemp("routes")) as bench:
            yield _prepare(bench)

    @pytest.mark.parametrize("case", [each for each in CASES if each.changes_nothing], ids=str)
    def test_each_answer_has_its_status_and_shape(self, case: Case, prepared: Bench) -> None:
        _check(case, prepared)


@pytest.mark.parametrize("case", [each for each in CASES if not each.changes_nothing], ids=str)
def test_each_answer_has_its_status_and_shape(case: Case, bench: Bench) -> None:
    _check(case, _prepare(bench))


def _check(case: Case, prepared: Bench) -> None:
    done = prepared.client.get("/changes?composition=demo").json["changes"][0]["id"]
    case.before(prepared)
    under_way = [running.change.id for running in prepared.service.changes.all_under_way()]
    opened = prepared.service.agents.commands.open("edge-b", (), 0.0)
    command = next((each.id for each in opened), "none")
    placements = [each.id for each in prepared.service.placements.all()]
    path = case.path.format(
        change=done,
        running=(under_way or ["none"])[0],
        command=command,
        placement=(placements or ["none"])[0],
    )

    answer = prepared.client.open(
        path, method=case.method, json=case.json, data=case.data, headers=case.headers
    )

    assert answer.status_code == case.status, answer.text
    assert answer.headers["X-Request-Id"]
    if case.status >= 400:
        _assert_problem(answer, case.says)
    elif case.status == 204:
        assert answer.data == b"" and "Content-Type" not in answer.headers
    else:
        assert answer.mimetype == case.media
        if case.shape is not None:
            assert case.shape().validate(answer.json) == {}, answer.json
    if case.status == 202:
        noun = "analyses" if case.path in ("/analyses", "/advice") else "changes"
        about = answer.json["analysis"] if case.path == "/advice" else answer.json
        assert about.get("location", "") is None or answer.headers["Location"] == (
            f"/{noun}/{about.get('change') or about['id']}"
        )


def _assert_problem(answer: Any, says: str) -> None:
    assert answer.mimetype == "application/problem+json"
    assert PROBLEM().validate(answer.json) == {}, answer.json
    assert answer.json["status"] == answer.status_code
    assert answer.json["request_id"] == answer.headers["X-Request-Id"]
    assert answer.json["detail"].startswith("cannot ")
    assert says in answer.json["detail"] + str(answer.json["errors"])


def test_no_answer_of_any_route_is_left_out(bench: Bench) -> None:
    with bench.client.application.test_request_context():
        documented = {
            (method.upper(), path.replace("{", "<").replace("}", ">"), int(status))
            for path, operations in bench.client.get("/openapi.json").json["paths"].items()
            for method, operation in operations.items()
            if method != "parameters"
            for status in operation["responses"]
            if status != "default"
        }
    tried = set(_tried(bench.client.application))
    tried |= {(method, rule, 400) for method, rule in ACCESS}  # by the test below
    assert documented - tried == set()
    assert {(method, rule) for method, rule, _ in documented} == set(ACCESS)


def test_no_route_takes_a_query_parameter_that_is_not_declared(bench: Bench) -> None:
    for method, rule in ACCESS:
        answer = bench.client.open(re.sub("<[^>]+>", "x", rule) + "?no-such=1", method=method)
        assert answer.status_code == 400, (method, rule)
        _assert_problem(answer, "?no-such: unknown query parameter")


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("/events?limit=1&limit=2", "?limit: given more than once"),
        ("/events?limit=1_0", "?limit: must be a whole number from 1 to 10000"),
        ("/events?after=-1", "?after: must be a whole number from 0 to"),
        ("/metrics/export?since=2026-03-01T12:00:00", "?since: must be a time with its zone"),
        ("/metrics/export?since=today", "?since: must be a time with its zone"),
    ],
)
def test_a_query_parameter_is_read_strictly(bench: Bench, path: str, says: str) -> None:
    answer = bench.client.get(path)
    assert answer.status_code == 400
    _assert_problem(answer, says)


@pytest.mark.parametrize("wait", ["nan", "inf", "-1", "1e4", "soon"])
def test_a_wait_is_a_number_of_seconds(bench: Bench, wait: str) -> None:
    answer = bench.client.post(f"/jobs?wait={wait}", json=job("new"))
    assert answer.status_code == 400
    _assert_problem(answer, "?wait: must be seconds from 0 to 3600")


def test_all_faults_of_a_query_are_listed(bench: Bench) -> None:
    answer = bench.client.get("/jobs?state=broken&limit=0&stat=x")
    assert {fault["path"] for fault in answer.json["errors"]} == {"?state", "?limit", "?stat"}
    assert "did you mean state?" in str(answer.json["errors"])


def _tried(app: Flask) -> Iterator[tuple[str, str, int]]:
    adapter = app.url_map.bind("localhost")
    for case in CASES:
        if case.status not in (404, 405):
            path = case.path.partition("?")[0].format_map(defaultdict(lambda: "x"))
            rule, _ = adapter.match(path, case.method, return_rule=True)
            yield case.method, rule.rule, case.status


def test_every_noun_is_declared_the_same_way() -> None:
    assert all(isinstance(module.routes, Routes) for module in ROUTES)
