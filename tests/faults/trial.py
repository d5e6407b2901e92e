"""One trial: a chain over a fog, a service of its own, a counter, and somebody who breaks things.

    feed -> edge-a:in -> <name>-pass -> cloud:mid -> <name>-count -> cloud:out -> checker

The sites are registered under proxies. Faults of a proxy meet the service only; what flows between
the sites passes through it undisturbed.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from bench.instruments.checker import Checker, Count
from bench.instruments.duplicate_monitor import DuplicateMonitor
from bench.instruments.feed import Feed
from bench.instruments.proxy import Proxy
from speck.errors import TransientError
from speck.fog.service import Served, serving
from speck.fog.site_record import KAFKA, SiteRecord
from speck.fog.sites import Fog
from speck.model.values import JsonObject
from tests.waiting import wait_for

RATE = float(os.environ.get("SPECK_FAULTS_RATE", "1000"))
FILE_VARIABLE = "SPECK_FAULTS_FILE"
PAUSE = threading.Event()


@dataclass
class Result:
    """What a trial found; `recovery_s`: from the end of the fault until the chain's end got
    something that was published after it, the longest of all faults of the trial."""

    count: Count
    two_copies: list[str]
    resent: int
    recovery_s: float | None


@dataclass
class Trial:
    """A service over the fog's sites, and one composition that flows; `name` is unique."""

    name: str
    fog: Fog
    home: Path
    jars: Path
    delivery: str
    stack: ExitStack = field(default_factory=ExitStack)
    proxies: dict[str, dict[str, Proxy]] = field(default_factory=dict)
    recoveries: list[float] = field(default_factory=list)
    _service: ExitStack = field(default_factory=ExitStack)
    _served: Served | None = None

    # -- the service ----------------------------------------------------------------------

    @property
    def served(self) -> Served:
        assert self._served is not None
        return self._served

    def start_service(self) -> None:
        """Start it over its home, or start it again; the proxies then disturb this process."""
        self._service = ExitStack()
        port = urlsplit(self._served.url).port if self._served else None
        self._served = self._service.enter_context(serving(self.home, [self.jars], port=port or 0))
        for proxies in self.proxies.values():
            for proxy in proxies.values():
                proxy.disturb_only(self.served.process.pid)

    def kill_service(self) -> None:
        """SIGKILL it with its workers, and wait."""
        process = self.served.process
        family = [process.pid, *_children(process.pid)]
        for pid in family:
            os.kill(pid, signal.SIGKILL)
        process.wait()
        self._service.close()

    def call(self, method: str, path: str, *statuses: int, **more: Any) -> JsonObject:
        """One request; its status must be one of `statuses` (200)."""
        answer = requests.request(method, self.served.url + path, timeout=400, **more)
        assert answer.status_code in (statuses or (200,)), f"{answer.status_code} {answer.text}"
        body: JsonObject = answer.json() if answer.content else {}
        return body

    # -- the chain ------------------------------------------------------------------------

    def register(self) -> None:
        """Put a proxy before each engine and broker, and register the sites under them."""
        for site in self.fog.sites():
            self.proxies[site.name] = {
                "engine": self.stack.enter_context(Proxy(site.host, (site.host, site.engine_port))),
                "broker": self.stack.enter_context(Proxy(site.host, (site.host, site.broker_port))),
            }
        self.start_service()
        for site in self.fog.sites():
            proxies = self.proxies[site.name]
            body = {
                "name": site.name,
                "tier": site.tier,
                "spe": {"kind": "flink", "address": proxies["engine"].http},
                "broker": {"kind": site.broker, "address": self._broker_through_proxy(site)},
            }
            self.call("POST", "/sites", 201, json=body)
        self.fog.start_agents(self.served.url)
        wait_for(self._agents_are_there, "an agent at each site")

    def _broker_through_proxy(self, site: SiteRecord) -> str:
        """Clients of Kafka go on to the address that Kafka itself names: a proxy would be for
        nothing."""
        if site.broker == KAFKA:
            return site.broker_address
        return self.proxies[site.name]["broker"].tcp

    def _agents_are_there(self) -> bool:
        return all(it.get("last_seen") for it in self.call("GET", "/sites")["sites"])

    def job(self, short: str) -> str:
        return f"{self.name}-{short}"

    def chain(
        self, *, first_at: str = "edge-a", second_at: str = "cloud", note: int = 0, **more: object
    ) -> JsonObject:
        """The composition, with its jobs at these sites."""

        def job(short: str, entry: str, at: str, source: str, sink: str) -> JsonObject:
            return {
                "job_name": self.job(short),
                "site": at,
                "source_site": source.split(":")[0],
                "source_topic": f"{self.name}.{source.split(':')[1]}",
                "sink_site": sink.split(":")[0],
                "sink_topic": f"{self.name}.{sink.split(':')[1]}",
                "entry_class": f"io.speck.jobs.{entry}",
                "job_path": "speck-jobs.jar",
                "delivery": self.delivery,
                "args": ["--note", str(note)],
            }

        return {
            "name": self.name,
            "jobs": [
                job("pass", "PassThrough", first_at, "edge-a:in", "cloud:mid"),
                job("count", "Counting", second_at, "cloud:mid", "cloud:out"),
            ],
            "inputs": [{"site": "edge-a", "topic": f"{self.name}.in"}],
            "outputs": [{"site": "cloud", "topic": f"{self.name}.out", "client_id": self.client}],
            **more,
        }

    @property
    def client(self) -> str:
        return f"{self.name}-end"

    def broker(self, site: str) -> str:
        """A broker's own address, past the proxy."""
        return next(it.broker_address for it in self.fog.sites() if it.name == site)

    def apply(
        self, composition: JsonObject, state: str = "done", wait_s: float = 300
    ) -> JsonObject:
        """Apply and wait for the change, which must end in `state`."""
        answer = self.call("POST", "/compositions", 200, 202, json=composition, params={"wait": 0})
        self.await_change(answer["change"], state, wait_s)
        return answer

    def begin(self, composition: JsonObject) -> str:
        """Apply and do not wait; the change's id."""
        answer = self.call("POST", "/compositions", 200, 202, json=composition, params={"wait": 0})
        return str(answer["change"])

    def await_change(self, change: str, state: str = "done", timeout_s: float = 300) -> JsonObject:
        """Wait until the change has ended, in `state`; the service may be away meanwhile."""

        def ended() -> JsonObject | None:
            try:
                view = self.call("GET", f"/changes/{change}")
            except requests.RequestException:
                return None
            return view if view["state"] in ("done", "failed", "cancelled") else None

        view = wait_for(ended, f"change {change} to end", timeout_s)
        outcomes = [
            f"{it['kind']} {it['job_name']}: {it['state']} {it['error'] or ''}"
            for it in view["operations"]
        ]
        assert view["state"] == state, "\n".join([f"the change is {view['state']}", *outcomes])
        return view

    def story(self) -> list[str]:
        """The state of its jobs, and the latest events of the service."""
        jobs = self.call("GET", "/jobs")["jobs"]
        events = self.call("GET", "/events")["events"][-40:]
        return [
            *(f"{it['job_name']}: {it['state']} {it['error'] or ''}" for it in jobs),
            *(f"{it['at']} {it['kind']} {it['message']}" for it in events),
        ]

    # -- counting -------------------------------------------------------------------------

    @contextmanager
    def flowing(self, rate: float = RATE, composition: JsonObject | None = None) -> Iterator[Flow]:
        """The chain (or `composition`) is applied and carries `rate` messages a second."""
        engines = {site.name: site.engine_address for site in self.fog.sites()}
        self.apply(composition or self.chain())
        with (
            DuplicateMonitor(engines) as witness,
            Checker(self.broker("cloud"), f"{self.name}.out", self.client) as end,
            Feed(self.broker("edge-a"), f"{self.name}.in", rate=rate, run=self.name) as feed,
        ):
            flow = Flow(self, feed, end, witness)
            end.await_past(int(2 * rate))
            yield flow

    # -- the end --------------------------------------------------------------------------

    def close(self) -> None:
        """End the service; put the fog right: everything runs, no job is left."""
        self._service.close()
        self.stack.close()
        for site in self.fog.sites():
            self.fog.start(site.name)
            cancel_all(site.engine_address)


@dataclass
class Flow:
    """What flows in a trial."""

    trial: Trial
    feed: Feed
    end: Checker
    witness: DuplicateMonitor

    def recovered(self, timeout_s: float = 240.0) -> float:
        """The fault is over now: wait until something published from now on has come through;
        how long that took, in seconds."""
        began = time.monotonic()
        try:
            self.end.await_past(self.feed.sent + 1, timeout_s)
        except TransientError as error:
            raise AssertionError("\n".join([str(error), *self.trial.story()])) from error
        seconds = time.monotonic() - began
        self.trial.recoveries.append(seconds)
        return seconds

    def go_on(self, seconds: float) -> None:
        """Wait until so much more has been published and come through."""
        self.end.await_past(int(self.feed.sent + seconds * RATE), 60 + 2 * seconds)

    def await_sent(self, number: int) -> None:
        """Wait until so many have been published."""
        wait_for(lambda: self.feed.sent >= number or self.feed.check(), f"{number} messages", 120)

    def finish(self, timeout_s: float = 240.0) -> Result:
        """End the feed, wait for the rest, count."""
        published = self.feed.end(timeout_s)
        count = self.end.await_all(published, timeout_s, idle_s=60)
        recoveries = self.trial.recoveries
        return Result(
            count,
            self.witness.two_copies(),
            self.feed.resent,
            max(recoveries) if recoveries else None,
        )


IN_ITS_LOG = "it has what it acknowledged, the rest is sent again"
KAFKA_EXPECTED = {
    "sent again": IN_ITS_LOG,
    "saved by its autosave, the rest sent again": IN_ITS_LOG,
    "their sessions saved or made again, the rest sent again": IN_ITS_LOG,
}
"""What is expected of Kafka where another thing is of Mosquitto."""


def report(fault: str, expected: str, trial: Trial, result: Result, **more: object) -> None:
    """Write the row of one fault to the file that SPECK_FAULTS_FILE names, if it names one."""
    kind = next(site.broker for site in trial.fog.sites() if site.name == "cloud")
    if kind == KAFKA:
        fault, expected = f"Kafka: {fault}", KAFKA_EXPECTED.get(expected, expected)
    row = {
        "fault": fault,
        "expected": expected,
        "delivery": trial.delivery,
        "published": result.count.published,
        "lost": result.count.lost,
        "repeated": result.count.repeated,
        "reordered": result.count.reordered,
        "miscounted": result.count.miscounted,
        "two_copies": len(result.two_copies),
        "recovery_s": None if result.recovery_s is None else round(result.recovery_s, 1),
        **more,
    }
    print(json.dumps(row))
    path = os.environ.get(FILE_VARIABLE)
    if path:
        with Path(path).open("a") as out:
            out.write(json.dumps(row) + "\n")


def assert_nothing_lost(trial: Trial, result: Result) -> None:
    """0 lost, one incarnation; under exactly_once also 0 repeated, and state counted once."""
    assert result.count.lost == 0, result.count
    assert result.count.stray == 0, result.count
    assert result.two_copies == []
    if trial.delivery == "exactly_once":
        assert result.count.repeated == 0, result.count
        assert result.count.miscounted == 0, result.count


def engine_jobs(address: str) -> list[Mapping[str, Any]]:
    answer = requests.get(f"{address.rstrip('/')}/jobs/overview", timeout=20)
    return list(answer.json()["jobs"])


def cancel_all(engine: str) -> None:
    """Cancel everything at an engine and wait until it is over."""
    over = ("FINISHED", "CANCELED", "FAILED")

    def list_running() -> list[str]:
        return [str(it["jid"]) for it in engine_jobs(engine) if it["state"] not in over]

    for jid in list_running():
        requests.patch(f"{engine.rstrip('/')}/jobs/{jid}?mode=cancel", timeout=20)
    wait_for(lambda: not list_running(), "jobs to be cancelled")


def _children(pid: int) -> list[int]:
    process = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], capture_output=True, text=True
    )
    return [int(word) for word in process.stdout.split()]
