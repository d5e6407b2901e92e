"""A speck of its own over the fog whose process, disk and clock may be spoilt, under a flow.

A chain of a job without state and one with state carries numbered messages all the time; a
witness watches the engines. Whatever happens to the service: at the end nothing may be lost, no
state either, and no job may ever have run twice at once.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import requests

from bench.instruments.checker import Checker, Count
from bench.instruments.duplicate_monitor import DuplicateMonitor
from bench.instruments.feed import Feed
from speck.fog.ports import pick_port
from speck.fog.sites import Fog
from speck.model.values import JsonObject
from tests.server_process import Server, serving
from tests.waiting import wait_for

RATE = 200.0
OVER = {"done", "failed", "cancelled"}


@dataclass
class Killable:
    """The service's home and address, over all its lives; `server` is the present one."""

    fog: Fog
    home: Path
    jars: Path
    name: str
    env: dict[str, str] = field(default_factory=dict)
    port: int = field(default_factory=lambda: pick_port("127.0.0.1", 0))
    server: Server | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @contextmanager
    def running(self, prepare: Callable[[], None] | None = None) -> Iterator[Server]:
        """One life of the service; remaining processes are killed at the end."""
        env = {"SPECK_JARS": str(self.jars), "SPECK_PORT": str(self.port), **self.env}
        with serving(self.home, prepare, **env) as self.server:
            yield self.server

    def kill(self) -> None:
        """kill -9 of master and worker at once."""
        assert self.server is not None
        os.killpg(self.server.process.pid, signal.SIGKILL)
        self.server.process.wait(240)

    def pids(self) -> list[int]:
        assert self.server is not None
        return [self.server.process.pid, *self.server.workers()]

    # -- HTTP -----------------------------------------------------------------------------

    def call(self, method: str, path: str, **more: object) -> requests.Response:
        return requests.request(method, self.url + path, timeout=180, **more)  # type: ignore[arg-type]

    def status(self, path: str) -> int:
        """The status of a GET; 0 while there is no answer."""
        try:
            return self.call("GET", path).status_code
        except requests.RequestException:
            return 0

    def register(self) -> None:
        """The fog's sites, whose agents ask this service from now on."""
        for body in self.fog.site_bodies():
            assert self.call("POST", "/sites", json=body).status_code in (200, 201)
        self.fog.start_agents(self.url)

        def heard() -> bool:
            return all(it["last_seen"] for it in self.call("GET", "/sites").json()["sites"])

        wait_for(heard, "word from the agents")

    def apply(self, description: JsonObject) -> JsonObject:
        """Apply and wait until it is done."""
        answer = self.call("POST", "/compositions", json=description, params={"wait": 120})
        assert answer.status_code == 200, answer.text
        assert answer.json()["state"] == "done", self.call(
            "GET", f"/changes/{answer.json()['change']}"
        ).text
        return answer.json()  # type: ignore[no-any-return]

    def changes(self) -> list[JsonObject]:
        """Heads of all changes, newest first."""
        changes: list[JsonObject] = self.call("GET", "/changes").json()["changes"]
        return changes

    def all_run(self) -> bool:
        """Whether every job runs. After a new start the first look at the engines may be older
        than the end of a change."""
        jobs = self.call("GET", "/jobs").json()["jobs"]
        return {job["state"] for job in jobs} == {"running"}

    def newest_change(self) -> JsonObject | None:
        """None while the service does not answer, or knows none."""
        with suppress(requests.RequestException):
            answer = self.call("GET", "/changes", params={"composition": self.name})
            if answer.ok and answer.json()["changes"]:
                head: JsonObject = answer.json()["changes"][0]
                return head
        return None

    def settled(self) -> JsonObject:
        """Wait until no change is under way; the newest one, which must be done."""

        def over() -> JsonObject | None:
            change = self.newest_change()
            return change if change and change["state"] in OVER else None

        change = wait_for(over, "the change to be over", 120.0)
        assert change["state"] == "done", self.call("GET", f"/changes/{change['id']}").text
        return change

    def remove(self) -> None:
        answer = self.call(
            "DELETE",
            f"/compositions/{self.name}",
            params={"wait": 120, "drop_queues": "true", "drain_limit": 0},
        )
        assert answer.status_code == 204, answer.text

    # -- what is on the engines -----------------------------------------------------------

    def on_engines(self) -> set[str]:
        """Ids of all incarnations that any engine lists, ended ones too."""
        names: set[str] = set()
        for site in self.fog.sites():
            jobs = requests.get(f"{site.engine_address.rstrip('/')}/jobs/overview", timeout=30)
            names |= {
                job["jid"] for job in jobs.json()["jobs"] if job["name"].startswith(self.name)
            }
        return names

    def variant(self, number: int) -> JsonObject:
        """A composition whose neighbours differ by an update or a move of each job."""
        sites = [
            ("edge-a", "cloud"),
            ("edge-b", "cloud"),
            ("edge-b", "edge-c"),
            ("cloud", "edge-c"),
        ]
        first, second = sites[number % len(sites)]
        return {
            "name": self.name,
            "jobs": [
                self._job("pass", "PassThrough", first, ("edge-a", "in"), ("cloud", "mid"), number),
                self._job("count", "Counting", second, ("cloud", "mid"), ("cloud", "out"), number),
            ],
            "inputs": [{"site": "edge-a", "topic": f"{self.name}.in"}],
            "outputs": [
                {"site": "cloud", "topic": f"{self.name}.out", "client_id": f"{self.name}-end"}
            ],
        }

    def _job(
        self,
        short: str,
        entry: str,
        site: str,
        source: tuple[str, str],
        sink: tuple[str, str],
        note: int,
    ) -> JsonObject:
        return {
            "job_name": f"{self.name}-{short}",
            "site": site,
            "source_site": source[0],
            "source_topic": f"{self.name}.{source[1]}",
            "sink_site": sink[0],
            "sink_topic": f"{self.name}.{sink[1]}",
            "entry_class": f"io.speck.jobs.{entry}",
            "job_path": "speck-jobs.jar",
            "args": ["--note", str(note)],
        }

    @contextmanager
    def watched(self) -> Iterator[Flow]:
        """A flow through the chain, which must have been applied, and the final judgement."""
        brokers = {site.name: site.broker_address for site in self.fog.sites()}
        engines = {site.name: site.engine_address for site in self.fog.sites()}
        run = f"{self.name}-{time.time_ns()}"
        with (
            DuplicateMonitor(engines) as witness,
            Checker(brokers["cloud"], f"{self.name}.out", f"{self.name}-end") as checker,
            Feed(brokers["edge-a"], f"{self.name}.in", rate=RATE, run=run) as feed,
        ):
            flow = Flow(feed, checker, witness, self.name)
            yield flow
            flow.judge()


@dataclass
class Flow:
    """Published and received numbers, and the observations meanwhile."""

    feed: Feed
    checker: Checker
    witness: DuplicateMonitor
    name: str
    count: Count | None = None

    def go_on(self, more: int = 50) -> None:
        """Wait until so many messages more have come through."""
        self.checker.await_number(self.checker.distinct + more)

    def judge(self) -> None:
        """Nothing is lost, state neither, and no job was there twice."""
        published = self.feed.end()
        self.count = count = self.checker.await_all(published)
        assert (count.lost, count.stray, count.miscounted) == (0, 0, 0), count
        assert [n for n in self.witness.two_copies() if n.startswith(self.name)] == []
