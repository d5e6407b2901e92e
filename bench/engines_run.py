"""One job on one engine over one broker: latency, moves, a recovery, memory, and how fast it is."""

from __future__ import annotations

import os
import signal
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import psutil

from bench.common import Api, is_quick, say
from bench.detections import DetectionFeed, Log, templates
from bench.engine_jobs import FILTER, FLINK, PROCESS, SPARK, describe_program
from bench.experiment import percentile
from bench.instruments.arrivals import ArrivalReader, Arrivals, Filtered, Windowed
from speck.binding import Target, open_broker
from speck.fog.publisher import find_broker
from speck.fog.sites import Fog
from speck.model.values import JsonObject
from speck.runner.claims import FOLDER, read_claim
from speck.runner.processes import Process, find_mains, find_members

RATE = 500
SECONDS = 4.0 if is_quick() else 12.0
"""Of latencies."""
MOVES = 1 if is_quick() else 2
WINDOW_MS = 1000
SENSORS = 2
SITE = "A"
BACKLOG = {
    FLINK: 20_000 if is_quick() else 80_000,
    SPARK: 20_000 if is_quick() else 80_000,
    PROCESS: 5_000 if is_quick() else 20_000,
}
"""Detections that wait for a job whose highest rate is measured."""
_LATER = 10_000_000
"""Added to the ids of detections of a second feed."""
PLACES = {FLINK: ("cloud", "cloud-2"), SPARK: ("cloud", "cloud-2"), PROCESS: ("edge-a", "edge-b")}
LINKS_AT = "cloud"
PATIENCE_S = 600.0
_OWN = ("--streams", "A1,A2,A3", "--window", "1s", "--lateness", "10m")
# the broker's own limits apart, nothing but the engine is to hold a job up
_FAST = ("--receive-maximum", "65534")


@dataclass(slots=True)
class Row:
    """One job on one engine over one broker, and what was measured of it."""

    fog: Fog
    api: Api
    engine: str
    broker: str
    what: str
    logs: list[Log] = field(default_factory=list)

    @property
    def name(self) -> str:
        return f"{self.what}-{self.engine}-{self.broker}"

    @property
    def address(self) -> str:
        """Of the broker of both links."""
        sites = self.fog.sites()
        return next(site.broker_address for site in sites if site.name == LINKS_AT)

    def composition(self, site: str, state: str = "running") -> JsonObject:
        own = () if self.what == FILTER else _OWN
        job = {
            "job_name": self.name,
            "site": site,
            "source_site": LINKS_AT,
            "source_topic": f"{self.name}.in",
            "sink_site": LINKS_AT,
            "sink_topic": f"{self.name}.out",
            "delivery": "exactly_once",
            "state": state,
            "args": [*_FAST, *own],
            **describe_program(self.engine, self.what),
        }
        output = {"site": LINKS_AT, "topic": job["sink_topic"], "client_id": f"{self.name}-end"}
        inputs = [{"site": LINKS_AT, "topic": job["source_topic"]}]
        return {"name": self.name, "jobs": [job], "inputs": inputs, "outputs": [output]}

    def measure(self) -> JsonObject:
        """All of it; raises RuntimeError and SpeckErrors."""
        first, second = PLACES[self.engine]
        arrivals: Arrivals = Filtered() if self.what == FILTER else Windowed()
        self.api.apply(self.composition(first))
        with self._reading(arrivals) as end, self._feed(1000 / RATE) as feed:
            end.await_covered(5 * RATE, PATIENCE_S)
            began = time.monotonic()
            time.sleep(SECONDS)
            until = time.monotonic()
            gaps = [
                self._silence(arrivals, end, feed, lambda s=site: self._move(s))
                for site in (second, first)[:MOVES]
            ]
            site = (first, second)[MOVES % 2]
            memory_mb = self._memory_mb(site)
            recovery = self._silence(arrivals, end, feed, lambda: self._kill(site))
            self.logs.append(feed.end(PATIENCE_S))
            end.await_covered(len(self.logs[0].rows), PATIENCE_S)
        late = arrivals.latencies(self.logs[0], began, until)
        rate = self._measure_rate(site)
        with self._reading(arrivals) as end:
            end.await_covered(sum(len(log.rows) for log in self.logs), PATIENCE_S)
        lost, repeated = arrivals.judge(self.logs)
        self.api.call(
            "DELETE", f"/compositions/{self.name}", wait=600, drop_queues="true", drain_limit=0
        )
        return {
            "engine": self.engine,
            "broker": self.broker,
            "job": self.what,
            "records_per_s": round(rate),
            "p50_ms": _ms(statistics.median(late)),
            "p99_ms": _ms(percentile(late, 0.99)),
            "memory_mb": round(memory_mb),
            "move_gap_s": round(statistics.median(gaps), 2),
            "recovery_s": round(recovery, 2),
            "lost": lost,
            "repeated": repeated,
            "published": sum(len(log.rows) for log in self.logs),
            "dropped": arrivals.dropped,
            "stray": arrivals.stray,
        }

    # -- what is done to it

    def _move(self, site: str) -> None:
        self.api.apply(self.composition(site))

    def _kill(self, site: str) -> None:
        """SIGKILL to the job's program; of Flink, to the engine, which is started again."""
        if self.engine == FLINK:
            self.fog.kill(site, "engine")
            self.fog.start(site)
            return
        session, members = self._find_members(site)
        (main,) = find_mains(members, session)
        os.kill(main.pid, signal.SIGKILL)

    def _silence(
        self,
        arrivals: Arrivals,
        end: ArrivalReader,
        feed: DetectionFeed,
        action: Callable[[], None],
    ) -> float:
        """The longest silence from an action on, until what is published after it has come."""
        began = time.monotonic()
        action()
        self._await_recovery(end, feed)
        gap = arrivals.longest_silence(began, time.monotonic())
        say(f"{self.name}: silent for {gap:.2f} s")
        return gap

    def _await_recovery(self, end: ArrivalReader, feed: DetectionFeed) -> None:
        end.await_covered(feed.sent, PATIENCE_S)
        end.await_covered(feed.sent + RATE, PATIENCE_S)

    # -- what is looked at

    def _find_members(self, site: str) -> tuple[int, Sequence[Process]]:
        """The session of the job's program, and its processes."""
        job = self.api.call("GET", f"/jobs/{self.name}")
        folder = self.fog.state_folder(site) / FOLDER / str(job["engine_job_id"])
        claim = read_claim(folder)
        if claim is None or claim[1].session is None:
            raise RuntimeError(f"cannot find the program of {self.name} in {folder}")
        return claim[1].session.id, find_members(claim[1].session)

    def _memory_mb(self, site: str) -> float:
        """Memory (PSS) of the job's processes; of Flink, of the engine's, which runs no other."""
        if self.engine == FLINK:
            names = ("engine", "jobmanager", "taskmanager")
            pids = [
                record.process.pid
                for record in self.fog.processes()
                if record.site == site and record.what in names and record.process is not None
            ]
        else:
            pids = [each.pid for each in self._find_members(site)[1]]
        return sum(psutil.Process(pid).memory_full_info().pss for pid in pids) / 2**20

    def _measure_rate(self, site: str) -> float:
        """Records a second while it takes what has waited for it: between the first checkpoint that
        covers some of it and the one that covers all."""
        self.api.apply(self.composition(site, "stopped"))
        before = self._count_taken()
        with self._feed(0.001, later=True) as feed:
            while feed.sent < BACKLOG[self.engine]:
                time.sleep(0.05)
            self.logs.append(feed.end(PATIENCE_S))
        total = len(self.logs[-1].rows)
        self.api.apply(self.composition(site))
        running, first = time.monotonic(), (0.0, 0)
        while True:
            taken, now = self._count_taken() - before, time.monotonic()
            if taken > 0 and not first[1]:
                first = (now, taken)
            if taken >= total:
                break
            if now - running > PATIENCE_S:
                raise RuntimeError(f"cannot see all taken by {self.name}: {taken} of {total}")
            time.sleep(0.05)
        if first[1] >= total:  # all at once
            first = (running, 0)
        rate = (taken - first[1]) / (now - first[0])
        say(f"{self.name}: {taken - first[1]} in {now - first[0]:.2f} s, {rate:.0f}/s")
        return rate

    def _count_taken(self) -> int:
        """How many records of its source the job has reported as taken."""
        broker = open_broker(*_target(self.address))
        try:
            view = broker.view()
        finally:
            broker.close()
        return sum(
            each.upto
            for client, taken in view.taken.items()
            if f"-{self.name}-" in client
            for each in taken.epochs()
        )

    # -- feed and reader

    def _feed(self, interval_ms: float, *, later: bool = False) -> DetectionFeed:
        feed = DetectionFeed(
            {SITE: self.address},
            interval_ms=interval_ms,
            window_ms=WINDOW_MS,
            run=f"{self.name}-{'later' if later else 'first'}",
            detections=templates(SENSORS),
            add_to_ids=_LATER if later else 0,
            topic=f"{self.name}.in",
        )
        return feed

    @contextmanager
    def _reading(self, arrivals: Arrivals) -> Iterator[ArrivalReader]:
        with ArrivalReader(
            self.address, f"{self.name}.out", f"{self.name}-end", arrivals
        ) as reader:
            yield reader


def _target(address: str) -> tuple[str, Target]:
    kind, normal = find_broker(address)
    return kind, Target(normal)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 1)
