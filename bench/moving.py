"""One run of the traffic application that is moved while data flows: what it does, what is seen."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from bench.arrivals import Arrivals
from bench.cameras import WINDOW_MS, camera, composition, laid_out, sites
from bench.common import Api, is_quick, say
from bench.detections import DetectionFeed, Log, edge_of, templates
from bench.moved import GLOBAL, Watch, bins, compare_drained, span
from bench.placing import (
    analyse,
    await_change,
    first_entry,
    measured_fog,
    monotonic_of,
    place,
    summarise_prediction,
)
from speck.fog.sites import Fog
from speck.fog.wan import Uplink
from speck.model.values import JsonObject

NAME = "traffic"
DOWN_MBPS, LATENCY_MS = 10.0, 9.3
SENSORS = 2
METRICS_S = 4.0
CHECKPOINT_S = 10.0
"""Each second, of 17 jobs, was most of what the machine did."""
FRESH_MS = 2000
"""A result that is younger is of now."""


@dataclass(frozen=True, slots=True)
class Course:
    """How long each part takes, in seconds: until it is measured, all in the cloud, at most
    until what had piled up is gone when it was moved, and after that; ms between two records of a
    site; Mb/s of each edge's uplink."""

    lead_s: float
    before_s: float
    settle_s: float
    after_s: float
    interval_ms: float
    up_mbps: float


@dataclass(slots=True)
class Series:
    """One run while it goes on: `moments` are of time.monotonic, `facts` the measured values."""

    feed: DetectionFeed
    readers: Arrivals
    watch: Watch
    moments: dict[str, float]
    facts: JsonObject

    def mark(self, name: str) -> float:
        """Write down that this happens now."""
        self.moments[name] = time.monotonic()
        say(f"  {self.moments[name] - self.moments['begin']:6.1f} s {name}")
        return self.moments[name]


class Bench:
    """Three edges and a cloud across a WAN, with a service that measures."""

    def __init__(self, fog: Fog, api: Api) -> None:
        self.fog, self.api = fog, api
        self._brokers = {site.name: site.broker_address for site in fog.sites()}
        self._templates = templates(SENSORS)

    def series(self, mover: Callable[[Series, Course], None], times: Course) -> JsonObject:
        """Deploy all in the cloud, feed, have `mover` move it, drain, and remove it at last."""
        content = composition()
        self.api.apply(content)
        try:
            run = self._series(content, mover, times)
        except RuntimeError:
            self._remove()  # the next series is one of its own
            raise
        self._remove()
        return run

    def _remove(self) -> None:
        self.api.call(
            "DELETE", f"/compositions/{NAME}", wait=300, drop_queues="true", drain_limit=0
        )

    def _series(
        self, content: JsonObject, mover: Callable[[Series, Course], None], times: Course
    ) -> JsonObject:
        outputs = [
            (output["client_id"], self._brokers[output["site"]], output["topic"])
            for output in content["outputs"]
        ]
        with ExitStack() as stack:
            readers = stack.enter_context(Arrivals(outputs))
            watch = Watch(self.fog)
            stack.callback(watch.close)
            feed = stack.enter_context(self._feed(times))
            run = Series(feed, readers, watch, {"begin": time.monotonic()}, {})
            time.sleep(times.lead_s)
            mover(run, times)
            self._caught_up(run, times.settle_s)
            run.mark("settled")
            time.sleep(times.after_s)
            run.mark("end")
            log = feed.end(180.0)
            return self._summarise(run, log)

    def _caught_up(self, run: Series, most_s: float) -> None:
        """Wait until results are current: the backlog is gone."""
        until = time.monotonic() + most_s
        while (now := time.monotonic()) < until:
            ends = [
                arrival.record["window_start_ms"] + WINDOW_MS
                for arrival in run.readers.since(0)
                if arrival.client == GLOBAL
            ]
            if ends and run.feed.event_time_ms(now) - max(ends) < FRESH_MS:
                break
            time.sleep(0.5)
        time.sleep(FRESH_MS / 1000)

    def _feed(self, times: Course) -> DetectionFeed:
        return DetectionFeed(
            {site: self._brokers[edge_of(site)] for site in sites()},
            interval_ms=times.interval_ms,
            window_ms=WINDOW_MS,
            run=secrets.token_hex(4),
            detections=self._templates,
            encoder=camera,
        )

    # -- by hand --------------------------------------------------------------------------

    def by_hand(self, run: Series, times: Course) -> None:
        """Analyse, place, apply."""
        since = run.mark("measure")
        time.sleep(times.before_s)
        until = run.mark("analyse")
        analysis = analyse(self.api, NAME, since, until)
        run.mark("place")
        placement = place(self.api, NAME, "milp", analysis)
        run.facts["predicted"] = summarise_prediction(placement)
        for move in placement["proposed"]["moves"]:
            say(f"    {move['job_name']}: {move['from']} -> {move['to']}")
        run.mark("apply")
        if is_quick() and not placement["proposed"]["moves"]:
            self.api.apply(laid_out())
        else:
            self._apply(placement["id"])
        run.mark("applied")

    def _apply(self, placement: str) -> None:
        answer = self.api.call("POST", f"/placements/{placement}/apply", wait=300)
        if answer["state"] != "done":
            change = self.api.call("GET", f"/changes/{answer['change']}")
            raise RuntimeError(f"the placement was not applied: {change}")

    # -- by itself ------------------------------------------------------------------------

    def by_itself(self, run: Series, times: Course) -> None:
        """Switch the autopilot on once there are enough samples, and wait until it has acted."""
        run.mark("measure")
        time.sleep(times.before_s)
        every_s = max(60.0, times.before_s)  # it looks back as long
        settings = {
            "on": True,
            "every_s": every_s,
            "settle_s": 20.0,
            "agreeing": 1,
            "min_gain": 0.1,
        }
        self.api.call("PUT", f"/compositions/{NAME}/autopilot", settings)
        acted = self._entry("act", 240.0)
        run.mark("apply")
        run.facts["autopilot"] = [acted["message"]]
        placement = self.api.call("GET", f"/placements/{acted['placement']}")
        analysis = self.api.call("GET", f"/analyses/{placement['analysis']}")
        run.facts["predicted"] = summarise_prediction(placement)
        for name in ("analyse", "place"):
            at = analysis["started" if name == "analyse" else "ended"]
            run.moments[name] = monotonic_of(at)
        await_change(self.api, acted["change"])
        run.mark("applied")

    def _entry(self, kind: str, timeout_s: float) -> JsonObject:
        """The first entry of that kind in the autopilot's log."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            if (entry := first_entry(self.api, NAME, kind)) is not None:
                return entry
            time.sleep(0.3)
        state = self.api.call("GET", f"/compositions/{NAME}/autopilot")
        raise RuntimeError(f"the autopilot did not {kind} in {timeout_s:g} s: {state}")

    # -- what was found -------------------------------------------------------------------

    def _summarise(self, run: Series, log: Log) -> JsonObject:
        comparisons = compare_drained(run.readers, log)
        arrivals = run.readers.since(0)
        begin, moments = run.moments["begin"], run.moments
        spans = {
            "before": (moments["measure"], moments["analyse"]),
            "after": (moments["settled"], moments["end"]),
        }
        return {
            **run.facts,
            "moments_s": {name: round(at - begin, 2) for name, at in moments.items()},
            "bins": bins(run.watch, begin, arrivals, log),
            **{name: span(run.watch, arrivals, log, *ends) for name, ends in spans.items()},
            "published": run.feed.sent,
            "published_again": run.feed.resent,
            "feed_late_s": round(run.feed.latest_s, 3),
            "lost": sum(each.lost for each in comparisons),
            "repeated": sum(each.repeated for each in comparisons),
            "different": sum(len(each.different) for each in comparisons),
        }


@contextmanager
def prepared(times: Course) -> Iterator[Bench]:
    """The fog across its WAN, its sites registered with their uplinks, and calibrated."""
    edges = [edge_of(site) for site in sites()]
    uplink = Uplink(times.up_mbps, DOWN_MBPS, LATENCY_MS)
    with measured_fog(
        edges,
        uplink,
        metrics_s=METRICS_S,
        checkpoint_s=CHECKPOINT_S,
        calibrates=not is_quick(),
    ) as (fog, api):
        yield Bench(fog, api)
