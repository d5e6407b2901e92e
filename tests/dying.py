"""A real service that dies at a chosen point, over real sites through which numbers flow."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from bench.instruments.checker import Checker, Count
from bench.instruments.duplicate_monitor import DuplicateMonitor
from bench.instruments.feed import Feed
from speck.fog.service import Served, serving
from speck.fog.sites import Fog
from speck.model.values import JsonObject
from tests.crash_scenarios import Crash
from tests.waiting import wait_for

LIMIT_S = 240.0
_OVER = ("done", "failed", "cancelled")


@dataclass(frozen=True, slots=True)
class Died:
    """How one death ended: `mark` says where it was, `change` the change as it is in the end,
    `left` the operations that a plan would still have; `running` is `job: site` on the engines.
    `recovery_s`: from the death to the end of the change, in seconds.
    """

    mark: str
    change: JsonObject
    recovery_s: float
    operations_left: list[JsonObject]
    running: dict[str, str]
    two_copies: list[str]
    count: Count


@dataclass(slots=True)
class Grave:
    """Where services live and die one after the other, over one store."""

    fog: Fog
    home: Path
    jars: Path
    rate: float = 200.0

    def register(self) -> None:
        """Make the store; it knows the fog's sites."""
        with serving(self.home, [self.jars]) as service:
            for body in self.fog.site_bodies():
                call(service, "POST", "/sites", json=body)

    def live_through(self, crash: Crash) -> Died:
        """Let `first` run and numbers flow, die on the way to `then`, and see it go on."""
        scenario = crash.scenario
        name, output = scenario.first["name"], scenario.first["outputs"][0]
        source = scenario.first["inputs"][0]["topic"]
        first = scenario.first
        if scenario.then is None:  # a session that speck does not know is not dropped with the rest
            first = {**first, "outputs": [{k: v for k, v in output.items() if k != "client_id"}]}
        with serving(self.home, [self.jars]) as service:
            change = call(service, "POST", "/compositions", json=first)["change"]
            assert _ended(service, change)["state"] == "done"
        engines = {site.name: site.engine_address for site in self.fog.sites()}
        with (
            Checker(self._broker("cloud"), output["topic"], output["client_id"]) as end,
            DuplicateMonitor(engines) as witness,
        ):
            with Feed(self._broker("edge-a"), source, rate=self.rate, run=name) as feed:
                wait_for(lambda: end.distinct >= 50, "numbers at the end")
                if scenario.then is None:
                    feed.end()
                mark, change, seconds, operations = self._die(crash)
                if scenario.then is not None:
                    behind = feed.sent + 50
                    wait_for(lambda: end.count(behind).lost == 0, "numbers of after it")
                published = feed.sent if scenario.then is None else feed.end()
            count = end.await_all(published, LIMIT_S, idle_s=60)
            running = self._running(name.removesuffix("c"))
        with serving(self.home, [self.jars]) as service:
            if scenario.then is not None:
                call(
                    service,
                    "DELETE",
                    f"/compositions/{name}?wait=60&drop_queues=true&drain_limit=0",
                )
        return Died(mark, change, seconds, operations, running, witness.two_copies(), count)

    def _die(self, crash: Crash) -> tuple[str, JsonObject, float, list[JsonObject]]:
        scenario = crash.scenario
        name = scenario.first["name"]
        mark = self.home / f"mark-{name}"
        more = {"SPECK_CRASH_AT": crash.at, "SPECK_CRASH_MARK": str(mark)}
        with serving(self.home, [self.jars], more=more) as service:
            with suppress(requests.RequestException):  # it may die before it answers
                if scenario.then is None:
                    call(service, "DELETE", f"/compositions/{name}")
                else:
                    call(service, "POST", "/compositions", json=scenario.then)
            wait_for(mark.exists, f"the death at {crash.at}")
            died = time.monotonic()
            head = _newest(service, name)
            change = _ended(service, head["id"])
            seconds = time.monotonic() - died
            operations = []
            if scenario.then is not None and change["state"] == "done":
                operations = call(service, "GET", f"/compositions/{name}/plan")["operations"]
        return mark.read_text(), change, seconds, operations

    def _broker(self, site: str) -> str:
        return next(it.broker_address for it in self.fog.sites() if it.name == site)

    def _running(self, prefix: str) -> dict[str, str]:
        sites_by_job = {}
        for site in self.fog.sites():
            answer = requests.get(f"{site.engine_address.rstrip('/')}/jobs/overview", timeout=20)
            for job in answer.json()["jobs"]:
                if job["state"] == "RUNNING" and job["name"].startswith(prefix):
                    sites_by_job[str(job["name"])] = site.name
        return sites_by_job


def call(service: Served, method: str, path: str, **more: Any) -> JsonObject:
    """One request; it must succeed."""
    answer = requests.request(method, service.url + path, timeout=180, **more)
    assert answer.ok, f"{method} {path}: {answer.status_code} {answer.text}"
    body: JsonObject = answer.json() if answer.content else {}
    return body


def _newest(service: Served, composition: str) -> JsonObject:
    def look() -> JsonObject | None:
        with suppress(requests.RequestException):  # it is away
            answer: JsonObject = call(service, "GET", f"/changes?composition={composition}")
            newest: JsonObject = answer["changes"][0]
            return newest
        return None

    return wait_for(look, "the service to answer")


def _ended(service: Served, change: str) -> JsonObject:
    def look() -> JsonObject | None:
        with suppress(requests.RequestException):
            outcome = call(service, "GET", f"/changes/{change}")
            return outcome if outcome["state"] in _OVER else None
        return None

    return wait_for(look, f"change {change} to end")
