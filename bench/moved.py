"""What was seen of a run while it went on: arrivals, latencies, bytes on the uplinks, losses."""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from bench.arrivals import Arrival, Arrivals
from bench.cameras import CLOUD
from bench.detections import STREAMS, Log
from bench.experiment import percentile
from bench.usage import Machine, cpu_s
from speck.fog.sites import Fog
from speck.model.values import JsonObject
from traffic.reference import (
    Comparison,
    compare_global,
    compare_local,
    compute_global,
    compute_local,
)

LOCAL, GLOBAL = "demo-local-", "demo-global"
DRAIN_S, QUIET_S = 90.0, 30.0


class Poll(NamedTuple):
    """At a time.monotonic: bytes that each uplink has carried up, the share of the machine in use
    since the poll before, and CPU seconds of the cloud's engine so far."""

    at: float
    up: dict[str, int]
    machine_cpu: float
    engine_cpu_s: float


class Watch:
    """Polls each second."""

    def __init__(self, fog: Fog) -> None:
        self._fog, self._over = fog, threading.Event()
        self.polls: list[Poll] = []
        self._engine = [
            record.process.pid
            for record in fog.processes()
            if record.site == CLOUD and record.process and record.what not in ("broker", "agent")
        ]
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._look()
        except Exception as error:  # told when it is closed
            self._failure = error

    def _look(self) -> None:
        machine, due = Machine(), time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            up = {link.site: link.up_bytes for link in self._fog.links()}
            engine_cpu_s = sum(map(cpu_s, self._engine))
            self.polls.append(Poll(time.monotonic(), up, machine.used(), engine_cpu_s))
            machine, due = Machine(), due + 1.0

    def rest(self) -> None:
        """Poll no more: what comes is not to be measured."""
        self._over.set()
        self._thread.join()

    def close(self) -> None:
        """Raise the error that ended the polls early, if any."""
        self.rest()
        if self._failure is not None:
            raise self._failure

    def up_per_s(self, since: float, until: float) -> float:
        """Bytes a second out of all edges between two moments of time.monotonic."""
        first, last = self._ends(since, until)
        return (_edges(last.up) - _edges(first.up)) / (last.at - first.at)

    def engine_cores(self, since: float, until: float) -> float:
        """Cores that the cloud's engine used between two moments, on average."""
        first, last = self._ends(since, until)
        return (last.engine_cpu_s - first.engine_cpu_s) / (last.at - first.at)

    def _ends(self, since: float, until: float) -> tuple[Poll, Poll]:
        within = [poll for poll in self.polls if since <= poll.at <= until]
        return within[0], within[-1]

    def cpu(self, since: float, until: float) -> float:
        """Share of the machine in use between two moments."""
        within = [poll.machine_cpu for poll in self.polls if since <= poll.at <= until]
        return sum(within) / len(within)


def _edges(up: dict[str, int]) -> int:
    return sum(count for site, count in up.items() if site != CLOUD)


def latencies(arrivals: Sequence[Arrival], log: Log, client: str) -> list[tuple[float, float]]:
    """(arrival, seconds since the message that completed the window) of each first result."""
    seconds = []
    for arrival in arrivals:
        if not arrival.client.startswith(client) or arrival.record["revision"] != 0:
            continue
        streams = STREAMS[arrival.record["site"]] if "site" in arrival.record else tuple(log.passed)
        closed = log.closed_at(streams, arrival.record["window_start_ms"] + log.window_ms)
        if closed is not None:
            seconds.append((arrival.at, arrival.at - closed))
    return seconds


def count_by_moment(arrivals: Sequence[Arrival]) -> list[tuple[float, int]]:
    """(arrival, detections) of each result of Job 4."""
    return [
        (arrival.at, arrival.record["count"])
        for arrival in arrivals
        if arrival.client == GLOBAL and arrival.record["revision"] == 0
    ]


def span(
    watch: Watch, arrivals: Sequence[Arrival], log: Log, since: float, until: float
) -> JsonObject:
    """The results between two moments of time.monotonic."""
    seconds = until - since
    rate = sum(count for at, count in count_by_moment(arrivals) if since < at <= until) / seconds
    up = watch.up_per_s(since, until)
    summary: JsonObject = {
        "seconds": round(seconds, 2),
        "sink_per_s": rate,
        "wan_bytes_per_s": up,
        "wan_bytes_per_record": up / rate if rate else None,
        "machine_cpu": watch.cpu(since, until),
        "cloud_engine_cores": watch.engine_cores(since, until),
    }
    for name, client in (("job3", LOCAL), ("job4", GLOBAL)):
        late = [latency for at, latency in latencies(arrivals, log, client) if since < at <= until]
        shares = {f"p{share}_s": percentile(late, share / 100) for share in (50, 95, 99)}
        summary[name] = {"results": len(late), **shares}
    return summary


def bins(watch: Watch, begin: float, arrivals: Sequence[Arrival], log: Log) -> list[JsonObject]:
    """Second by second since `begin`, a time.monotonic; latency of Job 4: null where none came."""
    records: dict[int, int] = defaultdict(int)
    late: dict[int, list[float]] = defaultdict(list)
    for at, count in count_by_moment(arrivals):
        records[int(at - begin)] += count
    for at, latency in latencies(arrivals, log, GLOBAL):
        late[int(at - begin)].append(latency)
    rows = []
    for before, poll in itertools.pairwise(watch.polls):
        second = int(poll.at - begin)
        rows.append(
            {
                "t_s": round(poll.at - begin, 2),
                "sink_per_s": records[second],
                "wan_bytes_per_s": _edges(poll.up) - _edges(before.up),
                "latency_p50_s": percentile(late[second], 0.5),
                "latency_max_s": max(late[second], default=None),
                "machine_cpu": round(poll.machine_cpu, 3),
            }
        )
    return rows


def compare_drained(readers: Arrivals, log: Log) -> list[Comparison]:
    """Wait until every result is right, or none has come for a while."""
    local = compute_local(log.rows, window_ms=log.window_ms)
    whole = compute_global(log.rows, window_ms=log.window_ms)
    began = since = time.monotonic()
    before = -1
    while True:
        arrivals = readers.since(0)
        if len(arrivals) != before:
            before, since = len(arrivals), time.monotonic()
        comparisons = [
            compare_local(local, [a.record for a in arrivals if a.client.startswith(LOCAL)]),
            compare_global(whole, [a.record for a in arrivals if a.client == GLOBAL]),
        ]
        now = time.monotonic()
        if (
            all(each.equal for each in comparisons)
            or now - since > QUIET_S
            or now - began > DRAIN_S
        ):
            return comparisons
        time.sleep(0.5)
