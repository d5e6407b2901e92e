"""What lies outside a token's scopes, on every route."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from speck.api.access import ACCESS, About
from speck.model.shown import render
from speck.service.tokens import Role
from tests.analyses import as_result
from tests.memory_fog import jar_bytes
from tests.unit.api.scoped_field import (
    ALONE,
    JAR,
    KINDS,
    OWN_ALONE,
    SECRET,
    SHA256,
    Field,
    alpha,
    beta,
    limited_job,
)

BODIES: dict[tuple[str, str], tuple[Any, Any]] = {
    ("POST", "/jobs"): (ALONE, OWN_ALONE),
    ("PUT", "/jobs/<job_name>"): (ALONE, OWN_ALONE),
    ("POST", "/compositions"): (alpha(), beta()),
    ("POST", "/compositions/<name>/rollback"): ({"revision": 1}, {"revision": 1}),
    ("PUT", "/compositions/<name>/autopilot"): ({"on": True}, {"on": False}),
    ("POST", "/analyses"): ({"composition": "alpha"}, {"composition": "beta", "window_s": -1}),
    ("POST", "/placements"): ({"composition": "alpha"}, {"composition": "beta"}),
    ("POST", "/placements/<placement_id>/apply"): (None, None),
    ("POST", "/links/records"): (
        {"site": "edge-b", "topic": "alpha/in", "records": ["x"]},
        {"site": "edge-a", "topic": "beta/in", "records": ["x"]},
    ),
    ("POST", "/advice"): (
        {"composition": "alpha", "analysis": "an-alpha"},
        {"composition": "beta", "analysis": "an-beta"},
    ),
}
"""What bodies of A and of B are for each route that judges its body."""

QUERIES = {
    "/metrics/export": "?composition=beta",
    "/links/tap": "?site=edge-a&topic=beta/in&seconds=0.1",
}
"""What a query of B has to name."""

_REFUSED = (403, 404, 409)


def _about(rule: tuple[str, str]) -> tuple[About, ...]:
    return ACCESS[rule].about


def test_each_route_that_judges_a_body_has_a_case() -> None:
    judged = {rule for rule in ACCESS if About.JUDGED in _about(rule) and rule[0] != "GET"}
    assert judged == set(BODIES)


def test_each_route_says_what_it_is_about() -> None:
    by_name = {About.SITE, About.JOB, About.COMPOSITION, About.CHANGE, About.ANALYSIS}
    by_name |= {About.PLACEMENT}
    for (method, rule), access in ACCESS.items():
        assert access.about, rule
        if "<" in rule and access.role in (Role.VIEWER, Role.DEPLOYER) and "sha256" not in rule:
            assert by_name & set(access.about), f"{method} {rule}: the path names something"
        if access.role is None:
            assert access.about == (About.NOTHING,)


@pytest.mark.parametrize("kind", KINDS)
def test_what_belongs_to_others_is_refused_on_every_route(kind: str, field: Field) -> None:
    limited_sites = KINDS[kind].sites is not None
    before = _snapshot(field)
    for (method, rule), access in sorted(ACCESS.items()):
        named = set(access.about) - {About.JUDGED, About.NOTHING}
        if access.role is None or (method == "GET" and About.JUDGED in access.about):
            continue
        if access.about == (About.NOTHING,) or (named == {About.SITE} and not limited_sites):
            continue
        body = BODIES.get((method, rule), (None, None))[0]
        answer = field.ask(method, field.path(rule, "alpha"), kind, json=body)
        assert answer.status_code in _REFUSED, f"{method} {rule}: {answer.status_code}"
        assert SECRET not in answer.text
        if named & {About.INSTALLATION}:
            assert answer.status_code == 403, f"{method} {rule}"
        elif named:
            assert answer.status_code == 404, f"{method} {rule}: {answer.text}"
    assert _snapshot(field) == before


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_outside_is_answered_as_what_is_not_there(kind: str, field: Field) -> None:
    for (method, rule), access in sorted(ACCESS.items()):
        named = set(access.about) - {About.JUDGED, About.NOTHING, About.INSTALLATION}
        if not named or (named == {About.SITE} and KINDS[kind].sites is None):
            continue
        there = field.path(rule, "alpha")
        answer = field.ask(method, there, kind)
        missing, name = _without_a_thing(rule, field)
        other = field.ask(method, missing, kind)
        assert answer.status_code == other.status_code == 404, f"{method} {rule}"
        named_there = _name_in(rule, there)
        said = answer.json["detail"].replace(repr(named_there), "X")
        assert said == other.json["detail"].replace(repr(name), "X"), f"{method} {rule}"


def _without_a_thing(rule: str, field: Field) -> tuple[str, str]:
    names = dict.fromkeys(field.names("alpha"), "ze-nothing")
    path = rule.replace("<", "{").replace(">", "}").format(**names)
    return path, "ze-nothing"


def _name_in(rule: str, path: str) -> str:
    parts = zip(rule.split("/"), path.split("/"), strict=True)
    return next(value for part, value in parts if part.startswith("<"))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("role", ["deployer", "viewer"])
def test_ones_own_things_are_seen(kind: str, role: str, field: Field) -> None:
    for (method, rule), access in sorted(ACCESS.items()):
        if method != "GET" or access.role not in (Role.VIEWER, None):
            continue
        if About.INSTALLATION in access.about:
            continue
        if About.PLACEMENT in access.about and KINDS[kind].sites is not None:
            continue  # it names every site
        if rule == "/" or (rule == "/links/tap" and kind == "compositions"):
            continue  # leads elsewhere; a topic says nothing of a composition
        path = field.path(rule, "beta") + QUERIES.get(rule, "")
        answer = field.ask(method, path, kind, role)
        assert answer.status_code == 200, f"{method} {path}: {answer.text}"


LISTS = sorted(r for m, r in ACCESS if m == "GET" and About.JUDGED in ACCESS[m, r].about)


@pytest.mark.parametrize("kind", KINDS)
def test_lists_hold_only_what_lies_inside(kind: str, field: Field) -> None:
    for rule in LISTS:
        if rule == "/links/tap" and kind == "compositions":
            continue
        path = rule + QUERIES.get(rule, "")
        answer = field.ask("GET", path, kind)
        assert answer.status_code == 200
        assert b"alpha" not in answer.data, rule
        if KINDS[kind].sites is not None:
            assert b"edge-b" not in answer.data and b"cloud" not in answer.data, rule
    assert [c["name"] for c in field.ask("GET", "/compositions", kind).json["compositions"]] == [
        "beta"
    ]
    jobs = [j["job_name"] for j in field.ask("GET", "/jobs", kind).json["jobs"]]
    assert jobs == ["beta-1", "beta-alone"]
    changes = field.ask("GET", "/changes", kind).json["changes"]
    assert {change["composition"] or change["job_name"] for change in changes} == {
        "beta",
        "beta-alone",
    }
    events = field.ask("GET", "/events", kind).json["events"]
    assert {"change", "operation", "site"} >= {event["kind"] for event in events}
    assert any("beta" in event["message"] for event in events)


def test_the_stream_of_events_holds_only_what_lies_inside(field: Field) -> None:
    accept = {"Accept": "text/event-stream"}
    answer = field.ask("GET", "/events", "all", headers=accept)
    text = ""
    for piece in answer.response:
        text += piece.decode() if isinstance(piece, bytes) else piece
        if "beta-alone" in text and "done" in text:
            break
    answer.close()
    assert "beta" in text and "alpha" not in text and "edge-b" not in text


@pytest.mark.parametrize("kind", KINDS)
def test_of_an_artifact_only_own_uses_are_named(kind: str, field: Field) -> None:
    jar = jar_bytes(b"common")
    sha256 = hashlib.sha256(jar).hexdigest()
    path = f"/artifacts/{sha256}"
    assert field.ask("PUT", path, kind, data=jar).json["uses"] == []
    used = {"job_path": f"artifact:{sha256}"}
    theirs = limited_job("alpha-3", "edge-b", "alpha/3", "alpha/4", **used)
    assert field.send("POST", "/jobs", field.admin, json=theirs).status_code == 201
    own = limited_job("beta-3", "edge-a", "beta/3", "beta/4", **used)
    assert field.ask("POST", "/jobs", kind, json=own).status_code == 201
    again = field.ask("PUT", path, kind, data=jar)
    (listed,) = field.ask("GET", "/artifacts", kind).json["artifacts"]
    for uses in (again.json["uses"], listed["uses"]):
        assert {use["job_name"] for use in uses} == {"beta-3"}
    refused = field.ask("DELETE", path, kind)
    assert refused.status_code == 409
    assert "a job of others, job 'beta-3' uses it" in refused.json["detail"]
    assert "alpha" not in again.text + refused.text


@pytest.mark.parametrize("kind", ["sites", "all"])
def test_an_analysis_shows_neither_sites_nor_links_outside(kind: str, field: Field) -> None:
    own, other = ("edge-a", "beta/in"), ("edge-b", "alpha/in")
    result = {
        "window": {"seconds": 600.0},
        "samples": dict.fromkeys(("rows", "duplicates", "resets", "gaps", "nan", "contended"), 0),
        "jobs": [],
        "links": [{"broker_site": own[0], "topic": own[1]}],
        "sites": [{"name": name} for name in ("edge-a", "edge-b", "cloud")],
        "ranking": [{"job_name": "beta-1", "edge": edge} for edge in ("edge-a", "edge-b", None)],
        "bottlenecks": [
            {"kind": "site", "name": "edge-b", "value": 1.0, "why": "edge-b is full"},
            {"kind": "job", "name": "beta-1", "value": 0.9, "why": "it is busy"},
        ],
        "forecast": [
            {"site": site, "topic": topic, "at": "2026-01-31T12:20:00.000Z", "method": "level"}
            | dict.fromkeys(("rate", "low", "high"), 1.0)
            for site, topic in (own, other)
        ],
    }
    file = field.bench.service.analyses._result("an-beta")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(render(as_result(result))))
    whole = field.send("GET", "/analyses/an-beta", field.admin)
    assert len(whole.json["sites"]) == 3 and "alpha/in" in whole.text
    shown = field.ask("GET", "/analyses/an-beta", kind)
    print(shown.text)
    assert [site["name"] for site in shown.json["sites"]] == ["edge-a"]
    assert [job["edge"] for job in shown.json["ranking"]] == ["edge-a", None]
    assert [each["kind"] for each in shown.json["bottlenecks"]] == ["job"]
    assert [link["topic"] for link in shown.json["forecast"]] == ["beta/in"]
    for words in ("edge-b", "cloud", "alpha"):
        assert words not in shown.text


def test_the_log_of_an_autopilot_is_for_those_who_may_see_all_sites(field: Field) -> None:
    path = "/compositions/beta/autopilot"
    switched = field.send("PUT", path, field.admin, json={"on": True})
    assert switched.json["log"] and switched.json["on"]
    for kind, count in (("topics", 1), ("compositions", 1), ("sites", 0), ("all", 0)):
        assert len(field.ask("GET", path, kind, "viewer").json["log"]) == count, kind
    assert field.ask("PUT", path, "sites", json={"on": False}).json["log"] == []


@pytest.mark.parametrize(
    ("kind", "site", "topic", "status"),
    [
        ("all", "edge-a", "beta/in", 200),
        ("all", "edge-a", "alpha/in", 403),
        ("all", "edge-b", "beta/in", 403),
        ("all", "nowhere", "beta/in", 403),
        ("topics", "edge-b", "beta/in", 200),
        ("sites", "edge-a", "alpha/in", 200),
        ("compositions", "edge-a", "beta/in", 403),  # a topic says nothing of a composition
    ],
)
def test_links_are_read_and_written_within_topics_and_sites(
    kind: str, site: str, topic: str, status: int, field: Field
) -> None:
    query = f"?site={site}&topic={topic}&seconds=0.1"
    assert field.ask("GET", f"/links/tap{query}", kind, "viewer").status_code == status
    body = {"site": site, "topic": topic, "records": ["x"]}
    assert field.ask("POST", "/links/records", kind, json=body).status_code == status
    assert field.ask("POST", "/links/records", kind, "viewer", json=body).status_code == 403


def test_a_calibration_names_no_site_outside(field: Field) -> None:
    path = "/sites/edge-a/calibration"
    assert "cloud" in field.ask("POST", path, "topics").json["detail"]  # the site of reference
    refused = field.ask("POST", path, "sites")
    assert refused.status_code == 409
    assert "relative to those of another site" in refused.json["detail"]
    assert "cloud" not in refused.text


def test_who_else_has_sent_an_artifact_is_not_said(field: Field) -> None:
    path = f"/artifacts/{SHA256}"
    field.send("DELETE", path, field.admin)
    assert field.send("PUT", path, field.admin, data=JAR).json["by"] == "root"
    assert field.ask("PUT", path, "all", data=JAR).json["by"] is None


def test_a_stream_ends_with_its_token(field: Field) -> None:
    answer = field.ask("GET", "/events", "all", headers={"Accept": "text/event-stream"})
    pieces = iter(answer.response)
    next(pieces)
    field.bench.service.tokens.remove("all-deployer")
    assert field.bench.service.tokens.is_valid("all-viewer")
    list(pieces)  # it has an end
    answer.close()


def test_viewers_are_not_shown_arguments(field: Field) -> None:
    viewer = field.bench.service.tokens.add("dashboard", "viewer")
    for path in ("/jobs", "/jobs/alpha-1", "/compositions/alpha", "/placements/pl-alpha"):
        shown = field.send("GET", path, viewer)
        assert shown.status_code == 200
        assert SECRET not in shown.text and "(hidden)" in shown.text, path
        assert SECRET in field.send("GET", path, field.admin).text, path


def test_a_route_that_forgets_to_judge_is_an_error_and_no_leak(
    field: Field, monkeypatch: pytest.MonkeyPatch
) -> None:
    from speck.api import rates

    class Everything:
        has_job = staticmethod(lambda _: True)

    monkeypatch.setattr(rates, "reach", Everything)
    answer = field.ask("GET", "/rates", "all")
    assert answer.status_code == 500 and "internal error" in answer.json["detail"]
    assert field.send("GET", "/rates", field.admin).status_code == 200


def _snapshot(field: Field) -> str:
    records = field.bench.service.records
    kept = ("rev/alpha", "inv/alpha", "own/", "ses/alpha", "head/", "pilot")
    return json.dumps(
        {key: value for key, value in records.store.scan("") if key.startswith(kept)},
        sort_keys=True,
    )


def test_the_autopilot_and_policies_need_all_sites(field: Field) -> None:
    for method, path, body in (
        ("PUT", "/compositions/beta/autopilot", {"on": True}),
        ("POST", "/placements", {"composition": "beta"}),
        ("POST", "/advice", {"composition": "beta", "analysis": "an-beta"}),
    ):
        for kind in ("sites", "all"):
            answer = field.ask(method, path, kind, json=body)
            assert answer.status_code == 403 and "moved to any site" in answer.text
        assert field.ask(method, path, "topics", json=body).status_code in (200, 409)
