"""Eight busy clients for some minutes: the memory of the service before, meanwhile and afterwards.

A part of bench.overload: three clients read, two apply compositions, three export all metrics.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import requests

from bench.common import say
from bench.experiment import Check, is_quick, percentile
from speck.model.values import JsonObject

if TYPE_CHECKING:
    from bench.overload import Target

SOAK_S = 20.0 if is_quick() else 480.0
REST_S = 10.0
MOST_KEPT_MB = 100
MIB = 2**20
SITE = {
    "name": "soaked",
    "tier": "edge",
    "spe": {"kind": "memory", "address": "http://soaked:8081"},
    "broker": {"kind": "memory", "address": "tcp://soaked:1883"},
}
"""A site of its own: the slots of the others are taken."""

_READS = (
    "/jobs",
    "/sites",
    "/compositions/x",
    "/events?limit=200",
    "/changes",
    "/metrics",
    "/rates",
)
_FORMATS = ("csv", "jsonl", "parquet")


@dataclass(slots=True)
class _Clients:
    """Threads that call the service until `until`; how long each kind of call took, in ms."""

    target: Target
    until: float
    times_ms: dict[str, list[float]] = field(default_factory=dict)
    refused: int = 0
    failures: int = 0

    def start(self) -> list[threading.Thread]:
        actions: list[Callable[[requests.Session, int], None]] = [self._read] * 3
        actions += [lambda it, n, who=who: self._apply(it, n, who) for who in range(2)]
        actions += [lambda it, n, form=form: self._export(it, form) for form in _FORMATS]
        threads = [threading.Thread(target=self._repeat, args=(action,)) for action in actions]
        for thread in threads:
            thread.start()
        return threads

    def p99(self) -> JsonObject:
        return {
            kind: round(percentile(times, 0.99) or 0.0) for kind, times in self.times_ms.items()
        }

    def _repeat(self, action: Callable[[requests.Session, int], None]) -> None:
        with requests.Session() as session:
            session.headers["Authorization"] = f"Bearer {self.target.token}"
            number = 0
            while time.monotonic() < self.until:
                number += 1
                action(session, number)

    def _call(
        self, session: requests.Session, kind: str, method: str, path: str, **more: object
    ) -> None:
        began = time.perf_counter()
        try:
            answer = session.request(method, self.target.url + path, timeout=120, **more)  # type: ignore[arg-type]
            self.refused += answer.status_code == 503
            self.failures += answer.status_code != 503 and not answer.ok
        except requests.RequestException:
            self.failures += 1
        self.times_ms.setdefault(kind, []).append(1000 * (time.perf_counter() - began))

    def _read(self, session: requests.Session, number: int) -> None:
        self._call(session, "reads", "GET", _READS[number % len(_READS)])

    def _apply(self, session: requests.Session, number: int, who: int) -> None:
        jobs = [
            {
                "job_name": f"soak-{who}-{index}",
                "site": SITE["name"],
                "source_topic": f"in-{who}-{index}-{number % 3}",
                "sink_topic": f"soaked-{who}-{index}",
                "entry_class": "package.Job",
                "job_path": "a.jar",
            }
            for index in range(4)
        ]
        body = {"name": f"soak-{who}", "jobs": jobs}
        self._call(session, "applies", "POST", "/compositions?wait=20", json=body)

    def _export(self, session: requests.Session, form: str) -> None:
        self._call(session, "exports", "GET", f"/metrics/export?format={form}")


def soak(target: Target) -> JsonObject:
    """Let the clients work, then rest: the memory at each moment, and the times of calls."""
    say(f"soak, {SOAK_S:g} s")
    target.call("POST", "/sites", json=SITE).raise_for_status()
    worker = target.worker()
    before = worker.memory_info().rss
    clients = _Clients(target, time.monotonic() + SOAK_S)
    threads, most = clients.start(), before
    while time.monotonic() < clients.until:
        time.sleep(0.5)
        most = max(most, worker.memory_info().rss)
    for thread in threads:
        thread.join()
    time.sleep(REST_S)
    return {
        "seconds": SOAK_S,
        "calls": sum(map(len, clients.times_ms.values())),
        "refused": clients.refused,
        "failures": clients.failures,
        "p99_ms": clients.p99(),
        "before_mb": round(before / MIB),
        "most_mb": round(most / MIB),
        "after_mb": round(worker.memory_info().rss / MIB),
    }


def checks(row: JsonObject) -> Iterator[Check]:
    """What is wanted of it."""
    kept = row["after_mb"] - row["before_mb"]
    yield Check("memory kept after the soak", f"<= {MOST_KEPT_MB} MB", kept, kept <= MOST_KEPT_MB)
    failures = row["failures"]
    yield Check("calls of the soak that failed", "0", failures, failures == 0)
