"""One run of the traffic application that is moved while data flows: what it does, what is seen."""

from __future__ import annotations

import secrets
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from bench.arrivals import Arrivals
from bench.cameras import CLOUD, WINDOW_MS, camera, composition, laid_out, sites
from bench.common import Api, is_quick, say
from bench.detections import DetectionFeed, Log, edge_of, templates
from bench.moved import GLOBAL, Watch, bins, compare_drained, span
from speck.fog.paths import edge_jar
from speck.fog.service import serving
from speck.fog.sites import Fog
from speck.fog.wan import Uplink, Wan
from speck.model.values import JsonObject

NAME = "traffic"
DOWN_MBPS, LATENCY_MS = 10.0, 9.3
SENSORS = 2
METRICS_S = 4.0
CHECKPOINT_S = 10.0
"""Each second, of 17 jobs, was most of what the machine did."""
ANALYSIS_S = 600.0
"""That an analysis may take: the machine is busy with what is analysed."""
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
        self.api.call("DELETE", f"/compositions/{NAME}", wait=300, drain="false")

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
            _wait(times.lead_s)
            mover(run, times)
            self._caught_up(run, times.settle_s)
            run.mark("settled")
            _wait(times.after_s)
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
            _wait(0.5)
        _wait(FRESH_MS / 1000)

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
        _wait(times.before_s)
        until = run.mark("analyse")
        analysis = self._analysis(since, until)
        run.mark("place")
        request = {"composition": NAME, "policy": "milp", "analysis": analysis["id"]}
        placement = self.api.call("POST", "/placements", request)
        run.facts["predicted"] = summarise_prediction(placement, analysis)
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

    def _analysis(self, since: float, until: float) -> JsonObject:
        request = {"composition": NAME, "since": _moment(since), "until": _moment(until)}
        started = self.api.call("POST", "/analyses", request)
        over = ("done", "failed", "cancelled")
        deadline = time.monotonic() + ANALYSIS_S
        while (analysis := self.api.call("GET", f"/analyses/{started['id']}"))["state"] not in over:
            if time.monotonic() > deadline:
                raise RuntimeError(f"the analysis does not end in {ANALYSIS_S:g} s: {analysis}")
            _wait(0.3)
        if analysis["state"] != "done":
            raise RuntimeError(f"the analysis is {analysis['state']}: {analysis['error']}")
        return analysis

    # -- by itself ------------------------------------------------------------------------

    def by_itself(self, run: Series, times: Course) -> None:
        """Switch the autopilot on once there are enough samples, and wait until it has acted."""
        run.mark("measure")
        _wait(times.before_s)
        every_s = max(60.0, times.before_s)  # it looks back as long
        settings = {"on": True, "every_s": every_s, "settle_s": 20.0, "looks": 1, "min_gain": 0.1}
        self.api.call("PUT", f"/compositions/{NAME}/autopilot", settings)
        acted = self._entry("act", 240.0)
        run.mark("apply")
        run.facts["autopilot"] = [acted["message"]]
        placement = self.api.call("GET", f"/placements/{acted['placement']}")
        analysis = self.api.call("GET", f"/analyses/{placement['analysis']}")
        run.facts["predicted"] = summarise_prediction(placement, analysis)
        for name in ("analyse", "place"):
            at = analysis["started" if name == "analyse" else "ended"]
            run.moments[name] = _monotonic(at)
        self._await_change(acted["change"])
        run.mark("applied")

    def _entry(self, kind: str, timeout_s: float) -> JsonObject:
        """The first entry of that kind in the autopilot's log."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            log: list[JsonObject] = self.api.call("GET", f"/compositions/{NAME}/autopilot")["log"]
            entries = [entry for entry in log if entry["kind"] == kind]
            if entries:
                return entries[0]
            _wait(0.3)
        raise RuntimeError(f"the autopilot did not {kind} in {timeout_s:g} s: {log}")

    def _await_change(self, change: str) -> None:
        until = time.monotonic() + 300.0
        while (state := self.api.call("GET", f"/changes/{change}"))["state"] != "done":
            if time.monotonic() > until or state["state"] == "failed":
                raise RuntimeError(f"the autopilot's change is {state['state']}: {state}")
            _wait(0.2)

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


def summarise_prediction(placement: JsonObject, analysis: JsonObject) -> JsonObject:
    """The placement's prediction of bytes between sites, and the rate of records that it is for."""
    records_per_s = sum(
        job["in_rate"] or 0.0 for job in analysis["jobs"] if job["job_name"].startswith("clean-")
    )
    return {
        "moves": {move["job_name"]: move["to"] for move in placement["proposed"]["moves"]},
        "records_per_s": records_per_s,
        "today_bytes_per_s": placement["today"]["wan_bytes_per_s"],
        "proposed_bytes_per_s": placement["proposed"]["wan_bytes_per_s"],
        "today_latency_ms": placement["today"]["latency_ms"],
        "proposed_latency_ms": placement["proposed"]["latency_ms"],
        "today_cloud_engine_cores": placement["today"]["cores"][CLOUD],
        "proposed_cloud_engine_cores": placement["proposed"]["cores"][CLOUD],
        "today_max_rate": placement["today"]["max_rate"],
        "proposed_max_rate": placement["proposed"]["max_rate"],
        "today_violations": placement["today"]["violations"],
        "violations": placement["violations"],
        "notes": placement["notes"],
        "unmeasured": placement["unmeasured"],
    }


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _moment(at: float) -> str:
    """A moment of time.monotonic as the API wants it."""
    text = datetime.fromtimestamp(at - time.monotonic() + time.time(), UTC)
    return text.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _monotonic(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() - time.time() + time.monotonic()


@contextmanager
def prepared(times: Course) -> Iterator[Bench]:
    """The fog across its WAN, its sites registered with their uplinks, and calibrated."""
    with tempfile.TemporaryDirectory(prefix="speck-in-action-") as folder, ExitStack() as stack:
        fog = Fog(Path(folder) / "fog")
        stack.callback(fog.down)
        say("bringing up edges and a cloud across a WAN")
        edges = [edge_of(site) for site in sites()]
        uplink = Uplink(times.up_mbps, DOWN_MBPS, LATENCY_MS)
        wan = Wan({CLOUD: Uplink(None, None), **dict.fromkeys(edges, uplink)})
        fog.up(
            edges=len(edges),
            clouds=1,
            slots=6,
            cloud_slots=18,
            checkpoint_interval_s=CHECKPOINT_S,
            wan=wan,
            wan_mode="namespaces",
        )
        jars = edge_jar("speck-jobs.jar").parent
        more = {"SPECK_METRICS_S": f"{METRICS_S:g}"}
        server = stack.enter_context(serving(Path(folder) / "home", [jars], more=more))
        api = Api(server.url)
        for body in fog.site_bodies():
            if body["name"] in edges:
                body["uplink_mbps"] = times.up_mbps
                body["labels"] = {**body["labels"], "latency_ms": str(LATENCY_MS)}
            api.call("POST", "/sites", body)
        if not is_quick():  # a placement that knows no site's speed is of low confidence
            for site in (CLOUD, *edges):  # paces are told against the cloud's
                say(f"calibrating {site}")
                api.call("POST", f"/sites/{site}/calibration")
        yield Bench(fog, api)
