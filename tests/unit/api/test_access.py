"""Roles: the table covers every route, and every route obeys it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest
from flask.testing import FlaskClient

from speck.api.access import ACCESS
from speck.config import Config
from speck.errors import StoreFullError
from speck.service.legs import Legs
from speck.service.own_site import OwnSite
from speck.service.sites import Sites
from speck.service.tokens import Role
from speck.sites.identities import Identities
from speck.sites.networks import SiteNetworks
from tests.unit.api.bench import Bench, site
from tests.waiting import wait_for

RANKS = [Role.VIEWER, Role.DEPLOYER, Role.ADMIN]


def _routes(client: FlaskClient) -> set[tuple[str, str]]:
    return {
        (method, rule.rule)
        for rule in client.application.url_map.iter_rules()
        for method in (rule.methods or set()) - {"HEAD"}
    }


def _ask(client: FlaskClient, method: str, rule: str, token: str | None, **values: str) -> Any:
    names = {"name": "edge-a", "job_name": "j", "change_id": "c", "sha256": "x"}
    names |= {"command_id": "b", "transfer_id": "t", "placement_id": "p"}
    names |= {"analysis_id": "a", **values}
    path = rule.replace("<", "{").replace(">", "}").format(**names)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return client.open(path, method=method, headers=headers)


@pytest.fixture
def tokens(bench: Bench) -> dict[Role, str]:
    add = bench.service.tokens.add
    return {role: add(role, role, "edge-a" if role is Role.SITE else None) for role in Role}


def test_the_table_names_exactly_the_routes_there_are(bench: Bench) -> None:
    assert _routes(bench.client) == set(ACCESS)


@pytest.mark.parametrize(("method", "rule"), sorted(ACCESS), ids=" ".join)
def test_each_route_takes_its_roles_and_no_other(
    method: str, rule: str, bench: Bench, tokens: dict[Role, str]
) -> None:
    access = ACCESS[method, rule]
    for role, token in tokens.items():
        if role is Role.ADMIN and rule == "/tokens/<name>":
            continue  # it would remove itself
        status = _ask(bench.client, method, rule, token).status_code
        if access.role is None:
            allowed = True
        elif role is Role.SITE:
            allowed = access.own_site
        else:
            allowed = RANKS.index(role) >= RANKS.index(access.role)
        assert (status not in (401, 403)) == allowed, f"{role}: {status}"
    for stranger in (None, "speck_wrong"):
        answer = _ask(bench.client, method, rule, stranger)
        assert (answer.status_code == 401) == (access.role is not None)
        if answer.status_code == 401:
            assert answer.headers["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize(
    ("method", "path"),
    [("PUT", "/sites/edge-b"), ("POST", "/sites"), ("POST", "/sites/edge-b/heartbeat")],
)
def test_a_sites_token_is_bound_to_its_site(
    method: str, path: str, bench: Bench, tokens: dict[Role, str]
) -> None:
    headers = {"Authorization": f"Bearer {tokens[Role.SITE]}"}

    answer = bench.client.open(path, method=method, json=site("edge-b"), headers=headers)

    assert answer.status_code == 403
    assert "is bound to site 'edge-a'" in answer.json["detail"]


def _allow(bench: Bench, *networks: str, names: Mapping[str, str] | None = None) -> None:
    """Let site tokens register addresses in these networks; `names` is the DNS."""

    def look_up(name: str) -> list[str]:
        if name not in (names or {}):
            raise OSError("no such host")
        return [(names or {})[name]]

    allowed = SiteNetworks(tuple(map(ip_network, networks)), ("file:///nfs/edge-a",), look_up)
    bench.service.sites._own_site = OwnSite(allowed)


def test_a_site_registers_itself_in_a_network_that_is_allowed(
    bench: Bench, tokens: dict[Role, str]
) -> None:
    headers = {"Authorization": f"Bearer {tokens[Role.SITE]}"}
    client = bench.client
    _allow(bench, "10.0.0.0/8", names={"edge-a": "10.1.2.3"})
    assert client.put("/sites/edge-a", json=site("edge-a"), headers=headers).status_code == 201
    assert client.post("/sites", json=site("edge-a"), headers=headers).status_code == 200
    assert client.post("/sites/edge-a/heartbeat", headers=headers).status_code == 200


def test_without_networks_a_site_keeps_what_an_admin_registered(
    bench: Bench, tokens: dict[Role, str]
) -> None:
    admin = {"Authorization": f"Bearer {tokens[Role.ADMIN]}"}
    headers = {"Authorization": f"Bearer {tokens[Role.SITE]}"}
    refused = bench.client.post("/sites", json=site("edge-a"), headers=headers)
    assert refused.status_code == 403
    assert "SPECK_SITE_NETWORKS" in refused.json["detail"]
    assert bench.client.post("/sites", json=site("edge-a"), headers=admin).status_code == 201
    assert bench.client.post("/sites", json=site("edge-a"), headers=headers).status_code == 200
    other = site("edge-a", spe={"kind": "memory", "address": "http://10.0.0.9:8081"})
    assert bench.client.put("/sites/edge-a", json=other, headers=headers).status_code == 403
    assert bench.client.put("/sites/edge-a", json=other, headers=admin).status_code == 200


@pytest.mark.parametrize(
    "engine",
    [
        "http://169.254.169.254:80",
        "http://169.254.169.254:80/latest/meta-data",
        "http://10.0.0.1:8081/latest/meta-data",  # a path
        "http://127.1:8080",
        "http://0x7f.1:8080",
        "http://2130706433:8080",
        "http://[::ffff:127.0.0.1]:8080",
        "http://[64:ff9b::127.0.0.1]:8080",
        "http://[::1]:8080",
        "http://0.0.0.0:8080",
        "http://localhost:8080",
        "http://inside.example:8080",
        "http://unknown.example:8080",
        "http://192.168.0.1:8081",
    ],
)
def test_a_sites_token_names_no_address_outside_its_networks(
    engine: str, bench: Bench, tokens: dict[Role, str]
) -> None:
    names = {"localhost": "127.0.0.1", "inside.example": "169.254.169.254"}
    _allow(bench, "10.0.0.0/8", names=names)
    headers = {"Authorization": f"Bearer {tokens[Role.SITE]}"}
    lured = site("edge-a", spe={"kind": "memory", "address": engine})
    lured["broker"]["address"] = "tcp://10.0.0.1:1883"
    answers = [
        bench.client.post("/sites", json=lured, headers=headers),
        bench.client.put("/sites/edge-a", json=lured, headers=headers),
    ]
    assert [answer.status_code for answer in answers] == [403, 403]
    assert "is no plain address in a network" in answers[0].json["detail"]
    assert bench.service.sites.all() == []


def test_a_sites_token_is_not_told_whether_an_address_answers(
    bench: Bench, tokens: dict[Role, str]
) -> None:
    _allow(bench, "10.0.0.0/8")
    headers = {"Authorization": f"Bearer {tokens[Role.SITE]}"}
    answers = []
    for engine, silent in (("http://10.0.0.1:22", False), ("http://10.0.0.1:23", True)):
        bench.world.engine(engine).unreachable = silent
        body = site("edge-a", spe={"kind": "memory", "address": engine})
        body["broker"]["address"] = "tcp://10.0.0.1:1883"
        answer = bench.client.put("/sites/edge-a", json=body, headers=headers)
        assert bench.world.engine(engine).count("view") == 0
        answers.append({k: v for k, v in answer.json.items() if k != "spe"})
    assert answers[0] == answers[1]
    assert answers[0]["state"] == "unknown"


def test_a_sites_token_takes_no_state_of_another_site(
    bench: Bench, tokens: dict[Role, str]
) -> None:
    _allow(bench, "10.0.0.0/8", names={"edge-a": "10.0.0.1"})
    admin = {"Authorization": f"Bearer {tokens[Role.ADMIN]}"}
    headers = {"Authorization": f"Bearer {tokens[Role.SITE]}"}
    cloud = site("cloud", labels={"state_uri": "file:///nfs/edge-a/cloud"})
    assert bench.client.post("/sites", json=cloud, headers=admin).status_code == 201

    def put(uri: str | None, who: dict[str, str] = headers) -> int:
        labels = {"labels": {"state_uri": uri}} if uri else {}
        answer = bench.client.put("/sites/edge-a", json=site("edge-a", **labels), headers=who)
        return answer.status_code

    for uri in (
        "file:///nfs/edge-a/cloud",
        "file:///nfs/edge-a/cloud/x",
        "file:///nfs/edge-a",  # above the other's
        "file:///nfs/edge-ab",
        "file:///nfs/edge-a/../cloud",
        "file:///nfs/edge-a/%2e%2e/cloud",
        "file:///etc",
    ):
        assert put(uri) == 403, uri
    assert put("file:///nfs/edge-a/own") == 201
    assert put("file:///nfs/elsewhere", admin) == 200
    assert put("file:///nfs/elsewhere") == 200, "what an administrator gave is kept"
    assert put(None) == 403


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ({"load": "high"}, 422, "load: must be a number"),
        ({"free_bytes": -1}, 422, "free_bytes: must be a number from 0"),
        ({"memory_bytes": "2G"}, 422, "memory_bytes: must be a number"),
        ({"memory_bytes": 2**31, "memory_available_bytes": 2**30}, 200, ""),
        ({"colour": "red", "load": "high"}, 422, "load: must be a number"),
        ({"slots": {"total": 4}, "load": 1}, 200, ""),  # of a newer agent: not stored
        ({"listen": "http://user:secret@10.0.0.1:80"}, 422, "listen: must hold no user"),
        ({"listen": "file:///etc/passwd"}, 422, "is not an address like"),
        ({"versions": {"agent": "1" * 17_000}}, 413, "at most 16384 are taken"),
        ({"state_folder": "/s", "load": 0.5, "cores": 4, "cpu": None}, 200, ""),
    ],
)
def test_a_heartbeat_is_small_and_keeps_to_its_schema(
    body: dict[str, Any], status: int, says: str, bench: Bench, tokens: dict[Role, str]
) -> None:
    headers = {"Authorization": f"Bearer {tokens[Role.ADMIN]}"}
    bench.client.post("/sites", json=site("edge-a"), headers=headers)
    headers = {"Authorization": f"Bearer {tokens[Role.SITE]}"}
    answer = bench.client.post("/sites/edge-a/heartbeat", json=body, headers=headers)
    assert answer.status_code == status, answer.json
    assert says in str(answer.json)


@pytest.mark.parametrize(
    ("listen", "kept"),
    [
        ("http://edge-a:8090", True),  # the host of its engine
        ("http://10.0.0.7:8090", True),
        ("http://169.254.169.254:80", False),
        ("http://cloud:8081", False),
        ("http://edge-a:8090/jars/upload", False),
    ],
)
def test_other_agents_are_sent_only_to_the_site_itself(
    listen: str, kept: bool, bench: Bench, tokens: dict[Role, str]
) -> None:
    _allow(bench, "10.0.0.0/8", names={"cloud": "192.168.0.1"})
    bench.client.environ_base["HTTP_AUTHORIZATION"] = f"Bearer {tokens[Role.ADMIN]}"
    bench.add_sites()
    headers = {"Authorization": f"Bearer {tokens[Role.SITE]}"}
    beat = {"state_folder": "/s", "listen": listen}
    answer = bench.client.post("/sites/edge-a/heartbeat", json=beat, headers=headers)
    assert answer.status_code == 200
    assert bench.service.agents.beat("edge-a").listen == (listen if kept else None)
    findings = bench.client.get("/sites/edge-a/check").json["findings"]
    assert ("listen" in [finding["setting"] for finding in findings]) == (not kept)


def _broker(name: str, credentials: str | None = None, **more: str) -> dict[str, Any]:
    broker = {"kind": "memory", "address": f"tcp://{name}:1883", **more}
    return {"broker": {**broker, "credentials": credentials} if credentials else broker}


@pytest.mark.parametrize("method", ["PUT", "POST"])
def test_a_sites_token_names_no_credentials_of_another_site(
    method: str, bench: Bench, tokens: dict[Role, str]
) -> None:
    _allow(bench, "10.0.0.0/8", names={"edge-a": "10.0.0.1"})
    headers = {"Authorization": f"Bearer {tokens[Role.SITE]}"}
    path = "/sites/edge-a" if method == "PUT" else "/sites"
    theirs = site("edge-a", **_broker("attacker", "cloud"))
    refusal = bench.client.open(path, method=method, json=theirs, headers=headers)
    assert refusal.status_code == 403
    assert refusal.json["detail"] == (
        "cannot give site 'edge-a' the credentials 'cloud': its token may name only 'edge-a';"
        " an admin may name others"
    )
    own = site("edge-a", **_broker("edge-a", "edge-a"))
    assert bench.client.open(path, method=method, json=own, headers=headers).status_code == 201


ATTRACTIONS = [
    {"tier": "cloud"},
    {"uplink_mbps": 1e5},
    {"labels": {"latency_ms": "0"}},
    {"labels": {"region": "north"}},
    {"labels": {"max_queued_messages": "1000000"}},
]


@pytest.mark.parametrize("attraction", ATTRACTIONS, ids=str)
def test_a_sites_token_says_nothing_that_attracts_jobs(
    attraction: dict[str, Any], bench: Bench, tokens: dict[Role, str]
) -> None:
    _allow(bench, "10.0.0.0/8", names={"edge-a": "10.0.0.1"})
    admin = {"Authorization": f"Bearer {tokens[Role.ADMIN]}"}
    headers = {"Authorization": f"Bearer {tokens[Role.SITE]}"}
    put = bench.client.put
    lure, plain = site("edge-a", **attraction), site("edge-a")
    for known in (None, plain, lure):
        if known is not None:
            assert put("/sites/edge-a", json=known, headers=admin).status_code < 300
            assert put("/sites/edge-a", json=known, headers=headers).status_code == 200
        described = plain if known is lure else lure
        for method, path in (("PUT", "/sites/edge-a"), ("POST", "/sites")):
            answer = bench.client.open(path, method=method, json=described, headers=headers)
            assert answer.status_code == 403
            assert "jobs are placed by them" in answer.json["detail"]


def test_a_sites_token_keeps_what_an_admin_gave_its_site(
    bench: Bench, tokens: dict[Role, str]
) -> None:
    admin = {"Authorization": f"Bearer {tokens[Role.ADMIN]}"}
    headers = {"Authorization": f"Bearer {tokens[Role.SITE]}"}
    put = bench.client.put
    broker = _broker("edge-a", "shared")
    assert put("/sites/edge-a", json=site("edge-a", **broker), headers=admin).status_code == 201
    expected = site("edge-a", **broker)
    assert put("/sites/edge-a", json=expected, headers=headers).status_code == 200
    lured = site("edge-a", **_broker("attacker", "shared"))
    answer = put("/sites/edge-a", json=lured, headers=headers)
    assert answer.status_code == 403, "a shared secret goes to no other host"
    dropped = put("/sites/edge-a", json=site("edge-a"), headers=headers)
    assert dropped.status_code == 403
    other = site("edge-a", **_broker("edge-a", "shared", kind="mqtt"))
    answer = put("/sites/edge-a", json=other, headers=headers)
    assert answer.status_code == 403
    assert "cannot change the kind" in answer.json["detail"]


def test_head_needs_the_role_of_get(bench: Bench, tokens: dict[Role, str]) -> None:
    assert _ask(bench.client, "HEAD", "/tokens", tokens[Role.VIEWER]).status_code == 403
    assert _ask(bench.client, "HEAD", "/tokens", tokens[Role.ADMIN]).status_code == 200


def test_no_token_is_needed_on_loopback_until_one_exists(bench: Bench) -> None:
    assert bench.client.get("/sites").status_code == 200
    bench.service.tokens.add("root", "admin")
    assert bench.client.get("/sites").status_code == 401


def test_past_loopback_nothing_is_answered_without_tokens(bench: Bench) -> None:
    client = bench.open(replace(bench.service.config, host="0.0.0.0"))
    assert client.get("/sites").status_code == 401
    assert client.get("/livez").status_code == 200


def test_a_removed_token_is_refused(bench: Bench, tokens: dict[Role, str]) -> None:
    bench.service.tokens.remove("viewer")
    answer = _ask(bench.client, "GET", "/sites", tokens[Role.VIEWER])
    assert answer.status_code == 401
    assert "this token is unknown" in answer.json["detail"]


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:8080", 200),
        ("127.0.0.1", 200),
        ("127.1.2.3:80", 200),
        ("[::1]:8080", 200),
        ("evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("10.0.0.1", 403),
        ("[", 403),
        ("", 403),
    ],
)
def test_without_tokens_only_this_machines_names_are_answered(
    host: str, status: int, bench: Bench
) -> None:
    assert bench.client.get("/sites", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("origin", "status"),
    [("http://localhost", 404), ("http://evil.example", 403), ("null", 403)],
)
def test_pages_of_others_change_nothing(origin: str, status: int, bench: Bench) -> None:
    headers = {"Origin": origin}
    assert bench.client.post("/changes/x/cancel", headers=headers).status_code == status
    assert bench.client.get("/sites", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 200),
        ({"Sec-Fetch-Site": "none"}, 200),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
        ({"Sec-Fetch-Site": "same-site"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://localhost"}, 200),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "null"}, 403),
    ],
)
def test_pages_of_others_check_no_site(headers: dict[str, str], status: int, bench: Bench) -> None:
    bench.add_sites()
    assert bench.client.get("/sites/edge-a/check", headers=headers).status_code == status
    assert bench.client.get("/sites", headers=headers).status_code == 200


def test_an_expired_token_is_told_so(bench: Bench) -> None:
    bench.service.tokens.add("root", "admin")
    secret = bench.service.tokens.add("guest", "viewer", expires_in="1s")
    wait_for(lambda: _ask(bench.client, "GET", "/sites", secret).status_code == 401)
    answer = _ask(bench.client, "GET", "/sites", secret)
    assert "cannot use token 'guest': it expired at " in answer.json["detail"]
    assert answer.headers["WWW-Authenticate"].startswith("Bearer")


def test_a_rotated_token_works_with_both_secrets_over_http(
    bench: Bench, tokens: dict[Role, str]
) -> None:
    rotated = _ask(bench.client, "POST", "/tokens/<name>/rotate", tokens[Role.ADMIN], name="viewer")
    assert rotated.headers["Cache-Control"] == "no-store"
    for secret in (tokens[Role.VIEWER], rotated.json["token"]):
        own = _ask(bench.client, "GET", "/tokens/self", secret)
        assert (own.json["name"], own.json["role"]) == ("viewer", "viewer")


def test_what_exists_in_memory_only_is_registered_for_trials_only(bench: Bench) -> None:
    service = bench.service
    service.sites = Sites(
        service.records,
        service.connections,
        service.status,
        service.polls,
        service.changes,
        service.agents,
        OwnSite(SiteNetworks((), ())),
        Legs(service.config, service.connections, service.agents, service.clock),
        Identities(service.records, service.connections, service.clock),
        simulated=Config(home=service.config.home).simulated,
    )
    answer = bench.client.post("/sites", json=site("edge-a"))
    assert answer.status_code == 422
    assert [problem["path"] for problem in answer.json["errors"]] == ["spe.kind", "broker.kind"]
    assert "SPECK_SIMULATED=1" in answer.text


def test_who_is_not_ready_does_not_say_where_its_store_is(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise StoreFullError(f"cannot write to the store at {bench.service.config.store}: full")

    monkeypatch.setattr(bench.service.records.store, "check_writable", refuse)
    answer = bench.client.get("/readyz")
    assert answer.status_code == 507 and answer.headers["Retry-After"]
    assert str(bench.service.config.home) not in answer.text
    assert "disk is full" in answer.json["detail"]
