"""An engine and a broker of a third party, which share no word with those that speck brings: all
that speck promises holds for them, from a composition's document to its records."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from speck.agent.agent import Agent, Settings
from speck.binding import open_links
from speck.config import Config
from speck.deploy.execution import Bounds
from speck.deploy.operations import Patience
from speck.errors import ConflictError, InvalidError
from speck.model.accepted import Accepted
from speck.model.batches import Record
from speck.model.values import JsonObject
from speck.service import Service
from speck.service.compositions import ApplyRequest
from speck.spec.schema import composition_from_data
from speck.spec.site_schema import site_from_data
from tests.agents import answering, heard
from tests.third_party_kinds import canals, third_party
from tests.waiting import wait_for

DONE = ApplyRequest(wait_s=240.0)
SITES = ("edge-a", "cloud")


@dataclass
class Land:
    """Two sites, each with a loom beside its agent and a canal."""

    config: Config
    folder: Path
    suffix: str
    url: str = ""
    runners: dict[str, Any] = field(default_factory=dict)
    agents: dict[str, Agent] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)
    fed: int = 0
    watches: bool = False

    def address(self, site: str) -> str:
        return f"canal://{site}-{self.suffix}:4711"

    def serve(self) -> None:
        """Open the service, at the address that it had before."""
        bounds = Bounds(retry_first_s=0.05, retry_most_s=0.5)
        self.service = Service(self.config, bounds=bounds, patience=Patience())
        self._serving = ExitStack()
        self._serving.callback(self.service.close)
        if self.watches:
            self.service.watch.start()
        port = int(self.url.rpartition(":")[2]) if self.url else 0
        self.url = self._serving.enter_context(answering(self.service, port))

    def leave(self) -> None:
        self._serving.close()

    def start(self, site: str) -> None:
        from loomcanal.runner import LoomRunner

        self.runners[site] = LoomRunner(self.folder / site)

    def revive(self, site: str) -> None:
        """Start an engine again once it has died."""
        wait_for(lambda: self.runners[site].dead, f"the engine of {site} to die", 60)
        self.runners[site].stop()
        self.start(site)

    def start_agent(self, site: str) -> None:
        self.agents[site] = Agent(Settings(site, self.url, self.folder / site, beat_s=1.0))
        threading.Thread(target=self.agents[site].run, daemon=True).start()

    def apply(self, *jobs: JsonObject, **more: Any) -> Accepted:
        outputs = [{"site": "cloud", "topic": "out", "client_id": "spy"}]
        inputs = [{"site": "edge-a", "topic": "raw"}]
        body = {"name": "c", "jobs": list(jobs), "inputs": inputs, "outputs": outputs, **more}
        answer = self.service.compositions.apply(composition_from_data(body), DONE)
        assert answer.state == "done", self.service.changes.get(answer.change)
        return answer

    def watch(self, until: Callable[[], object], what: str) -> None:
        """Let the watch poll, and do what follows from it, until something holds."""

        def poll() -> bool:
            self.service.watch.poll()
            return self.service.watch.sessions.idle and bool(until())

        wait_for(poll, what, 60)

    def events(self, part: str) -> list[str]:
        """The messages of the events that hold a text."""
        return [e.message for e in self.service.records.events.after() if part in e.message]

    def seen(self, reader: str) -> bool:
        """Whether it is stored where the readers of all logs are."""
        return any(seen.client_id == reader for seen in self.service.records.sessions.all_seen())

    def feed(self, count: int = 20) -> None:
        payloads = [b"r%d" % number for number in range(self.fed, self.fed + count)]
        self.service.links.publish("edge-a", "raw", payloads)
        self.fed += count

    def await_all(self) -> None:
        """Every record has come out once, in its order, and none was counted twice."""
        wait_for(lambda: len(self.records) >= self.fed, f"{self.fed} records", 120)
        texts = [record.payload.decode() for record in self.records]
        assert texts == [f"R{number}:{number + 1}" for number in range(self.fed)]
        stamps = [record.stamp for record in self.records]
        assert len(set(stamps)) == len(stamps)

    def places(self, site: str) -> set[str]:
        """The readers that a canal has a place for."""
        return {reader for reader, _ in canals()[self.address(site)].places}


@pytest.fixture
def land(tmp_path: Path) -> Iterator[Land]:
    with ExitStack() as stack:
        stack.enter_context(third_party())
        (tmp_path / "patterns").mkdir()
        for name in ("upper", "count"):
            (tmp_path / "patterns" / f"{name}.txt").write_text(f"weave {name}")
        config = Config(home=tmp_path / "home", jar_folders=(tmp_path / "patterns",))
        land = Land(config, tmp_path / "states", uuid4().hex[:6])
        land.serve()
        stack.callback(land.leave)
        for site in SITES:
            (land.folder / site).mkdir(parents=True)
            land.start(site)
            stack.callback(lambda site=site: land.runners[site].stop())
            land.service.sites.add(
                site_from_data(
                    {
                        "name": site,
                        "tier": "cloud" if site == "cloud" else "edge",
                        "spe": {"kind": "loom"},
                        "broker": {"kind": "canal", "address": land.address(site)},
                    }
                )
            )
            land.start_agent(site)
            stack.callback(lambda site=site: land.agents[site].stop())
        heard(land.service, *SITES)
        reader = open_links("canal", land.address("cloud")).reader(
            "out", "spy", land.records.append, lambda _: None
        )
        stack.enter_context(reader)
        yield land


def woven(name: str, pattern: str, site: str, source: str, sink: str, **more: Any) -> JsonObject:
    """A job between links, each written `site/topic`."""
    ends = {}
    for end, link in (("source", source), ("sink", sink)):
        ends[f"{end}_site"], ends[f"{end}_topic"] = link.split("/")
    return {"job_name": name, "job_path": f"{pattern}.txt", "site": site, **ends, **more}


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
