"""An engine and a broker of a third party, which share no word with those that speck brings: all
that speck promises holds for them, from a composition's document to its records."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from binders.memory import World
from speck.errors import ConflictError, InvalidError
from speck.model.values import JsonObject
from speck.spec.site_schema import site_from_data
from tests.agents import heard
from tests.third_party_kinds import canals
from tests.third_party_land import DONE, SITES, Land, open_land, woven
from tests.waiting import wait_for


@pytest.fixture
def land(tmp_path: Path) -> Iterator[Land]:
    with open_land(tmp_path) as land:
        yield land


UPPER = woven("upper", "upper", "edge-a", "edge-a/raw", "cloud/mid")
COUNT = woven("count", "count", "cloud", "cloud/mid", "cloud/out", delivery="exactly_once")


def test_from_a_document_to_the_last_record(land: Land) -> None:
    land.apply(UPPER, COUNT)
    land.feed()
    land.await_all()

    # an update in place, and a move with the state through the agents
    land.apply({**UPPER, "args": ["--gently"]}, {**COUNT, "site": "edge-a"})
    land.feed()
    land.await_all()
    assert land.service.jobs.get("count").site == "edge-a"

    # other links between them, while records are under way
    land.feed(50)
    land.apply(
        {**UPPER, "sink_topic": "mid2", "args": ["--gently"]},
        {**COUNT, "site": "edge-a", "source_topic": "mid2"},
    )
    land.feed()
    land.await_all()

    # the machine of an engine is switched off
    land.feed(30)
    land.runners["edge-a"].stop()
    land.feed(30)
    land.start("edge-a")
    land.await_all()

    land.service.compositions.rollback("c", 1, DONE)
    land.feed()
    land.await_all()
    assert land.service.jobs.get("count").site == "cloud"

    removed = land.service.compositions.delete("c", DONE.wait_s)
    assert removed.done
    assert land.places("edge-a") == set()
    assert land.places("cloud") <= {"spy"}


@pytest.mark.long
def test_agents_and_the_service_may_be_away(land: Land) -> None:
    """Jobs go on without them; nothing is concluded from a status that is not pushed any more,
    also not by the watch."""
    land.watches = True
    land.leave()
    land.serve()
    heard(land.service, *SITES)
    land.apply(UPPER, COUNT)
    land.agents["edge-a"].stop()
    land.feed()
    land.leave()
    land.await_all()
    land.serve()
    wait_for(lambda: land.service.jobs.get("upper").state == "unreachable", "the watch's word", 60)
    land.feed()
    land.start_agent("edge-a")
    heard(land.service, *SITES)
    land.apply({**UPPER, "args": ["--gently"]}, {**COUNT, "site": "edge-a"})
    land.feed()
    land.await_all()
    attempts = {job.job_name: job.attempt for job in land.service.jobs.all()}
    assert attempts == {"upper": 2, "count": 2}, "neither was started again meanwhile"


@pytest.mark.long
def test_an_engine_that_dies_anywhere_loses_and_repeats_nothing(land: Land) -> None:
    land.apply(UPPER, COUNT)
    land.feed()
    land.await_all()
    for point in ("step", "publish", "commit"):
        land.runners["cloud"].dies_at = point
        land.feed()
        land.revive("cloud")
        land.await_all()
    for point, site in (("stop", "cloud"), ("copy", "cloud"), ("claim", "edge-a")):
        at = land.service.jobs.get("count").site
        there = at if point == "stop" else site
        land.runners[there].dies_at = point
        to = "edge-a" if at == "cloud" else "cloud"
        with ThreadPoolExecutor(1) as pool:
            moved = pool.submit(land.apply, UPPER, {**COUNT, "site": to})
            land.feed()
            land.revive(there)
            moved.result()
        land.feed()
        land.await_all()


OUTPUTS = [{"site": "cloud", "topic": "out", "client_id": name} for name in ("spy", "later")]
"""The second reader comes later, or never."""


@pytest.mark.long
def test_a_place_that_its_broker_loses_goes_on_where_it_was_last_seen(land: Land) -> None:
    land.apply(UPPER, COUNT, outputs=OUTPUTS)
    land.feed()
    land.await_all()
    land.watch(lambda: land.seen("later"), "where the reader is")
    cloud = canals()[land.address("cloud")]
    land.apply(UPPER, {**COUNT, "state": "stopped"}, outputs=OUTPUTS)
    land.feed()
    wait_for(lambda: cloud.log("mid").end == 40, "what waits for the job that is stopped", 60)
    (count,) = [reader for reader, topic in cloud.places if topic == "mid"]
    lost = [("later", "out"), (count, "mid")]
    with cloud.lock:
        for key in lost:
            del cloud.places[key]

    land.watch(lambda: cloud.places.keys() >= set(lost), "the places")
    land.watch(lambda: len(land.events("it goes on where its reader was last seen")) == 2, "events")
    view = land.service.connections.broker("cloud").view()
    assert view.lag("later", "out", []) == 20
    assert view.lag(count, "mid", []) == 20
    with pytest.raises(ConflictError, match="about 20 messages"):
        land.service.compositions.delete("c", DONE.wait_s)
    land.apply(UPPER, COUNT, outputs=OUTPUTS)
    land.await_all()


@pytest.mark.long
@pytest.mark.parametrize("way", ["cut", "made anew", "trimmed"])
def test_what_a_log_has_lost_is_counted(land: Land, way: str) -> None:
    land.apply(UPPER, COUNT, outputs=OUTPUTS)
    land.feed()
    land.await_all()
    land.watch(lambda: land.seen("later"), "where the reader is")
    cloud = canals()[land.address("cloud")]
    if way == "cut":
        cloud.commit("later", "out", cloud.ends("out"))
        cloud.cut("out", 5)
    elif way == "made anew":
        cloud.make_anew("out")
    else:
        cloud.trim("out", 7)
    if way == "trimmed":
        land.watch(lambda: land.events("messages lost"), "what was lost")
        (lost,) = land.events("messages lost")
        assert lost.startswith("messages lost on link cloud/out: 7 of ")
        assert land.service.watch.sessions.lost_at("cloud") == 7
    else:
        land.watch(lambda: land.events("the session of later"), "what was lost")
        (lost,) = land.events("the session of later")
        assert "was lost and is reserved again; it goes on where" in lost
        total = cloud.log("out").end
        view = land.service.connections.broker("cloud").view()
        assert view.lag("later", "out", []) == total, "nothing of it counts as taken"


def test_what_waits_in_a_log_is_counted_whoever_wrote_it(land: Land) -> None:
    land.apply(UPPER, COUNT)
    land.apply({**UPPER, "state": "stopped"}, COUNT)
    land.feed(7)
    with pytest.raises(ConflictError, match="about 7 messages"):
        land.service.compositions.delete("c", DONE.wait_s)


def test_what_it_does_not_offer_is_refused_by_its_name(land: Land) -> None:
    with pytest.raises(InvalidError) as refused:
        land.apply({**UPPER, "entry_class": "a.B"}, {**COUNT, "sink_topic": "a/b"})
    faults = {problem.path: problem.message for problem in refused.value.problems}
    assert faults["jobs[0].entry_class"] == "a pattern has no entry; leave it out"
    assert faults["jobs[1].sink_topic"].startswith("is no name of a log")
    with pytest.raises(ConflictError, match="has no capability `metrics`"):
        land.service.calibrations.run("edge-a")
    for act in (
        lambda: land.service.links.publish("edge-a", "a/b", [b"x"]),
        lambda: land.service.links.tap("edge-a", "a/b", 1, 1.0),
    ):
        with pytest.raises(InvalidError, match=r"topic is no name of a log.*kind canal of site"):
            act()
    assert canals()[land.address("edge-a")].logs.keys() <= {"raw"}
    land.apply(UPPER)
    assert land.service.jobs.metrics("upper").metrics == {}
    check = land.service.sites.check("edge-a")
    assert {f.part for f in check if f.severity == "error"} == set()


@pytest.mark.parametrize(
    ("part", "body", "fault"),
    [
        ("spe", {"kind": "loom", "address": "http://a:1"}, "through the site's agent"),
        ("broker", {"kind": "canal", "address": "tcp://a:1"}, "is not an address like canal://"),
        ("spe", {"kind": "flink"}, "missing"),
    ],
)
def test_its_addresses_are_its_own_business(
    land: Land, part: str, body: JsonObject, fault: str
) -> None:
    site = {
        "name": "x",
        "tier": "edge",
        "spe": {"kind": "loom"},
        "broker": {"kind": "canal", "address": "canal://x"},
    }
    assert site_from_data(site).broker.address == "canal://x:4711"
    with pytest.raises(InvalidError, match=fault):
        site_from_data({**site, part: body})


@pytest.mark.long
def test_an_engine_goes_on_beside_one_that_is_away(tmp_path: Path) -> None:
    """The looms run beside engines that do not answer: their jobs are started, updated, moved with
    their state and watched as if nothing was, and what only the others can do is not planned."""
    with open_land(tmp_path, beside=True) as land:
        others = [World.current().engine(land.engine(site)["address"]) for site in SITES]
        for other in others:
            other.capabilities = frozenset()
        land.service.connections.close()  # a binder tells its capabilities when it is opened
        applied = land.apply(UPPER, COUNT)
        assert any("that takes kind text has no capability `trial`" in w for w in applied.warnings)
        land.feed()
        land.await_all()
        for other in others:
            other.unreachable = True
        land.watch(
            lambda: land.events("one of the two engines of edge-a does not answer"), "events"
        )
        land.apply({**UPPER, "args": ["--gently"]}, {**COUNT, "site": "edge-a"})
        land.feed()
        land.await_all()
        assert land.service.jobs.savepoint("upper", 60.0).location is not None
        site = land.service.sites.get("edge-a")
        assert site.state == "degraded"
        assert "engine: cannot reach" in (site.error or "")
        assert {job.state for job in land.service.jobs.all()} == {"running"}
        for other in others:
            other.unreachable = False

        # the other way round: nothing is concluded of the jobs of a loom that is away
        land.agents["edge-a"].stop()
        land.watch(lambda: land.service.jobs.get("count").state == "unreachable", "its state")
        assert land.service.sites.get("edge-a").state == "degraded"
        land.start_agent("edge-a")
        heard(land.service, *SITES)
        land.watch(lambda: land.service.jobs.get("count").state == "running", "its state")
        assert land.service.compositions.delete("c", DONE.wait_s).done
