"""Sites that get other addresses while their jobs run: same sessions, same state, nothing lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from binders.memory import World
from speck.errors import ConflictError, ForbiddenError
from speck.model.site import Site
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.site_schema import site_from_data
from tests.memory_fog import memory_service, site_body
from tests.service_helpers import DONE, composition, job_body, look_anew
from tests.waiting import wait_for


def at(name: str, host: str | None = None, **more: Any) -> Site:
    body = site_body(name)
    body["spe"] = {**body["spe"], "address": f"http://{host or name}.test:8081"}
    body["broker"] = {**body["broker"], "address": f"tcp://{host or name}.test:1883"}
    return site_from_data({**body, **more})


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    sites = [site_body(name) for name in ("edge-a", "edge-b", "cloud")]
    with memory_service(tmp_path, sites) as opened:
        yield opened


CHAIN = (
    job_body("A", sink_topic="x", sink_site="cloud", source_topic="in"),
    job_body("B", "cloud", source_topic="x", sink_topic="out"),
)

OTHER_INPUT = {"source_topic": "y"}


def apply(service: Service, *jobs: JsonObject, **more: Any) -> None:
    service.compositions.apply(composition(*jobs, **more), DONE)


def feed(host: str, first: int, last: int) -> None:
    payloads = [b"%d" % number for number in range(first, last)]
    World.current().feed(f"tcp://{host}.test:1883", "in", payloads, "sensor")
    World.current().pump()


def readdress(*pairs: tuple[str, str]) -> None:
    """Machines get other addresses: (old host, new host)."""
    World.current().readdress(
        {
            form.format(old): form.format(new)
            for old, new in pairs
            for form in ("tcp://{}.test:1883", "http://{}.test:8081")
        }
    )


def restart_moved(service: Service) -> None:
    """Let the watch see new addresses, and wait until the jobs have been restarted."""
    look_anew(service)
    service.watch.poll()
    wait_for(lambda: not service.watch.repairs.scopes)
    wait_for(lambda: not service.changes.all_under_way())


def collect(host: str) -> list[bytes]:
    World.current().pump()
    messages = World.current().broker(f"tcp://{host}.test:1883").published["out"]
    return [message.payload for message in messages]


def numbers(last: int) -> list[bytes]:
    return [b"%d" % number for number in range(last)]


def test_jobs_follow_a_broker_with_the_same_sessions_and_their_state(service: Service) -> None:
    apply(service, *CHAIN)
    feed("edge-a", 0, 5)
    before = {s.client_id for _, s in service.records.sessions.all()}
    readdress(("cloud", "cloud-2"))
    feed("edge-a", 5, 9)  # nobody finds the broker

    service.sites.put(at("cloud", "cloud-2"))
    restart_moved(service)
    feed("edge-a", 9, 12)

    assert collect("cloud-2") == numbers(12)
    assert {s.client_id for _, s in service.records.sessions.all()} == before
    plan = service.changes.all("c")[0]
    operations = service.changes.get(plan.id).operations
    reasons = {o.job_name: o.reason for o in operations if o.kind == "start"}
    moved = "the broker of cloud has a new address"
    assert reasons == {"A": moved, "B": moved}
    restart_moved(service)
    assert service.changes.all("c")[0].id == plan.id, "nothing is left to do"


def test_two_sites_exchange_their_addresses_in_one_request_only(service: Service) -> None:
    apply(service, *CHAIN)
    apply(service, job_body("E", "edge-b"), name="d")
    feed("edge-a", 0, 5)
    readdress(("edge-a", "edge-b"), ("edge-b", "edge-a"))
    with pytest.raises(ConflictError, match=r"belongs to edge-b"):
        service.sites.put(at("edge-a", "edge-b"))

    service.sites.put_all([at("edge-a", "edge-b"), at("edge-b", "edge-a")])
    restart_moved(service)
    feed("edge-b", 5, 9)

    assert collect("cloud") == numbers(9)
    states = {job.job_name: job.state for job in service.jobs.all()}
    assert states == {"A": "running", "B": "running", "E": "running"}


def test_addresses_are_not_exchanged_on_paper_alone(service: Service) -> None:
    apply(service, *CHAIN)
    apply(service, job_body("E", "edge-b"), name="d")
    with pytest.raises(ConflictError, match=r"the engine at http://edge-b.test:8081 runs jobs of"):
        service.sites.put_all([at("edge-a", "edge-b"), at("edge-b", "edge-a")])
    sites = [at("edge-a"), at("edge-b")]
    swapped = [
        Site(one.name, one.tier, one.spe, other.broker, labels=one.labels)
        for one, other in zip(sites, reversed(sites), strict=True)
    ]
    with pytest.raises(ConflictError) as error:
        service.sites.put_all(swapped)
    assert str(error.value).startswith(
        "cannot change the addresses of site 'edge-a': the broker at tcp://edge-b.test:1883 is that"
        " of site edge-b; if two sites have exchanged their addresses"
    )


def test_a_broker_without_the_sessions_needs_consent(service: Service) -> None:
    apply(service, *CHAIN)
    new = at("cloud")
    new = Site(new.name, new.tier, new.spe, at("x", "fresh").broker, labels=new.labels)
    with pytest.raises(ConflictError) as error:
        service.sites.put(new)
    assert str(error.value) == (
        "cannot change the addresses of site 'cloud': the broker at tcp://fresh.test:1883 is not"
        " the one that cloud had: it does not have the sessions of A, B, and what waits in them;"
        " give the address of that one, or accept a new broker (speck site update --new-broker, or"
        " ?new_broker=true), where the sessions are made anew and what waits at the old one is lost"
    )
    with pytest.raises(ForbiddenError, match="cannot accept a new broker"):
        service.sites.put(at("cloud"), by_itself=True, new_broker=True)
    service.sites.put(new, new_broker=True)
    restart_moved(service)
    feed("edge-a", 0, 5)
    assert collect("fresh") == numbers(5)


def test_a_silent_broker_is_not_taken_for_the_same(service: Service) -> None:
    apply(service, *CHAIN)
    World.current().broker("tcp://cloud-2.test:1883").unreachable = True
    with pytest.raises(ConflictError, match="it is not known whether the broker at tcp://cloud-2"):
        service.sites.put(at("cloud", "cloud-2"))


def test_one_broker_under_two_names_is_one_broker(service: Service) -> None:
    world = World.current()
    world.broker("tcp://other-name.test:1883").identity = world.broker(
        "tcp://edge-a.test:1883"
    ).identity
    for by_itself, owner in ((False, "site edge-a"), (True, "another site")):
        with pytest.raises(
            ConflictError, match=f"is that of {owner}; a broker belongs to one site"
        ):
            service.sites._put([at("edge-z", "other-name")], by_itself=by_itself)


def test_stored_documents_follow_the_addresses(service: Service) -> None:
    by_address = {
        **job_body("A", sink_broker="tcp://cloud.test:1883/", sink_topic="x"),
        "site": None,
        "spe_address": "http://edge-a.test:8081/",
    }
    apply(service, by_address, inputs=[{"broker": "tcp://edge-a.test:1883", "topic": "A-in"}])
    readdress(("edge-a", "edge-2"), ("cloud", "cloud-2"))
    service.sites.put_all([at("edge-a", "edge-2"), at("cloud", "cloud-2")])
    restart_moved(service)

    job = service.jobs.get("A")
    assert (job.description.spe_address, job.description.sink_broker, job.state) == (
        "http://edge-2.test:8081",
        "tcp://cloud-2.test:1883",
        "running",
    )
    assert service.composition_views.drift("c") == []


def test_a_change_that_waits_for_a_lost_address_goes_on_at_the_new_one(service: Service) -> None:
    apply(service, *CHAIN)
    feed("edge-a", 0, 5)
    readdress(("edge-a", "edge-2"))
    body = service.compositions.apply(
        composition({**CHAIN[0], "args": ["--x"]}, CHAIN[1]), ApplyRequest(wait_s=0.05)
    )
    wait_for(lambda: service.changes.get(body.change).state == "blocked")
    service.sites.put(at("edge-a", "edge-2"))
    wait_for(lambda: service.changes.get(body.change).state == "done")
    feed("edge-2", 5, 9)
    assert collect("cloud") == numbers(9)


# -- brokers whose identity comes late, or is another one ------------------------------------


def poll_brokers(service: Service) -> None:
    """Let the watch see the brokers anew, and wait for what it does about them."""
    look_anew(service)
    for site in service.records.sites.all():
        service.polls.forget(site)
    service.watch.poll()
    wait_for(lambda: service.watch.identities.idle and service.watch.sessions.idle)


def recorded(service: Service, site: str) -> str | None:
    return service.records.sites.broker_identity(site)


def said(service: Service, *words: str) -> list[str]:
    """The events about sites that hold these words."""
    messages = [event.message for event in service.records.events.after()]
    return [message for message in messages if all(word in message for word in words)]


def test_a_broker_that_was_away_at_registration_gets_its_identity_later(service: Service) -> None:
    late = World.current().broker("tcp://late.test:1883")
    late.unreachable = True
    service.sites.add(at("late"))
    poll_brokers(service)
    assert recorded(service, "late") is None

    late.unreachable = False
    poll_brokers(service)
    poll_brokers(service)

    assert late.identity is not None
    assert recorded(service, "late") == late.identity
    assert not service.watch.identities.strangers


def test_a_broker_that_turns_out_to_be_that_of_another_site_is_reported_once(
    service: Service,
) -> None:
    other = World.current().broker("tcp://late.test:1883")
    other.unreachable = True
    service.sites.add(at("late"))
    other.unreachable = False
    other.identity = recorded(service, "edge-a")
    for _ in range(3):
        poll_brokers(service)
    assert recorded(service, "late") is None
    (message,) = said(service, "the broker at the address of site late is that of site edge-a")
    assert "speck site update late --broker URL" in message


@pytest.mark.parametrize("whose", ["edge-b", None])
def test_another_broker_at_a_sites_address_is_reported_and_gets_no_sessions(
    service: Service, whose: str | None
) -> None:
    reader = "speck-out-dashboard"
    apply(service, *CHAIN, outputs=[{"site": "cloud", "topic": "out", "client_id": reader}])
    own = World.current().broker("tcp://cloud.test:1883")
    kept, own.identity = own.identity, recorded(service, whose) if whose else "f" * 32
    own.sessions.clear()
    own.announced.clear()
    poll_brokers(service)
    assert not said(service, "another broker answers"), "it may be an older poll"
    poll_brokers(service)
    poll_brokers(service)

    (message,) = said(service, "another broker answers at the address of site cloud")
    assert ("that of site edge-b" if whose else "not the one that it had") in message
    assert reader not in own.sessions and recorded(service, "cloud") == kept
    findings = service.sites.check("cloud")
    assert any("another broker answers" in finding.value for finding in findings)

    own.identity = kept
    poll_brokers(service)
    assert said(service, "the broker of site cloud answers at its address again")
    assert reader in own.sessions, "lost sessions are made again at the site's own broker"


OUTSIDE = {"outputs": [{"site": "cloud", "topic": "out", "client_id": "speck-out-dashboard"}]}
CHANGES_AT_CLOUD: dict[str, tuple[tuple[JsonObject, ...], JsonObject]] = {
    "a new reader": (CHAIN, OUTSIDE),
    "a reader that leaves": (({**CHAIN[0], "sink_topic": "y"}, {**CHAIN[1], **OTHER_INPUT}), {}),
    "a job that starts again": ((CHAIN[0], {**CHAIN[1], "args": ["--x"]}), {}),
    "a sink that leaves": (({**CHAIN[0], "sink_topic": "y"}, CHAIN[1]), {}),
    "a new job": ((*CHAIN, job_body("C", "cloud", source_topic="x", sink_topic="z")), {}),
    "a successor": ((CHAIN[0], {**CHAIN[1], "job_name": "B2"}), {}),
    "a removal": ((), {}),
}


@pytest.mark.parametrize("kind", CHANGES_AT_CLOUD)
@pytest.mark.parametrize("whose", ["edge-b", None])
def test_a_change_waits_for_a_sites_own_broker_and_touches_no_other_one(
    service: Service, kind: str, whose: str | None
) -> None:
    apply(service, *CHAIN)
    feed("edge-a", 0, 5)
    own = World.current().broker("tcp://cloud.test:1883")
    kept, own.identity = own.identity, recorded(service, whose) if whose else "f" * 32
    before = set(own.sessions), set(own.sent), set(own.taken)

    jobs, more = CHANGES_AT_CLOUD[kind]
    if jobs:
        request = ApplyRequest(wait_s=0.05, force=True)
        body = service.compositions.apply(composition(*jobs, **more), request)
    else:
        body = service.compositions.delete("c", 0.05)
    wait_for(lambda: service.changes.get(body.change).state == "blocked")
    change = service.changes.get(body.change)
    reasons = [o.error for o in change.operations if o.state == "blocked"]
    assert all("cannot use the broker of site cloud: another one answers" in w for w in reasons)
    because = (
        "it is that of site edge-b, or a bridge carries" if whose else "not the one that it had"
    )
    assert all(because in w for w in reasons)
    assert any("speck site update cloud --broker" in why for why in reasons)
    assert (set(own.sessions), set(own.sent), set(own.taken)) == before

    own.identity = kept
    wait_for(lambda: service.changes.get(body.change).state == "done")
    feed("edge-a", 5, 9)
    if kind != "a removal" and "sink" not in kind and "leaves" not in kind:
        assert collect("cloud") == numbers(9)


def test_another_broker_is_accepted_at_the_old_address(service: Service) -> None:
    apply(service, *CHAIN)
    broker = World.current().broker("tcp://cloud.test:1883")
    broker.identity = "f" * 32
    broker.sessions.clear()
    broker.announced.clear()
    poll_brokers(service)

    service.sites.put(at("cloud"), new_broker=True)
    poll_brokers(service)

    assert recorded(service, "cloud") == "f" * 32
    assert not service.watch.identities.strangers
    assert broker.sessions


def test_a_broker_that_has_lost_its_store_gets_another_identity(service: Service) -> None:
    apply(service, *CHAIN)
    before = recorded(service, "cloud")
    World.current().broker("tcp://cloud.test:1883").restart()
    poll_brokers(service)
    poll_brokers(service)
    assert recorded(service, "cloud") not in (before, None)
    assert said(service, "the broker of site cloud has lost what it had stored")


def test_of_sites_that_are_changed_together_all_change_or_none(service: Service) -> None:
    apply(service, *CHAIN)
    before = service.records.sites.all()
    readdress(("edge-a", "edge-2"))
    wrong = at("cloud", "fresh")
    with pytest.raises(ConflictError, match="is not the one that cloud had"):
        service.sites.put_all([at("edge-a", "edge-2"), wrong])
    assert service.records.sites.all() == before
    assert not said(service, "edge-2")
