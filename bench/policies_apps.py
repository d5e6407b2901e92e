"""The two applications on which policies are compared, and the flow of data through each."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Protocol

from bench import cameras
from bench.arrivals import Arrivals
from bench.cameras import CLOUD
from bench.common import is_quick
from bench.detections import DetectionFeed, Log, edge_of, templates
from bench.edge_server import EDGE, pair
from bench.experiment import percentile
from bench.instruments.feed import Feed
from bench.moved import GLOBAL, compare_drained, count_by_moment, latencies
from speck.model.values import JsonObject

Brokers = Mapping[str, str]
"""Site -> `tcp://host:port`."""


class Flow(Protocol):
    """Data that flows, and what comes out."""

    def sent(self) -> int:
        """Records published so far."""

    def arrived(self) -> int:
        """Messages that have come to the readers so far."""

    def end(self) -> JsonObject:
        """Publish no more, and wait until everything has come: `{published, lost, repeated,
        different}`."""

    def summarise(self, since: float, until: float) -> JsonObject:
        """`{sink_per_s, p50_ms, p95_ms}` between two moments of time.monotonic; after the end."""


class Application(Protocol):
    """`sink_share`: records that count at the sink for each one that enters. `rate`: records/s that
    are offered, of all edges together. `evidence_s`: for how long it is measured until each job has
    worked for a second, which is evidence."""

    name: str
    sink_share: float
    rate: float
    evidence_s: float

    def composition(self) -> JsonObject:
        """All jobs in the cloud."""

    def flowing(self, brokers: Brokers) -> AbstractContextManager[Flow]:
        """Data flows."""


# -- edge or server -----------------------------------------------------------------------

SELECTIVITIES = (0.3, 0.7)
MULTIPLE = 10
"""Of so many records in a row these filters pass on exactly their share, wherever they begin to
count: so a loss is known by number."""


class EdgeServer:
    """The filters of bench.edge_server, both fed, each with a job behind it that works hard: an
    edge has room for the filters, not for everything."""

    name = "edge-server"
    sink_share = sum(SELECTIVITIES) / len(SELECTIVITIES)
    rate_each = 160.0
    rate = rate_each * len(SELECTIVITIES)
    evidence_s = 20.0 if is_quick() else 60.0
    payload = 1000
    filter_us, work_us = 600, 2000

    def composition(self) -> JsonObject:
        jobs = []
        for share in SELECTIVITIES:
            lets_through, works = pair(_name(share), CLOUD, share)
            lets_through["args"] += ["--cpu-us", str(self.filter_us)]
            works |= {
                "entry_class": "io.speck.jobs.Burn",
                "args": ["--cpu-us", str(self.work_us)],
            }
            jobs += [lets_through, works]
        names = [_name(share) for share in SELECTIVITIES]
        return {
            "name": self.name,
            # how much waits at an edge whose uplink is full, no broker tells
            "requirements": {"min_rate": self.rate},
            "jobs": jobs,
            "inputs": [{"site": EDGE, "topic": f"in/{name}"} for name in names],
            "outputs": [
                {"site": CLOUD, "topic": f"out/{name}", "client_id": f"end-{name}"}
                for name in names
            ],
        }

    @contextmanager
    def flowing(self, brokers: Brokers) -> Iterator[Flow]:
        """Both filters fed at one rate."""
        names = {f"end-{_name(share)}": share for share in SELECTIVITIES}
        outputs = [(client, brokers[CLOUD], f"out/{client[4:]}") for client in names]
        with ExitStack() as stack:
            readers = stack.enter_context(Arrivals(outputs))
            feeds = {
                client: stack.enter_context(
                    Feed(
                        brokers[EDGE],
                        f"in/{client[4:]}",
                        rate=self.rate_each,
                        run=f"{client}-{secrets.token_hex(4)}",
                        pad=self.payload - 30,
                    )
                )
                for client in names
            }
            yield NumberedFlow(feeds, names, readers)


def _name(selectivity: float) -> str:
    return str(round(selectivity * 10))


class NumberedFlow:
    """Numbered messages through filters: which are missing is known by count. `feeds` and
    `shares`, the filters' selectivities, by the client id of the reader."""

    def __init__(
        self, feeds: Mapping[str, Feed], shares: Mapping[str, float], readers: Arrivals
    ) -> None:
        self._feeds, self._shares, self._readers = feeds, shares, readers

    def sent(self) -> int:
        return sum(feed.sent for feed in self._feeds.values())

    def arrived(self) -> int:
        return self._readers.count()

    def end(self) -> JsonObject:
        published = {client: feed.end(multiple=MULTIPLE) for client, feed in self._feeds.items()}
        expected = {client: round(n * self._shares[client]) for client, n in published.items()}
        self._readers.await_count(sum(expected.values()))
        numbers = Counter((each.client, each.record["n"]) for each in self._readers.since(0))
        distinct = Counter(client for client, _ in numbers)
        missing = {client: n - distinct[client] for client, n in expected.items()}
        return {
            "published": sum(published.values()),
            "lost": sum(max(0, n) for n in missing.values()),
            "repeated": sum(count - 1 for count in numbers.values()),
            "different": sum(max(0, -n) for n in missing.values()),
        }

    def summarise(self, since: float, until: float) -> JsonObject:
        within = [each for each in self._readers.since(0) if since < each.at <= until]
        late = [each.at - self._feeds[each.client].due_at(each.record["n"]) for each in within]
        return {"sink_per_s": len(within) / (until - since), **_shares_of(late)}


def _shares_of(seconds: Sequence[float]) -> JsonObject:
    return {
        f"p{share}_ms": None
        if (value := percentile(seconds, share / 100)) is None
        else round(value * 1000, 2)
        for share in (50, 95)
    }


# -- the traffic application ---------------------------------------------------------------

RECORDS_PER_S = 70.0
"""Of an edge, of some 4000 bytes each: more than an uplink of 2 Mb/s carries."""


class Traffic:
    """The traffic application with cameras, as in bench.in_action: figures are those of Job 4."""

    name = "traffic"
    sink_share = 1.0
    evidence_s = 300.0

    def __init__(self) -> None:
        self.rate = RECORDS_PER_S * len(cameras.sites())
        self._templates = templates(2)

    def composition(self) -> JsonObject:
        return {**cameras.composition(), "requirements": {"min_rate": self.rate}}

    @contextmanager
    def flowing(self, brokers: Brokers) -> Iterator[Flow]:
        """Cameras at all edges."""
        outputs = [
            (output["client_id"], brokers[output["site"]], output["topic"])
            for output in self.composition()["outputs"]
        ]
        with (
            Arrivals(outputs) as readers,
            DetectionFeed(
                {site: brokers[edge_of(site)] for site in cameras.sites()},
                interval_ms=1000 / RECORDS_PER_S,
                window_ms=cameras.WINDOW_MS,
                run=secrets.token_hex(4),
                detections=self._templates,
                encoder=cameras.camera,
            ) as feed,
        ):
            yield CameraFlow(feed, readers)


class CameraFlow:
    """Detections, counted by windows."""

    def __init__(self, feed: DetectionFeed, readers: Arrivals) -> None:
        self._feed, self._readers = feed, readers
        self._log: Log | None = None

    def sent(self) -> int:
        return self._feed.sent

    def arrived(self) -> int:
        return self._readers.count()

    def end(self) -> JsonObject:
        self._log = self._feed.end(180.0)
        comparisons = compare_drained(self._readers, self._log)
        return {
            "published": self._feed.sent,
            "lost": sum(each.lost for each in comparisons),
            "repeated": sum(each.repeated for each in comparisons),
            "different": sum(len(each.different) for each in comparisons),
        }

    def summarise(self, since: float, until: float) -> JsonObject:
        assert self._log is not None
        arrivals = self._readers.since(0)
        counts = (count for at, count in count_by_moment(arrivals) if since < at <= until)
        late = [
            latency for at, latency in latencies(arrivals, self._log, GLOBAL) if since < at <= until
        ]
        return {"sink_per_s": sum(counts) / (until - since), **_shares_of(late)}


def applications() -> list[Application]:
    """Those that are measured: a trial has no time for the evidence that the second needs."""
    return [EdgeServer()] if is_quick() else [EdgeServer(), Traffic()]
