"""What a token that is limited in its scopes sees and changes: alpha belongs to somebody else."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pytest

from speck.api.access import ACCESS, About
from speck.model.analysis import AnalysisHead, AnalysisState
from speck.model.scopes import Scopes
from speck.model.shown import render
from speck.service.tokens import Role
from speck.spec.schema import composition_from_data
from tests.analyses import as_result, predict
from tests.calibrating import put_calibration
from tests.memory_fog import jar_bytes
from tests.unit.api.conftest import Bench, composition, job

BETA = Scopes(compositions=("beta*",), topics=("beta/#", "speck-calibration/#"), sites=("edge-a",))
KINDS = {
    "compositions": Scopes(compositions=BETA.compositions),
    "topics": Scopes(topics=BETA.topics),
    "sites": Scopes(sites=BETA.sites),
    "all": BETA,
}
SECRET = "alpha-key"
JAR = jar_bytes(b"alpha")
SHA256 = hashlib.sha256(JAR).hexdigest()


def alpha(**more: Any) -> dict[str, Any]:
    """A's composition: at edge-b, on topics below alpha/, with a reader outside."""
    first = _job("alpha-1", "edge-b", "alpha/in", "alpha/inner", args=["--key", SECRET])
    last = _job("alpha-2", "edge-b", "alpha/inner", "alpha/out")
    outputs = [{"site": "edge-b", "topic": "alpha/out", "client_id": "alpha-reader"}]
    return {**composition(first, last, name="alpha"), "outputs": outputs, **more}


def beta(*jobs: dict[str, Any], **more: Any) -> dict[str, Any]:
    """B's composition: at edge-a, on topics below beta/."""
    own = jobs or (_job("beta-1", "edge-a", "beta/in", "beta/out"),)
    return {**composition(*own, name="beta"), **more}


def _job(name: str, site: str, source: str, sink: str, **more: Any) -> dict[str, Any]:
    return job(name, site=site, source_topic=source, sink_topic=sink, **more)


ALONE = _job("alpha-alone", "edge-b", "alpha/alone", "alpha/alone-out")
OWN_ALONE = _job("beta-alone", "edge-a", "beta/alone", "beta/alone-out")


class Field:
    """The application with things of A and of B, and tokens for B."""

    def __init__(self, bench: Bench):
        self.bench = bench
        bench.add_sites()
        assert bench.client.put(f"/artifacts/{SHA256}", data=JAR).status_code == 201
        for body in (alpha(), beta()):
            answer = bench.client.post("/compositions?wait=30", json=body)
            assert answer.json["state"] == "done", answer.text
        for body in (ALONE, OWN_ALONE):
            assert bench.client.post("/jobs", json=body).status_code == 201
        tokens = bench.service.tokens
        self.admin = tokens.add("root", "admin")
        self.secrets = {
            (kind, role): tokens.add(f"{kind}-{role}", role, scopes=scopes)
            for kind, scopes in KINDS.items()
            for role in ("deployer", "viewer")
        }
        self._store_results()

    def _store_results(self) -> None:
        """An analysis and a placement of each composition."""
        records = self.bench.service.records
        for name, body in (("alpha", alpha()), ("beta", beta())):
            analysis = AnalysisHead(
                id=f"an-{name}",
                state=AnalysisState.DONE,
                composition=name,
                started="2026-01-01T00:00:00Z",
                ended=None,
                error=None,
                master="local[*]",
            )
            placement = predict(composition_from_data(body), id=f"pl-{name}", yaml=SECRET)
            records.write(records.analyses.put(analysis), records.placements.add(placement))

    def ask(self, method: str, path: str, kind: str, role: str = "deployer", **more: Any) -> Any:
        """The answer to a token of B that is limited in this way."""
        return self.send(method, path, self.secrets[kind, role], **more)

    def send(self, method: str, path: str, secret: str, **more: Any) -> Any:
        headers = {"Authorization": f"Bearer {secret}", **more.pop("headers", {})}
        return self.bench.client.open(path, method=method, headers=headers, **more)

    def names(self, whose: str) -> dict[str, str]:
        """What the path of a route may name, of A (alpha) or B (beta)."""
        (change, *_) = self.bench.service.changes.all(composition=whose)
        names = {"name": whose, "job_name": f"{whose}-alone", "change_id": change.id}
        names |= {"analysis_id": f"an-{whose}", "placement_id": f"pl-{whose}", "sha256": SHA256}
        return names | {"command_id": "c", "transfer_id": "t"}

    def path(self, rule: str, whose: str) -> str:
        names = self.names(whose)
        if rule.startswith("/sites"):
            names["name"] = "edge-b" if whose == "alpha" else "edge-a"
        return rule.replace("<", "{").replace(">", "}").format(**names)


@pytest.fixture
def field(bench: Bench) -> Field:
    return Field(bench)


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
    theirs = _job("alpha-3", "edge-b", "alpha/3", "alpha/4", **used)
    assert field.send("POST", "/jobs", field.admin, json=theirs).status_code == 201
    own = _job("beta-3", "edge-a", "beta/3", "beta/4", **used)
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


@pytest.mark.parametrize(
    ("body", "path", "says"),
    [
        (beta(_job("beta-1", "edge-a", "alpha/inner", "beta/out")), "jobs[0].source_topic",
         "topic 'alpha/inner' is outside the token's scope 'beta/# speck-calibration/#'"),
        (beta(_job("beta-1", "edge-a", "beta/in", "alpha/in")), "jobs[0].sink_topic",
         "topic 'alpha/in' is outside"),
        (beta(_job("beta-1", "edge-b", "beta/in", "beta/out")), "jobs[0].site",
         "site 'edge-b' is outside"),
        (beta(_job("beta-1", "nowhere", "beta/in", "beta/out")), "jobs[0].site",
         "site 'nowhere' is outside"),
        (beta(_job("beta-1", "edge-a", "beta/in", "beta/out", sink_site="cloud")),
         "jobs[0].sink_site", "site 'cloud' is outside"),
        (beta(_job("beta-1", "edge-a", "beta/in", "beta/out", sink_broker="tcp://edge-b:1883")),
         "jobs[0].sink_broker", "no site within the token's scopes has the broker"),
        (beta(_job("beta-1", "edge-a", "beta/in", "beta/out", sink_broker="tcp://other:1883")),
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
    closing = _job("beta-loop", "edge-b", "alpha/out", "alpha/in")
    at = {"source_site": "edge-b", "sink_site": "edge-b"}
    alone = _job("beta-alone", "edge-a", "alpha/out", "alpha/in", **at)
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
    body = beta(_job(name, "edge-a", "beta/in", "beta/out"))
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
    body = beta(_job("beta-1", "edg-b", "beta/in", "beta/out"))
    answer = field.send("POST", "/compositions", secret, json=body)
    assert answer.status_code == 422
    assert "edge-b" not in answer.text and "no registered site is named edg-b" in answer.text


def test_a_composition_that_an_administrator_extended_beyond_is_theirs(field: Field) -> None:
    extended = beta(
        _job("beta-1", "edge-a", "beta/in", "beta/out"),
        _job("beta-2", "edge-b", "beta/out", "alpha/from-beta"),
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
    moved = beta(_job("beta-1", "edge-a", "beta/in", "beta/more", args=["x"]))
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


def test_calibration_names_no_jobs_of_others(field: Field) -> None:
    admin = {"Authorization": f"Bearer {field.admin}"}
    cloud = _job("alpha-cloud", "edge-a", "alpha/x", "alpha/y")
    assert field.bench.client.post("/jobs", json=cloud, headers=admin).status_code == 201
    service = field.bench.service
    service.records.write(put_calibration(service, "cloud", 1.0, 1.0))
    answer = field.ask("POST", "/sites/edge-a/calibration", "all")
    assert answer.status_code == 409
    assert "beta-1" in answer.text and "a job of others" in answer.text
    assert "alpha-cloud" not in answer.text


def _snapshot(field: Field) -> str:
    records = field.bench.service.records
    kept = ("rev/alpha", "inv/alpha", "own/", "ses/alpha", "head/", "pilot")
    return json.dumps(
        {key: value for key, value in records.store.scan("") if key.startswith(kept)},
        sort_keys=True,
    )


def test_what_still_runs_outside_keeps_its_composition_outside(field: Field) -> None:
    own = _job("beta-1", "edge-a", "beta/in", "beta/out")
    extended = beta(own, _job("beta-2", "edge-b", "beta/out", "beta/end"))
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
