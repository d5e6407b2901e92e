"""One ramp of the input under an autopilot, and what was seen of it second by second."""

from __future__ import annotations

import bisect
import secrets
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from bench.arrivals import Arrivals
from bench.cameras import CLOUD, LINK
from bench.common import Api, is_quick, say, sleep_until
from bench.edge_server import EDGE
from bench.experiment import percentile
from bench.instruments.feed import Feed, Ramp
from bench.moved import Poll, Watch
from bench.placing import (
    await_change,
    first_entry,
    measured_fog,
    monotonic_of,
    summarise_prediction,
    warm_up,
)
from speck.fog.sites import Fog
from speck.fog.wan import Uplink
from speck.model.values import JsonObject

UP_MBPS, DOWN_MBPS, LATENCY_MS = 2.0, 10.0, 9.3
PAYLOAD = 1000
METRICS_S = 4.0
CHECKPOINT_S = 10.0
PACK_US, USE_US = 1000, 500
FULL = 0.95
"""An uplink of which so much is used, over `SMOOTH_S`, is full."""
SMOOTH_S = 5
AROUND_S = 30.0
"""Figures before and after the move are of so many seconds."""


@dataclass(frozen=True, slots=True)
class Course:
    """A ramp of records/s, for how many seconds it is fed, and the autopilot's seconds between two
    analyses."""

    ramp: Ramp
    seconds: float
    every_s: float


def composition(case: str) -> JsonObject:
    """`pack` sends batches, compressed, which helps once it runs at the edge; `use` reads them."""
    burn = {"entry_class": "io.speck.jobs.Burn", "job_path": "speck-jobs.jar", "site": CLOUD}
    return {
        "name": f"ramp-{case}",
        "jobs": [
            {
                "job_name": f"pack-{case}",
                "source_site": EDGE,
                "source_topic": f"ramp/{case}/in",
                "sink_topic": f"ramp/{case}/packed",
                "args": ["--cpu-us", str(PACK_US)],
                "link": dict(LINK),
                **burn,
            },
            {
                "job_name": f"use-{case}",
                "source_topic": f"ramp/{case}/packed",
                "sink_topic": f"ramp/{case}/out",
                "args": ["--cpu-us", str(USE_US)],
                **burn,
            },
        ],
        "inputs": [{"site": EDGE, "topic": f"ramp/{case}/in"}],
        "outputs": [{"site": CLOUD, "topic": f"ramp/{case}/out", "client_id": f"ramp-{case}-end"}],
    }


class Bench:
    """An edge and a cloud with a service that measures."""

    def __init__(self, fog: Fog, api: Api) -> None:
        self._fog, self._api = fog, api
        self._brokers = {site.name: site.broker_address for site in fog.sites()}

    def run(self, case: str, ahead_s: float, course: Course) -> JsonObject:
        """All in the cloud, the autopilot on, the ramp; then everything comes through."""
        content = composition(case)
        name, output = content["name"], content["outputs"][0]
        self._api.apply(content)
        reader = (output["client_id"], self._brokers[CLOUD], output["topic"])
        watch = Watch(self._fog)
        try:
            with (
                Arrivals([reader]) as arrivals,
                Feed(
                    self._brokers[EDGE],
                    content["inputs"][0]["topic"],
                    rate=course.ramp,
                    run=f"{case}-{secrets.token_hex(4)}",
                    pad=PAYLOAD - 30,
                ) as feed,
            ):
                begin = feed.due_at(0)
                if not is_quick():  # the first minute of a ramp of many is as good as a rest
                    time.sleep(60.0)
                    warm_up(self._api, ahead_s or course.every_s)
                autopilot = settings(ahead_s, course)
                self._api.call("PUT", f"/compositions/{name}/autopilot", autopilot)
                moved = self._await_move(name, begin + course.seconds)
                sleep_until(begin + course.seconds)
                watch.rest()
                published = feed.end()
                arrivals.await_count(published)
                came = [(each.at, int(each.record["n"])) for each in arrivals.since(0)]
        finally:
            watch.close()
        log = self._api.call("GET", f"/compositions/{name}/autopilot")["log"]
        self._api.call(
            "DELETE", f"/compositions/{name}", wait=300, drop_queues="true", drain_limit=0
        )
        seen = Seen(begin, course, came, watch.polls)
        return {
            "ahead_s": ahead_s,
            "published": published,
            "lost": published - len({number for _, number in came}),
            "repeated": len(came) - len({number for _, number in came}),
            **moved,
            **seen.summarise(moved.get("moments_s", {})),
            "looks": [
                self._look(entry, begin, content["inputs"][0]["topic"])
                for entry in log
                if "analysis" in entry
            ],
            "bins": seen.bins(),
        }

    def _look(self, entry: JsonObject, begin: float, topic: str) -> JsonObject:
        """One entry of the autopilot's log: when, in seconds since the ramp began, how long its
        analysis took, what it forecast, and what the autopilot made of it."""
        analysis = self._api.call("GET", f"/analyses/{entry['analysis']}")
        started, ended = (monotonic_of(analysis[name]) for name in ("started", "ended"))
        forecast: JsonObject = next(
            (f for f in analysis.get("forecast") or () if f["topic"] == topic), {}
        )
        return {
            "t_s": round(monotonic_of(entry["at"]) - begin, 2),
            "analysis_s": round(ended - started, 2),
            "warm": analysis["warm"],
            **{name: forecast.get(name) for name in ("rate", "high", "method", "mape")},
            "kind": entry["kind"],
            "message": entry["message"],
        }

    def _await_move(self, name: str, until: float) -> JsonObject:
        """What the autopilot did, and when, in seconds of time.monotonic; nothing when it did
        not act before `until`."""
        while time.monotonic() < until:
            if (acted := first_entry(self._api, name, "act")) is not None:
                change = await_change(self._api, acted["change"])
                say(f"  {acted['message']}")
                placement = self._api.call("GET", f"/placements/{acted['placement']}")
                return {
                    "reason": acted["message"],
                    "predicted": summarise_prediction(placement),
                    "moments_s": {
                        "decided": monotonic_of(acted["at"]),
                        "applied": monotonic_of(change["ended"]),
                    },
                }
            time.sleep(0.5)
        return {}


def settings(ahead_s: float, course: Course) -> JsonObject:
    """The autopilot's: bytes alone move nothing (no placement saves all of them), an exceeded limit
    does, at the second analysis in a row that shows it (in QUICK=1 at the first)."""
    return {
        "on": True,
        "every_s": course.every_s,
        "settle_s": course.every_s,
        "agreeing": 1 if is_quick() else 2,
        "min_gain": 1.0,
        "ahead_s": ahead_s,
    }


class Seen:
    """A run as it was seen: `came` are (time.monotonic, number) of all arrivals, `polls` of the
    uplinks."""

    def __init__(
        self, begin: float, course: Course, came: Sequence[tuple[float, int]], polls: Sequence[Poll]
    ) -> None:
        self._begin, self._ramp = begin, course.ramp
        self._came = sorted((at - begin, number) for at, number in came)
        self._moments = [at for at, _ in self._came]
        self._use = [
            (
                after.at - begin,
                (after.up[EDGE] - before.up[EDGE]) * 8e-6 / (after.at - before.at) / UP_MBPS,
            )
            for before, after in pairwise(polls)
            if before.at >= begin
        ]

    def bins(self) -> dict[str, list[float | None]]:
        """Second by second, a list of each figure: the input rate, the share of the uplink in use,
        records that were published and have not arrived, latency (s; null where none arrived)."""
        late: dict[int, list[float]] = defaultdict(list)
        for at, number in self._came:
            late[int(at)].append(at - self._ramp.due(number))
        seconds = [late[int(at)] for at, _ in self._use]
        return {
            "t_s": [round(at, 2) for at, _ in self._use],
            "input_per_s": [round(self._ramp.rate(at), 1) for at, _ in self._use],
            "uplink_share": [round(use, 4) for _, use in self._use],
            "queue": [self._queue(at) for at, _ in self._use],
            "latency_p50_s": [_rounded(percentile(each, 0.5)) for each in seconds],
            "latency_max_s": [_rounded(max(each, default=None)) for each in seconds],
        }

    def full_s(self) -> float | None:
        """When the uplink was full for the first time, in seconds since the ramp began."""
        for first in range(len(self._use) - SMOOTH_S + 1):
            some = self._use[first : first + SMOOTH_S]
            if sum(use for _, use in some) / SMOOTH_S >= FULL:
                return some[-1][0]
        return None

    def summarise(self, moments: dict[str, float]) -> JsonObject:
        """Moments in seconds since the ramp began, and figures before and after the move."""
        moments = {name: round(at - self._begin, 2) for name, at in moments.items()}
        full = self.full_s()
        moments |= {} if full is None else {"full": round(full, 2)}
        summary: JsonObject = {"moments_s": moments}
        if "applied" in moments:
            decided, applied = moments["decided"], moments["applied"]
            end = self._use[-1][0]
            summary |= {
                "before": self._span(max(0.0, decided - AROUND_S), decided),
                "meanwhile": self._span(decided, applied),
                "after": self._span(max(applied, end - AROUND_S), end),
            }
        return summary

    def _span(self, since: float, until: float) -> JsonObject:
        within = [(at, number) for at, number in self._came if since < at <= until]
        late = [at - self._ramp.due(number) for at, number in within]
        use = [share for at, share in self._use if since < at <= until]
        return {
            "input_per_s": round(self._ramp.rate((since + until) / 2), 1),
            "uplink_share": sum(use) / len(use) if use else None,
            "p95_s": _rounded(percentile(late, 0.95)),
            "max_s": _rounded(max(late, default=None)),
            "queue": self._queue(until),
        }

    def _queue(self, at: float) -> int:
        return max(0, int(self._ramp.count(at)) - bisect.bisect_right(self._moments, at))


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)


@contextmanager
def prepared() -> Iterator[Bench]:
    """An edge behind its uplink, and a cloud, both calibrated."""
    uplink = Uplink(UP_MBPS, DOWN_MBPS, LATENCY_MS)
    with measured_fog([EDGE], uplink, metrics_s=METRICS_S, checkpoint_s=CHECKPOINT_S) as (fog, api):
        yield Bench(fog, api)
