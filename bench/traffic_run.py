"""One fog for the traffic application, its deployments, and one measured run of one of them."""

from __future__ import annotations

import secrets
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import yaml

from bench.arrivals import Arrival, Arrivals
from bench.common import Api, fog_with_service, say, sleep_until
from bench.detections import (
    STREAMS,
    TRAFFIC,
    DetectionFeed,
    Log,
    all_streams,
    edge_of,
    templates,
)
from bench.experiment import percentile
from bench.usage import Machine, cpu_s
from speck.fog.sites import Fog
from speck.fog.wan import Uplink, Wan
from speck.model.values import JsonObject
from traffic.reference import (
    Comparison,
    compare_global,
    compare_local,
    compute_global,
    compute_local,
)

CLOUD = "cloud"
WINDOW_MS = 500
SENSORS = 2  # of each stream
CLOUD_SLOTS = 18
CHECKPOINT_S = 5.0
"""Each costs an engine CPU time, for every job of it, of which a quarter of a core has little."""
LOCAL, GLOBAL = "demo-local-", "demo-global"
NEAR = "near-local-"
"""Reads Job 3's result beside the cloud's broker, where the deployment has it there."""
DRAIN_S = 180.0
"""As long as results come: what is late is not lost, and must not come in the next run."""
QUIET_S = 15.0


def composition(file: str, forward_link: JsonObject | None = None) -> JsonObject:
    """A deployment as its file has it, with windows of `WINDOW_MS`; where Job 3's results lie in
    the cloud, each has a second reader there. `forward_link`: how its forward jobs send."""
    content: JsonObject = yaml.safe_load((TRAFFIC / file).read_text())
    for job in content["jobs"]:
        if forward_link is not None and job["job_name"].startswith("forward-"):
            job["link"] = forward_link
        if "--window" in job.get("args", []):
            job["args"][job["args"].index("--window") + 1] = f"{WINDOW_MS}ms"
    for output in list(content["outputs"]):
        client = output["client_id"]
        if client.startswith(LOCAL) and output["site"] == CLOUD:
            content["outputs"].append({**output, "client_id": client.replace(LOCAL, NEAR)})
    return content


class Usage:
    """CPU time of each site's engine and broker since it was made, and of the machine."""

    def __init__(self, fog: Fog) -> None:
        self._pids = {
            (site.name, "broker" if process.what == "broker" else "engine"): process.pid
            for site in fog.status()
            for process in site.processes
            if process.pid is not None and process.what != "agent"
        }
        self._machine, self._before = Machine(), self._look()
        self._at = time.monotonic()

    def _look(self) -> dict[tuple[str, str], float]:
        return {who: cpu_s(pid) for who, pid in self._pids.items()}

    def summarise(self) -> JsonObject:
        """`{machine: share of all cores, sites: {site: {engine, broker: cores}}}`."""
        seconds, now = time.monotonic() - self._at, self._look()
        sites: dict[str, dict[str, float]] = defaultdict(dict)
        for (site, what), cpu in now.items():
            sites[site][what] = round((cpu - self._before[site, what]) / seconds, 4)
        return {"machine": round(self._machine.used(), 4), "sites": dict(sites)}


@dataclass(frozen=True, slots=True)
class Measured:
    """The time that counts, of time.monotonic."""

    since: float
    until: float


class Bench:
    """The fog with its service; one deployment at a time."""

    def __init__(self, fog: Fog, api: Api) -> None:
        self.fog, self.api = fog, api
        self.brokers = {site.name: site.broker_address for site in fog.sites()}
        self.templates = templates(SENSORS)

    @contextmanager
    def deployed(self, file: str, forward_link: JsonObject | None = None) -> Iterator[Deployment]:
        """The deployment of `compositions/traffic/<file>` with its readers."""
        content = composition(file, forward_link)
        began = time.monotonic()
        self.api.apply(content)
        say(f"{file} is deployed after {time.monotonic() - began:.1f} s")
        with ExitStack() as stack:
            try:
                yield Deployment(self, content, stack)
            finally:
                stack.close()
                path = f"/compositions/{content['name']}"
                self.api.call("DELETE", path, wait=300, drop_queues="true", drain_limit=0)

    def read_crossings(self) -> dict[str, tuple[int, int]]:
        """Bytes up and down each site's uplink so far, whole packets, by the kernel's word."""
        return {link.site: (link.up_bytes, link.down_bytes) for link in self.fog.links()}

    def shape(self, edges: Uplink) -> None:
        """Give the uplinks of all edges these rates and this latency."""
        for site in STREAMS:
            self.fog.shape(edge_of(site), edges)

    def feed(self, interval_ms: float) -> DetectionFeed:
        """Begin to publish at all sites, in a window in which no feed before has published: a
        result holds all detections of its window, whichever feed they are of."""
        sleep_until(time.monotonic() + 2 * WINDOW_MS / 1000)
        return DetectionFeed(
            {site: self.brokers[edge_of(site)] for site in STREAMS},
            interval_ms=interval_ms,
            window_ms=WINDOW_MS,
            run=secrets.token_hex(4),
            detections=self.templates,
        )


class Deployment:
    """A deployment that runs, and its readers: Job 3's stand at their edges, wherever the result
    is, and Job 4's in the cloud."""

    def __init__(self, bench: Bench, content: JsonObject, stack: ExitStack) -> None:
        self.bench = bench
        by_place: dict[str, list[tuple[str, str, str]]] = defaultdict(list)
        for output in content["outputs"]:
            client = output["client_id"]
            place = f"edge-{client[-1]}" if client.startswith(LOCAL) else CLOUD
            by_place[place].append((client, bench.brokers[output["site"]], output["topic"]))
        self.content = content
        self.readers = [
            stack.enter_context(Arrivals(outputs, bench.fog.enter(place)))
            for place, outputs in by_place.items()
        ]

    def run(self, interval_ms: float, lead_s: float, seconds: float) -> JsonObject:
        """Feed, measure for `seconds` after `lead_s`, drain; the figures of the run."""
        first = [reader.count() for reader in self.readers]
        with self.bench.feed(interval_ms) as feed:
            # results of a window are due in the middle of the next one at the latest, as long as
            # a deployment keeps up: so runs begin and end in the middle of windows
            began = feed.find_middle(time.monotonic() + lead_s, WINDOW_MS)
            sleep_until(began)
            usage, links = Usage(self.bench.fog), self.bench.read_crossings()
            until = feed.find_middle(began + seconds, WINDOW_MS)
            sleep_until(until)
            cpu, crossings = usage.summarise(), self.bench.read_crossings()
            log = feed.end()
            sent, late_ms, feed_s = feed.sent, feed.latest_s * 1000, feed.cpu_s
            repeated = feed.resent
        results = Results(log, lambda: self._list_arrivals(first))
        drained_s = results.await_all()
        window = Measured(began, until)
        return {
            "interval_ms": interval_ms,
            "seconds": round(until - began, 3),
            "published": sent,
            "published_again": repeated,
            "feed_late_ms": round(late_ms, 1),
            "feed_cpu_s": round(feed_s, 2),
            "cpu": cpu,
            "wan_bytes_per_s": {
                site: [
                    round((now - was) / (until - began))
                    for now, was in zip(crossings[site], links[site], strict=True)
                ]
                for site in crossings
            },
            "drained_s": round(drained_s, 2),
            **results.summarise(window),
        }

    def _list_arrivals(self, first: Sequence[int]) -> list[Arrival]:
        return [
            arrival
            for reader, start in zip(self.readers, first, strict=True)
            for arrival in reader.since(start)
        ]


class Results:
    """The results of one run, compared with the published records."""

    def __init__(self, log: Log, arrivals: Callable[[], list[Arrival]]) -> None:
        self._log, self._list_arrivals = log, arrivals
        self._local = compute_local(log.rows, window_ms=log.window_ms)
        self._global = compute_global(log.rows, window_ms=log.window_ms)

    def await_all(self) -> float:
        """Wait until every result is there, or nothing has come for a while; seconds waited."""
        began = since = time.monotonic()
        before = -1
        while (now := time.monotonic()) < began + DRAIN_S:
            arrivals = self._list_arrivals()
            if len(arrivals) != before:
                before, since = len(arrivals), now
                if self._count_lost(arrivals) == 0:
                    break
            if now - since > QUIET_S:
                break
            time.sleep(0.2)
        return time.monotonic() - began

    def _count_lost(self, arrivals: Sequence[Arrival]) -> int:
        return sum(each.lost for each in self._compare(arrivals).values())

    def _compare(self, arrivals: Sequence[Arrival]) -> dict[str, Comparison]:
        return {
            "job3": compare_local(self._local, records(arrivals, LOCAL)),
            "job4": compare_global(self._global, records(arrivals, GLOBAL)),
        }

    def summarise(self, window: Measured) -> JsonObject:
        """`{job3: {...}, job4: {...}, lost, repeated, different}`."""
        arrivals = self._list_arrivals()
        comparisons = self._compare(arrivals)
        summary: JsonObject = {
            "job3": self._job(arrivals, LOCAL, window),
            "job4": self._job(arrivals, GLOBAL, window),
            "lost": sum(each.lost for each in comparisons.values()),
            "repeated": sum(each.repeated for each in comparisons.values()),
            "different": sum(len(each.different) for each in comparisons.values()),
        }
        if records(arrivals, NEAR):
            summary["job3_in_the_cloud"] = self._job(arrivals, NEAR, window)
        return summary

    def _job(self, arrivals: Sequence[Arrival], client: str, window: Measured) -> JsonObject:
        latencies = self.latencies(arrivals, client, window)
        processed = sum(
            arrival.record["count"]
            for arrival in arrivals
            if arrival.client.startswith(client)
            and arrival.record["revision"] == 0
            and window.since < arrival.at <= window.until
        )
        return {
            "processed": processed,
            "offered": self._count_offered(window),
            "results": len(latencies),
            **{f"p{share}_ms": _ms(percentile(latencies, share / 100)) for share in (50, 95, 99)},
            "max_ms": _ms(max(latencies, default=None)),
            "latencies_ms": [round(each * 1000, 1) for each in latencies],
        }

    def _count_offered(self, window: Measured) -> int:
        """Detections of the windows that were complete while it was measured."""
        count = 0
        for start, stat in self._global.items():
            closed = self._log.closed_at(all_streams(), start + self._log.window_ms)
            if closed is not None and window.since < closed <= window.until:
                count += stat.count
        return count

    def latencies(self, arrivals: Sequence[Arrival], client: str, window: Measured) -> list[float]:
        """Seconds from the message that completed a window to its first result, for windows that
        were complete while it was measured."""
        seconds = []
        for arrival in arrivals:
            if not arrival.client.startswith(client) or arrival.record["revision"] != 0:
                continue
            streams = STREAMS[arrival.record["site"]] if "site" in arrival.record else all_streams()
            end = arrival.record["window_start_ms"] + self._log.window_ms
            closed = self._log.closed_at(streams, end)
            if closed is not None and window.since < closed <= window.until:
                seconds.append(arrival.at - closed)
        return seconds


def records(arrivals: Sequence[Arrival], client: str) -> list[Mapping[str, Any]]:
    """The records that the readers whose id begins with `client` received."""
    return [arrival.record for arrival in arrivals if arrival.client.startswith(client)]


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 2)


@contextmanager
def prepared(speeds: Mapping[str, float], edges: Uplink) -> Iterator[Bench]:
    """Three edges behind uplinks and a cloud, with a service that measures nothing."""
    wan = Wan({edge_of(site): edges for site in STREAMS})
    with fog_with_service(
        3, 1, CLOUD_SLOTS, CHECKPOINT_S, wan=wan, speeds=speeds, more={"SPECK_METRICS_S": "0"}
    ) as (fog, api):
        yield Bench(fog, api)
