"""Mosquitto at two edges and Kafka in the cloud: a chain from one into the other is moved, rewired,
hit by kills and removed, under a flow whose publisher and checker count by their own numbers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
import requests

from speck.binding import Target, open_broker
from speck.fog.sites import Fog
from speck.model.values import JsonObject
from tests.apart import apart_fog
from tests.e2e.killable import Flow, Killable
from tests.waiting import wait_for

NOT_RUNNING = {"FINISHED", "CANCELED", "FAILED"}


@pytest.fixture(scope="module")
def kafka_fog(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fog]:
    """edge-a and edge-b with Mosquitto, cloud with Kafka; no site can read another's state."""
    fog = apart_fog(tmp_path_factory.mktemp("kafka-fog"))
    fog.up(edges=2, slots=4, cloud_slots=6, shared_state=False, cloud_broker="kafka")
    yield fog
    fog.down()


class Chain(Killable):
    """<name>-pass, from Mosquitto into Kafka, and <name>-count behind it, with or without a third
    job between them; the checker reads what the last one writes."""

    def chain(
        self,
        *,
        first: str = "edge-a",
        last: str = "cloud",
        between: str | None = None,
        note: int = 0,
        delivery: str = "exactly_once",
    ) -> JsonObject:
        """The composition with its jobs at these sites."""
        source = ("cloud", "mid" if between is None else "kept")
        jobs = [
            self._job("pass", "PassThrough", first, ("edge-a", "in"), ("cloud", "mid"), note),
            self._job("count", "Counting", last, source, ("cloud", "out"), note),
        ]
        if between is not None:
            kept = ("cloud", "kept")
            jobs.append(self._job("keep", "PassThrough", between, ("cloud", "mid"), kept, 0))
        output = {"site": "cloud", "topic": f"{self.name}.out", "client_id": f"{self.name}-end"}
        return {
            "name": self.name,
            "defaults": {"delivery": delivery},
            "jobs": jobs,
            "inputs": [{"site": "edge-a", "topic": f"{self.name}.in"}],
            "outputs": [output],
        }

    def kill_broker(self, flow: Flow, site: str = "cloud") -> None:
        """kill -9, and a new start; the flow goes on."""
        self.fog.kill(site, "broker")
        self.fog.start(site)
        flow.go_on()

    def kill_in_mid_change(self, composition: JsonObject, after_s: float) -> None:
        """The service dies so long after it has accepted a change; its next life ends that."""
        with self.running():
            accepted = self.call("POST", "/compositions", json=composition)
            assert accepted.status_code == 202, accepted.text
            threading.Event().wait(after_s)  # any instant will do
            self.kill()
        with self.running():
            assert self.settled()["id"] == accepted.json()["change"]
            wait_for(self.all_run, "all jobs to run")

    def remove_drained(self) -> None:
        """Remove it, with its jobs taking what is queued between them; nothing stays behind."""
        answer = self.call("DELETE", f"/compositions/{self.name}", params={"wait": 120})
        assert answer.status_code == 204, answer.text
        left = [
            f"{site.name}: {state}"
            for site in self.fog.sites()
            for state in states_at(site.engine_address)
            if state not in NOT_RUNNING
        ]
        for site in self.fog.sites():
            view = open_broker(site.broker, Target(site.broker_address, timeout_s=20)).view()
            left += [f"{site.name}: session {reader} of {topic}" for reader, topic in view.sessions]
            left += [f"{site.name}: numbers of {client}" for client in (*view.taken, *view.sent)]
        assert left == []

    def engine_logs(self) -> str:
        """What the engines have written, with the logs of jobs."""
        files = (self.fog.folder / "sites").glob("*/engine/log/*.log")
        return "".join(file.read_text() for file in files)


def states_at(engine: str) -> list[str]:
    jobs = requests.get(f"{engine.rstrip('/')}/jobs/overview", timeout=30).json()["jobs"]
    return [str(job["state"]) for job in jobs]


def test_a_chain_from_mosquitto_into_kafka(kafka_fog: Fog, jars: Path, tmp_path: Path) -> None:
    speck = Chain(kafka_fog, tmp_path / "home", jars, "into")
    with speck.running():
        speck.register()
        speck.apply(speck.chain())
        with speck.watched() as flow:
            flow.go_on()
            speck.apply(speck.chain(last="edge-b"))  # with its state, which only agents can bring
            flow.go_on()
        assert flow.count is not None
        assert flow.count.repeated == 0, flow.count
        speck.remove_drained()
    logs = speck.engine_logs()
    assert "connected to kafka://" in logs
    assert "Config values:" not in logs, "Kafka's clients write a hundred lines each time"


@pytest.mark.long
@pytest.mark.parametrize("delivery", ["exactly_once", "at_least_once"])
def test_a_chain_into_kafka_is_rewired_and_hit_by_kills(
    delivery: str, kafka_fog: Fog, jars: Path, tmp_path: Path
) -> None:
    speck = Chain(kafka_fog, tmp_path / "home", jars, f"hit-{delivery[:2]}")
    chain = partial(speck.chain, delivery=delivery)
    with speck.running():
        speck.register()
        speck.apply(chain())
    with speck.watched() as flow:
        flow.go_on()
        with speck.running():
            speck.apply(chain(last="edge-b"))
            flow.go_on()
            speck.apply(chain(last="edge-b", between="cloud"))
            flow.go_on()
            speck.kill_broker(flow)
            speck.kill_broker(flow, "edge-a")
            speck.apply(chain(last="edge-b", between="edge-a", note=1))
            flow.go_on()
        for number in range(1, 4):
            first, between = (("edge-a", "cloud"), ("edge-b", None))[number % 2]
            changed = chain(first=first, between=between, note=number)
            speck.kill_in_mid_change(changed, 0.5 * number)
            flow.go_on()
    assert flow.count is not None
    assert flow.count.repeated == 0, flow.count
    with speck.running():
        assert {it["cause"] for it in speck.changes()} == {"apply"}, "nothing needed a repair"
        speck.remove_drained()
