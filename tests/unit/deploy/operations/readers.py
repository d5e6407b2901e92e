"""Readers of a link in operations' tests: their sessions, what they take, and their drains."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import pytest

from binders.memory import MemoryBroker
from speck.binding import Artifact
from speck.deploy.operations import Patience, Refills, links
from speck.deploy.operations.context import Context
from speck.deploy.operations.draining import Draining
from speck.deploy.operations.gathering import Gathering
from speck.deploy.operations.outcome import Done, Waiting
from speck.deploy.operations.shared_views import SharedViews
from speck.model.engines import ArtifactKind
from speck.model.ids import source_client_id
from speck.model.incarnation import Session
from speck.model.job import Job
from speck.model.link_operations import Drain, HandOver, Release
from speck.model.observation import BrokerView, Position, Sent, Taken
from speck.service.agents import Agents
from tests.memory_fog import HASTY
from tests.service_helpers import broker
from tests.unit.deploy.bench import Bench, job, start

EPOCH = (1 << 32) + 1
OLD, NEW = "speck-i-Old-1", "speck-i-New-1"


def session(client_id: str, name: str, **more: object) -> Session:
    """On the link that A reads."""
    return replace(Session(client_id, job("A").source, "edge-a", name), **more)  # type: ignore[arg-type]


def put(bench: Bench, *sessions: Session) -> None:
    bench.records.write(*(bench.records.sessions.put("c", each) for each in sessions))


def stored(bench: Bench) -> dict[str, Session]:
    return {each.client_id: each for each in bench.records.sessions.of_scope("c")}


HAND_OVER = HandOver("edge-a", job("A").source, NEW, "New", OLD, "Old")


def keep_logs(monkeypatch: pytest.MonkeyPatch, ends: Position) -> None:
    """Let the broker keep a log of A's link, which ends there."""
    view = MemoryBroker.view
    monkeypatch.setattr(
        MemoryBroker,
        "view",
        lambda broker, clients=None: replace(view(broker, clients), ends={"A-in": ends}),
    )


def reader_of(bench: Bench, of: Job) -> str:
    return source_client_id(bench.records.installation, of.job_name, of.source)


SINK = "speck-i-P-1-out"
PATIENT = replace(HASTY, drain_idle_s=1000.0, drain_ask_s=100.0, drain_mark_s=10.0)


@dataclass
class Reader:
    """A drain of A's link by a reader that a test speaks for."""

    bench: Bench
    patience: Patience = PATIENT

    def view(self, site: str, client_ids: Collection[str] | None = None) -> BrokerView:
        return self.bench.connections.broker(site).view(client_ids)

    def forget(self, site: str, sinks: Collection[str]) -> None:
        self.bench.connections.broker(site).forget(*sinks)

    def context(self) -> Context:
        return Context(
            self.bench.connections,
            self.bench.records,
            self.bench.clock,
            "c",
            lambda sha256: Artifact(sha256, self.bench.folder / "a.jar", ArtifactKind.JAR),
            self.patience,
            Agents(self.bench.records, self.bench.records.sites.all, self.bench.clock),
            Refills(self.bench.connections, self.bench.clock, 0.0),
            self.bench.resends(),
            SharedViews(self.view),
            Gathering(self.forget),
        )

    def drain(self, **more: object) -> Draining:
        running = start("A").engine_job_id
        drain = Drain("edge-a", job("A").source, OLD, "Old", (), "edge-a", running)
        return Draining(replace(drain, **more), self.context())  # type: ignore[arg-type]

    def has_taken(self, number: int, mark: str | None = None) -> None:
        broker("edge-a").taken[OLD] = Taken(1, {"i-P": {EPOCH: number}}, messages=number, mark=mark)

    def takes_marks(self) -> None:
        broker("edge-a").connect(OLD, "A-in", "the old one")

    @property
    def marks(self) -> list[str]:
        """Those that wait in its session."""
        queue = broker("edge-a").sessions[OLD].queue
        return [message.mark for message in queue if message.mark]


def sent(number: int, at_ms: int = 0, topic: str | None = "A-in") -> None:
    broker("edge-a").sent[SINK] = Sent("i-P", EPOCH, number, at_ms, topic=topic)


def ends(drain: Draining) -> bool:
    """Whether it ends at this look."""
    outcome = drain.poll()
    assert isinstance(outcome, Done | Waiting)
    return isinstance(outcome, Done)


def release(context: Context) -> None:
    leaving = Release("edge-a", job("A").source, context.source_client_id(job("A")), "A", False)
    links.release(context, leaving)
