"""Sites with the engine and the broker of a third party (tests/third_party), beside real agents."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

from speck.agent.agent import Agent, Settings
from speck.binding import open_links
from speck.config import Config
from speck.deploy.execution import Bounds
from speck.deploy.operations import Patience
from speck.model.accepted import Accepted
from speck.model.record import Record
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

    def engine(self, site: str) -> JsonObject:
        """A loom beside an engine that takes other artifacts."""
        address = f"http://{site}-{self.suffix}:8081"
        return {"kind": "memory", "address": address, "beside": {"kind": "loom"}}

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
        return self.apply_body(body)

    def apply_body(self, body: JsonObject, request: ApplyRequest = DONE) -> Accepted:
        answer = self.service.compositions.apply(composition_from_data(body), request)
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


def woven(name: str, pattern: str, site: str, source: str, sink: str, **more: Any) -> JsonObject:
    """A job between links, each written `site/topic`."""
    ends = {}
    for end, link in (("source", source), ("sink", sink)):
        ends[f"{end}_site"], ends[f"{end}_topic"] = link.split("/")
    return {"job_name": name, "job_path": f"{pattern}.txt", "site": site, **ends, **more}


@contextmanager
def open_land(tmp_path: Path, *sites: str, beside: bool = False) -> Iterator[Land]:
    """Two sites, or those that are named; the looms may run `beside` other engines."""
    sites = sites or SITES
    with ExitStack() as stack:
        stack.enter_context(third_party())
        (tmp_path / "patterns").mkdir()
        for name in ("upper", "count"):
            (tmp_path / "patterns" / f"{name}.txt").write_text(f"weave {name}")
        config = Config(
            home=tmp_path / "home", jar_folders=(tmp_path / "patterns",), simulated=beside
        )
        land = Land(config, tmp_path / "states", uuid4().hex[:6])
        land.serve()
        stack.callback(land.leave)
        for site in sites:
            (land.folder / site).mkdir(parents=True)
            land.start(site)
            stack.callback(lambda site=site: land.runners[site].stop())
            land.service.sites.add(
                site_from_data(
                    {
                        "name": site,
                        "tier": "cloud" if site == "cloud" else "edge",
                        "spe": land.engine(site) if beside else {"kind": "loom"},
                        "broker": {"kind": "canal", "address": land.address(site)},
                    }
                )
            )
            land.start_agent(site)
            stack.callback(lambda site=site: land.agents[site].stop())
        heard(land.service, *sites)
        reader = open_links("canal", land.address("cloud")).reader(
            "out", "spy", land.records.append, lambda _: None
        )
        stack.enter_context(reader)
        yield land
