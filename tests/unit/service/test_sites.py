"""Sites: registered, changed, removed."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from speck.errors import ConflictError, InvalidError, NotFoundError
from speck.model.finding import PartFinding
from speck.model.site import AgentReport, Site
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.service.legs import Legs
from speck.service.status import SlotCounts
from speck.spec.site_schema import site_from_data
from speck.tls.authority import Authority
from tests.memory_fog import site_body
from tests.service_helpers import (
    DONE,
    LIMIT_S,
    broker,
    composition,
    engine,
    findings_but_of_tls,
    job,
    job_body,
    look_anew,
)
from tests.waiting import wait_for


def site(name: str, host: str | None = None, **more: object) -> Site:
    return site_from_data({**site_body(name, host), **more})


def test_a_new_site_is_shown_with_what_its_engine_says(service: Service) -> None:
    body, new = service.sites.add(site("edge-z"))
    assert new
    assert body.state == "up"
    assert body.slots == SlotCounts(total=16, free=16)
    assert body.engine_version == "memory"
    assert body.last_seen is None


def test_the_same_site_again_is_no_other(service: Service) -> None:
    service.sites.add(site("edge-z"))
    _, new = service.sites.add(site("edge-z"))
    assert not new


def test_the_same_name_with_another_body_is_refused(service: Service) -> None:
    with pytest.raises(ConflictError) as error:
        service.sites.add(site("edge-a", uplink_mbps=5))
    assert str(error.value) == (
        "cannot register site 'edge-a': it is there with another body;"
        " change it (speck site update, or PUT /sites/edge-a)"
    )
    body, new = service.sites.put(site("edge-a", uplink_mbps=5))
    assert not new
    assert body.site.uplink_mbps == 5


def test_an_address_belongs_to_one_site(service: Service) -> None:
    for call in (service.sites.add, service.sites.put):
        with pytest.raises(ConflictError) as error:
            call(site("edge-z", "EDGE-A.test"))
        assert str(error.value) in (
            "cannot register site 'edge-z': http://edge-a.test:8081 belongs to edge-a",
            "cannot register site 'edge-z': tcp://edge-a.test:1883 belongs to edge-a",
        )


def test_of_two_sites_that_want_one_address_at_once_one_gets_it(service: Service) -> None:
    outcomes: list[str] = []
    meeting = threading.Barrier(8)

    def add(number: int) -> None:
        meeting.wait(LIMIT_S)
        try:
            service.sites.add(site(f"edge-{number}", "contested"))
            outcomes.append("added")
        except ConflictError:
            outcomes.append("refused")

    threads = [threading.Thread(target=add, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert sorted(outcomes) == ["added"] + ["refused"] * 7


def test_an_unknown_kind_is_refused_with_those_installed(service: Service) -> None:
    body = site_body("edge-z")
    body["spe"]["kind"] = "storm"
    with pytest.raises(InvalidError) as error:
        service.sites.add(site_from_data(body))
    (problem,) = error.value.problems
    assert problem.path == "spe.kind"
    assert problem.message == "no binder for 'storm'; installed: flink, memory, process, spark"


def test_a_site_in_use_is_neither_removed_nor_given_other_addresses(service: Service) -> None:
    service.compositions.apply(composition(job_body("A"), job_body("B", sink_site="cloud")), DONE)
    with pytest.raises(ConflictError) as error:
        service.sites.delete("edge-a")
    assert str(error.value) == ("cannot remove site 'edge-a': it serves A, B; remove them first")
    with pytest.raises(ConflictError, match="cannot change the addresses of site 'edge-a'"):
        service.sites.put(site("edge-a", "elsewhere"))
    with pytest.raises(ConflictError, match="cannot remove site 'cloud': it serves B"):
        service.sites.delete("cloud")
    service.sites.put(site("edge-a", labels={"state_uri": "memory:/state", "room": "7"}))
    service.compositions.delete("c", LIMIT_S)
    service.sites.delete("edge-a")
    with pytest.raises(NotFoundError, match="cannot find site 'edge-a'"):
        service.sites.get("edge-a")


def test_a_site_that_keeps_a_stopped_job_s_session_is_not_removed(service: Service) -> None:
    service.jobs.post(job("A"), LIMIT_S)
    service.jobs.put("A", job("A", state="stopped"), LIMIT_S)
    with pytest.raises(ConflictError, match="it serves A; remove them first"):
        service.sites.delete("edge-a")


def test_a_silent_site_is_shown_as_unreachable(service: Service) -> None:
    engine("edge-a").unreachable = broker("edge-a").unreachable = True
    service.sites.refresh(["edge-a"])
    assert service.sites.get("edge-a").state == "unreachable"
    assert service.sites.get("edge-a").slots == SlotCounts(total=None, free=None)
    assert [s.name for s in service.sites.all(state="unreachable")] == ["edge-a"]


def test_whoever_waited_for_a_slow_look_gets_its_answer(service: Service) -> None:
    looking, go_on = threading.Event(), threading.Event()

    def slow(kind: str, subject: str) -> None:
        looking.set()
        go_on.wait(LIMIT_S)

    look_anew(service)
    polls = engine("edge-b").count("view")
    engine("edge-b").before = slow
    threads = [threading.Thread(target=service.sites.refresh, args=(["edge-b"],)) for _ in range(6)]
    for thread in threads:
        thread.start()
    assert looking.wait(LIMIT_S)
    go_on.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert engine("edge-b").count("view") <= polls + 2, "at most one that began before their call"


def test_a_heartbeat_is_remembered(service: Service) -> None:
    beat = service.sites.heartbeat("edge-a", AgentReport(load=0.5))
    assert service.sites.get("edge-a").last_seen == beat
    with pytest.raises(NotFoundError):
        service.sites.heartbeat("edge-z", AgentReport())


def errors_of(findings: list[PartFinding]) -> list[PartFinding]:
    return [finding for finding in findings if finding.severity == "error"]


def test_check_names_the_part_that_does_not_answer(service: Service) -> None:
    assert not errors_of(service.sites.check("edge-a"))
    assert findings_but_of_tls(service, "edge-a") == []
    engine("edge-a").unreachable = True
    assert errors_of(service.sites.check("edge-a"))
    findings = findings_but_of_tls(service, "edge-a")
    assert [(f.part, f.value) for f in findings] == [("engine", "no answer")]


def test_check_tells_a_part_that_refuses_from_one_that_is_silent(service: Service) -> None:
    body = site_body("edge-a")
    body["broker"]["credentials"] = "missing"
    service.sites.put(site_from_data(body))
    (finding,) = findings_but_of_tls(service, "edge-a")
    assert (finding.part, finding.value) == ("broker", "cannot be used")
    assert "no file of that name" in finding.why
    assert "start the broker" not in finding.mend


def test_check_names_every_plain_leg(service: Service) -> None:
    service.sites.heartbeat("edge-a", AgentReport(listen="http://edge-a.test:8090"))
    findings = service.sites.check("edge-a")
    legs = [(f.part, f.severity, f.value) for f in findings if f.setting == "TLS"]
    assert legs == [
        ("engine", "warning", "http://edge-a.test:8081 is plain"),
        ("broker", "warning", "tcp://edge-a.test:1883 is plain"),
        ("agent", "warning", "http://edge-a.test:8090 is plain"),
        ("service", "note", "http://127.0.0.1:8080 is plain, on loopback"),
    ]


def test_check_names_the_service_s_own_certificate_when_it_ends_soon(
    service: Service, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    authority = Authority.create(tmp_path / "ca", now)
    cert = authority.issue("service", now, days=20).cert
    config = replace(service.config, tls_cert=cert, client_ca=authority.cert)
    legs = Legs(config, service.connections, service.agents, service.clock)
    (finding,) = [each for each in legs.findings("edge-a") if each.setting == "certificate"]
    assert (finding.part, finding.severity) == ("service", "warning")
    assert f"that of {cert} ends in" in finding.value


def test_a_site_is_not_removed_under_a_change_that_is_being_prepared(service: Service) -> None:
    looking, go_on = threading.Event(), threading.Event()

    def hold(kind: str, subject: str) -> None:
        if kind == "view":
            looking.set()
            assert go_on.wait(LIMIT_S)

    outcome: list[str] = []

    def apply() -> None:
        try:
            service.compositions.apply(composition(job_body("A")), DONE)
        except ConflictError as error:
            outcome.append(str(error))

    engine("edge-a").before = hold
    applying = threading.Thread(target=apply)
    applying.start()
    assert looking.wait(LIMIT_S)
    service.sites.delete("edge-a")
    engine("edge-a").before = None
    go_on.set()
    applying.join(LIMIT_S)
    assert outcome == [
        "cannot start a change: site 'edge-a' was removed or changed meanwhile; try again"
    ]
    assert service.composition_views.all() == []


def test_a_site_is_not_removed_while_a_change_that_needs_it_waits(service: Service) -> None:
    engine("edge-a").unreachable = broker("edge-a").unreachable = True
    service.compositions.apply(composition(job_body("A")), ApplyRequest())
    with pytest.raises(ConflictError, match="site 'edge-a': it serves A; remove them first"):
        service.sites.delete("edge-a")
    with pytest.raises(ConflictError, match="it does not have the sessions of A"):
        service.sites.put(site("edge-a", "elsewhere"))
    engine("edge-a").unreachable = broker("edge-a").unreachable = False
    wait_for(lambda: not service.changes.all_under_way())
    assert service.jobs.get("A").state == "running"
