"""Real agents, real HTTP: state travels between two folders, straight or relayed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from speck.service import Service
from tests.agents import (
    AgentProcess,
    answering,
    carried,
    heard,
    large,
    transfer,
    write_state,
)
from tests.memory_fog import memory_service, site_body


@dataclass
class Field:
    """A service of edge-a and edge-b, whose agents a test starts."""

    service: Service
    url: str
    folder: Path
    agents: dict[str, AgentProcess] = field(default_factory=dict)

    def state(self, site: str) -> Path:
        return self.folder / site

    def start(self, site: str, *options: str) -> AgentProcess:
        self.agents[site] = AgentProcess(site, self.url, self.state(site), options)
        return self.agents[site]

    def start_both(self, *, direct: bool = True) -> None:
        self.start("edge-a")
        self.start("edge-b", *(["--listen", "127.7.7.2:0"] if direct else []))
        heard(self.service, "edge-a", "edge-b")


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Field]:
    alone = [{**site_body(name), "labels": {}} for name in ("edge-a", "edge-b")]
    with memory_service(tmp_path, alone) as service, answering(service) as url:
        made = Field(service, url, tmp_path / "states")
        yield made
        for agent in made.agents.values():
            agent.kill()


@pytest.mark.parametrize("direct", [True, False], ids=["direct", "relayed"])
def test_a_state_travels(sites: Field, direct: bool) -> None:
    sites.start_both(direct=direct)
    files = {"state-1": large(3), "state-2": b""}
    origin = write_state(sites.state("edge-a") / "savepoints/counter/x/savepoint-1", 9, files)
    progress = carried(sites.service, transfer(origin))
    assert progress.failure is None
    arrived = Path(str(progress.location).removeprefix("file://"))
    assert arrived.is_relative_to(sites.state("edge-b"))
    assert {f.name: f.read_bytes() for f in arrived.iterdir()} == {
        f.name: f.read_bytes() for f in origin.iterdir()
    }
    assert list((sites.state("edge-b") / "carried/.arriving").iterdir()) == []
    (event,) = [e for e in sites.service.records.events() if "carried" in e["message"]]
    assert ("(direct)" if direct else "(relayed)") in event["message"]
