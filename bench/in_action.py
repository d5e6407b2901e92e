"""A placement carried out while data flows: the traffic application, started in the cloud.

Cameras publish at three edges, each with an uplink of 2 Mb/s; all 17 jobs start in the cloud, so
every record crosses an uplink as the camera sent it: more than the uplink carries. The service's
own collector measures, an analysis is made of that, `milp` proposes, and its placement is applied
while the cameras go on. What crosses then is what Forward sends: batches, compressed
(`link: {batch_records, linger_ms, compression}`), which is no use to anyone while it runs in the
cloud. Then the same again, with nobody but the autopilot at work.

`make bench-in-action` writes bench/results/in_action.json; as root on Linux, for the WAN.
"""

from __future__ import annotations

import json
import random
import secrets
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import yaml

from bench.arrivals import Arrival, Arrivals
from bench.common import Api, say
from bench.detections import (
    STREAMS,
    TRAFFIC,
    DetectionFeed,
    Log,
    all_streams,
    edge_of,
    encode,
    templates,
)
from bench.experiment import Check, Experiment, is_quick, percentile
from bench.truth import Machine
from speck.fog.paths import edge_jar
from speck.fog.reference import (
    Comparison,
    Detection,
    compare_global,
    compare_local,
    compute_global,
    compute_local,
)
from speck.fog.service import serving
from speck.fog.sites import Fog
from speck.fog.wan import Uplink, Wan
from speck.model import JsonObject

CLOUD = "cloud"
NAME = "traffic"
UP_MBPS, DOWN_MBPS, LATENCY_MS = 2.0, 10.0, 9.3
LINK = {"batch_records": 100, "linger_ms": 50, "compression": "zstd"}
"""Of each Forward's sink: what Merge reads."""
WINDOW_MS = 500
SENSORS = 2
LOCAL, GLOBAL = "demo-local-", "demo-global"
METRICS_S = 2.0
DRAIN_S, QUIET_S = 90.0, 30.0
WITHIN = 0.2


@dataclass(frozen=True, slots=True)
class Course:
    """How long each part takes, in seconds: until it is measured, all in the cloud, until the
    moves are over and what had piled up is gone, and after that; ms between two records of a
    site."""

    lead_s: float
    before_s: float
    settle_s: float
    after_s: float
    interval_ms: float


INTERVAL_MS = 1000 / 350


def course() -> Course:
    """A short one in QUICK=1: too short for evidence, so `laid_out` says what moves then."""
    if is_quick():
        return Course(3.0, 8.0, 4.0, 6.0, INTERVAL_MS)
    return Course(10.0, 75.0, 25.0, 45.0, INTERVAL_MS)


def _drawn() -> str:
    """What a camera saw a vehicle by. Drawn by chance: it compresses no better than figures do."""
    record = {
        "lane": _DRAW.randint(1, 4),
        "heading_deg": round(_DRAW.uniform(0, 360), 1),
        "confidence": round(_DRAW.uniform(0.5, 1), 4),
        "plate": f"{_DRAW.getrandbits(64):016x}",
        "colour": _DRAW.choice(["white", "black", "grey", "silver", "blue", "red", "green"]),
        "exposure_us": _DRAW.randint(200, 20_000),
        "gain_db": round(_DRAW.uniform(0, 24), 1),
        "model": "detector-7b",
        "firmware": "4.2.1",
        "track": [
            {"x": round(_DRAW.uniform(0, 1920), 1), "y": round(_DRAW.uniform(0, 1080), 1)}
            for _ in range(TRACK)
        ],
    }
    return json.dumps(record, separators=(",", ":"))[1:]


TRACK = 16
"""Points that a camera followed a vehicle by."""
_DRAW = random.Random(5)
_EXTRAS = [_drawn() for _ in range(2003)]
"""Many more than a batch holds."""


def camera(stream: str, number: int, seen: Detection) -> bytes:
    """A detection as a camera would send it, with what it saw it by: some 780 bytes."""
    extra = _EXTRAS[(number * 7 + sum(stream.encode())) % len(_EXTRAS)]
    return encode(stream, number, seen)[:-1] + b"," + extra.encode()


def composition() -> JsonObject:
    """compositions/traffic/cloud.yaml with short windows, and what Forward sends batched."""
    content: JsonObject = yaml.safe_load((TRAFFIC / "cloud.yaml").read_text())
    for job in content["jobs"]:
        words = job.get("args", [])
        if "--window" in words:
            words[words.index("--window") + 1] = f"{WINDOW_MS}ms"
        if job["entry_class"].endswith(".Forward"):
            job["link"] = dict(LINK)
    return content


def laid_out() -> JsonObject:
    """What is expected of the placement: each site's jobs at its edge, results in the cloud."""
    content = composition()
    for job in content["jobs"]:
        site = job["job_name"].rpartition("-")[2][0]
        if site.upper() in STREAMS and job["job_name"] != "merge":
            job["site"] = edge_of(site)
            clean = job["entry_class"].endswith(".Clean")
            job["source_site"], job["sink_site"] = edge_of(site), edge_of(site) if clean else CLOUD
    return content


class Watch:
    """Each second: bytes that each uplink has carried up, and the machine's CPU."""

    def __init__(self, fog: Fog) -> None:
        self._fog, self._over = fog, threading.Event()
        self.looks: list[tuple[float, dict[str, int], float]] = []
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        machine, due = Machine(), time.monotonic()
        while not self._over.wait(max(0.0, due - time.monotonic())):
            up = {link.site: link.up_bytes for link in self._fog.links()}
            self.looks.append((time.monotonic(), up, machine.used()))
            machine, due = Machine(), due + 1.0

    def close(self) -> None:
        self._over.set()
        self._thread.join()

    def up_per_s(self, since: float, until: float) -> float:
        """Bytes a second out of all edges between two moments of time.monotonic."""
        within = [look for look in self.looks if since <= look[0] <= until]
        (first, before, _), (last, after, _) = within[0], within[-1]
        return (_edges(after) - _edges(before)) / (last - first)

    def cpu(self, since: float, until: float) -> float:
        """Share of the machine in use between two moments."""
        within = [cpu for at, _, cpu in self.looks if since <= at <= until]
        return sum(within) / len(within)


def _edges(up: dict[str, int]) -> int:
    return sum(count for site, count in up.items() if site != CLOUD)


@dataclass(slots=True)
class Series:
    """One run while it goes on: `moments` are of time.monotonic, `told` what was measured."""

    feed: DetectionFeed
    readers: Arrivals
    watch: Watch
    moments: dict[str, float]
    told: JsonObject

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
        self._seen = templates(SENSORS)

    def series(self, mover: Callable[[Series, Course], None], times: Course) -> JsonObject:
        """Deploy all in the cloud, feed, have `mover` move it, and drain at last."""
        content = composition()
        self.api.apply(content)
        wanted = [
            (output["client_id"], self._brokers[output["site"]], output["topic"])
            for output in content["outputs"]
        ]
        with ExitStack() as stack:
            stack.callback(self._remove)
            readers = stack.enter_context(Arrivals(wanted))
            watch = Watch(self.fog)
            stack.callback(watch.close)
            feed = stack.enter_context(self._feed(times))
            run = Series(feed, readers, watch, {"begin": time.monotonic()}, {})
            _wait(times.lead_s)
            mover(run, times)
            run.mark("settled")
            _wait(times.after_s)
            run.mark("end")
            log = feed.end(180.0)
            return self._found(run, log)

    def _feed(self, times: Course) -> DetectionFeed:
        return DetectionFeed(
            {site: self._brokers[edge_of(site)] for site in STREAMS},
            interval_ms=times.interval_ms,
            window_ms=WINDOW_MS,
            run=secrets.token_hex(4),
            seen=self._seen,
            encoder=camera,
        )

    def _remove(self) -> None:
        self.api.call("DELETE", f"/compositions/{NAME}", wait=300, force=True)

    # -- by hand --------------------------------------------------------------------------

    def by_hand(self, run: Series, times: Course) -> None:
        """Analyse, place, apply."""
        since = run.mark("measure")
        _wait(times.before_s)
        until = run.mark("analyse")
        analysis = self._analysis(since, until)
        run.mark("place")
        asked = {"composition": NAME, "policy": "milp", "analysis": analysis["id"]}
        made = self.api.call("POST", "/placements", asked)
        run.told["predicted"] = predicted(made, analysis)
        for move in made["proposed"]["moves"]:
            say(f"    {move['job_name']}: {move['from']} -> {move['to']}")
        run.mark("apply")
        if is_quick() and not made["proposed"]["moves"]:
            self.api.apply(laid_out())
        else:
            self._apply(made["id"])
        run.mark("applied")
        _wait(times.settle_s)

    def _apply(self, placement: str) -> None:
        answer = self.api.call("POST", f"/placements/{placement}/apply", wait=300)
        if answer["state"] != "done":
            change = self.api.call("GET", f"/changes/{answer['change']}")
            raise RuntimeError(f"the placement was not applied: {change}")

    def _analysis(self, since: float, until: float) -> JsonObject:
        asked = {"composition": NAME, "since": _moment(since), "until": _moment(until)}
        made = self.api.call("POST", "/analyses", asked)
        over = ("done", "failed", "cancelled")
        while (found := self.api.call("GET", f"/analyses/{made['id']}"))["state"] not in over:
            _wait(0.3)
        if found["state"] != "done":
            raise RuntimeError(f"the analysis is {found['state']}: {found['error']}")
        return found

    # -- by itself ------------------------------------------------------------------------

    def by_itself(self, run: Series, times: Course) -> None:
        """Switch the autopilot on and wait until it has acted."""
        run.mark("measure")
        settings = {"on": True, "every_s": 20.0, "settle_s": 20.0, "looks": 1, "min_gain": 0.1}
        self.api.call("PUT", f"/compositions/{NAME}/autopilot", settings)
        acted = self._entry("act", 240.0)
        run.mark("apply")
        run.told["autopilot"] = [acted["message"]]
        made = self.api.call("GET", f"/placements/{acted['placement']}")
        analysis = self.api.call("GET", f"/analyses/{made['analysis']}")
        run.told["predicted"] = predicted(made, analysis)
        for name in ("analyse", "place"):
            at = analysis["started" if name == "analyse" else "ended"]
            run.moments[name] = _monotonic(at)
        self._await_change(acted["change"])
        run.mark("applied")
        _wait(times.settle_s)

    def _entry(self, kind: str, timeout_s: float) -> JsonObject:
        """The first entry of that kind in the autopilot's log."""
        until = time.monotonic() + timeout_s
        while time.monotonic() < until:
            log: list[JsonObject] = self.api.call("GET", f"/compositions/{NAME}/autopilot")["log"]
            found = [entry for entry in log if entry["kind"] == kind]
            if found:
                return found[0]
            _wait(0.3)
        raise RuntimeError(f"the autopilot did not {kind} in {timeout_s:g} s: {log}")

    def _await_change(self, change: str) -> None:
        until = time.monotonic() + 300.0
        while (found := self.api.call("GET", f"/changes/{change}"))["state"] != "done":
            if time.monotonic() > until or found["state"] == "failed":
                raise RuntimeError(f"the autopilot's change is {found['state']}: {found}")
            _wait(0.2)

    # -- what was found -------------------------------------------------------------------

    def _found(self, run: Series, log: Log) -> JsonObject:
        compared = _drained(run.readers, log)
        came = run.readers.since(0)
        begin, moments = run.moments["begin"], run.moments
        spans = {
            "before": (moments["measure"], moments["analyse"]),
            "after": (moments["settled"], moments["end"]),
        }
        return {
            **run.told,
            "moments_s": {name: round(at - begin, 2) for name, at in moments.items()},
            "bins": bins(run, came, log),
            **{name: span(run, came, log, *ends) for name, ends in spans.items()},
            "published": run.feed.sent,
            "published_again": run.feed.resent,
            "feed_late_s": round(run.feed.latest_s, 3),
            "lost": sum(each.lost for each in compared),
            "repeated": sum(each.repeated for each in compared),
            "different": sum(len(each.different) for each in compared),
        }


def predicted(made: JsonObject, analysis: JsonObject) -> JsonObject:
    """What the placement says of bytes between sites, and how many records that is for."""
    taken = sum(
        job["in_rate"] or 0.0 for job in analysis["jobs"] if job["job_name"].startswith("clean-")
    )
    return {
        "moves": {move["job_name"]: move["to"] for move in made["proposed"]["moves"]},
        "records_per_s": taken,
        "today_bytes_per_s": made["today"]["wan_bytes_per_s"],
        "proposed_bytes_per_s": made["proposed"]["wan_bytes_per_s"],
        "today_max_rate": made["today"]["max_rate"],
        "proposed_max_rate": made["proposed"]["max_rate"],
        "today_violations": made["today"]["violations"],
        "violations": made["violations"],
        "notes": made["notes"],
        "unmeasured": made["unmeasured"],
    }


def latencies(came: Sequence[Arrival], log: Log, client: str) -> list[tuple[float, float]]:
    """(arrival, seconds since the message that completed the window) of each first result."""
    found = []
    for arrival in came:
        if not arrival.client.startswith(client) or arrival.record["revision"] != 0:
            continue
        streams = STREAMS[arrival.record["site"]] if "site" in arrival.record else all_streams()
        closed = log.closed_at(streams, arrival.record["window_start_ms"] + log.window_ms)
        if closed is not None:
            found.append((arrival.at, arrival.at - closed))
    return found


def counted(came: Sequence[Arrival]) -> list[tuple[float, int]]:
    """(arrival, detections) of each result of Job 4."""
    return [
        (arrival.at, arrival.record["count"])
        for arrival in came
        if arrival.client == GLOBAL and arrival.record["revision"] == 0
    ]


def span(run: Series, came: Sequence[Arrival], log: Log, since: float, until: float) -> JsonObject:
    """What arrived between two moments of time.monotonic."""
    seconds = until - since
    rate = sum(count for at, count in counted(came) if since < at <= until) / seconds
    up = run.watch.up_per_s(since, until)
    found: JsonObject = {
        "seconds": round(seconds, 2),
        "sink_per_s": rate,
        "wan_bytes_per_s": up,
        "wan_bytes_per_record": up / rate if rate else None,
        "machine_cpu": run.watch.cpu(since, until),
    }
    for name, client in (("job3", LOCAL), ("job4", GLOBAL)):
        late = [took for at, took in latencies(came, log, client) if since < at <= until]
        shares = {f"p{share}_s": percentile(late, share / 100) for share in (50, 95, 99)}
        found[name] = {"results": len(late), **shares}
    return found


def bins(run: Series, came: Sequence[Arrival], log: Log) -> list[JsonObject]:
    """Second by second since the feed began; latency of Job 4 is null where no result came."""
    begin = run.moments["begin"]
    records: dict[int, int] = defaultdict(int)
    late: dict[int, list[float]] = defaultdict(list)
    for at, count in counted(came):
        records[int(at - begin)] += count
    for at, took in latencies(came, log, GLOBAL):
        late[int(at - begin)].append(took)
    found = []
    for (_, before, _), (at, after, cpu) in zip(run.watch.looks, run.watch.looks[1:], strict=False):
        second = int(at - begin)
        found.append(
            {
                "t_s": round(at - begin, 2),
                "sink_per_s": records[second],
                "wan_bytes_per_s": _edges(after) - _edges(before),
                "latency_p50_s": percentile(late[second], 0.5),
                "latency_max_s": max(late[second], default=None),
                "machine_cpu": round(cpu, 3),
            }
        )
    return found


def _drained(readers: Arrivals, log: Log) -> list[Comparison]:
    """Wait until every result is right, or none has come for a while."""
    local = compute_local(log.rows, window_ms=log.window_ms)
    whole = compute_global(log.rows, window_ms=log.window_ms)
    began = since = time.monotonic()
    before = -1
    while True:
        came = readers.since(0)
        if len(came) != before:
            before, since = len(came), time.monotonic()
        compared = [
            compare_local(local, [a.record for a in came if a.client.startswith(LOCAL)]),
            compare_global(whole, [a.record for a in came if a.client == GLOBAL]),
        ]
        now = time.monotonic()
        if all(each.equal for each in compared) or now - since > QUIET_S or now - began > DRAIN_S:
            return compared
        _wait(0.5)


def _wait(seconds: float) -> None:
    threading.Event().wait(seconds)


def _moment(at: float) -> str:
    """A moment of time.monotonic as the API wants it."""
    text = datetime.fromtimestamp(at - time.monotonic() + time.time(), UTC)
    return text.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _monotonic(text: str) -> float:
    return datetime.fromisoformat(text).timestamp() - time.time() + time.monotonic()


@contextmanager
def prepared() -> Iterator[Bench]:
    """The fog across its WAN, its sites registered with their uplinks."""
    with tempfile.TemporaryDirectory(prefix="speck-in-action-") as folder, ExitStack() as stack:
        fog = Fog(Path(folder) / "fog")
        stack.callback(fog.down)
        say("bringing up three edges and a cloud across a WAN")
        edges = [edge_of(site) for site in STREAMS]
        uplink = Uplink(UP_MBPS, DOWN_MBPS, LATENCY_MS)
        wan = Wan({CLOUD: Uplink(None, None), **dict.fromkeys(edges, uplink)})
        fog.up(edges=len(edges), clouds=1, slots=6, cloud_slots=18, wan=wan, wan_mode="namespaces")
        jars = edge_jar("speck-jobs.jar").parent
        more = {"SPECK_METRICS_S": f"{METRICS_S:g}"}
        served = stack.enter_context(serving(Path(folder) / "home", [jars], more=more))
        api = Api(served.url)
        for body in fog.site_bodies():
            at_edge = {"uplink_mbps": UP_MBPS} if body["name"] in edges else {}
            api.call("POST", "/sites", {**body, **at_edge})
        yield Bench(fog, api)


def judged(name: str, row: JsonObject) -> list[Check]:
    """What a series must show."""
    before, after, said = row["before"], row["after"], row["predicted"]

    def fell(what: str, was: float | None, now: float | None) -> Check:
        ok = was is not None and now is not None and now < was
        shown = " -> ".join("none" if v is None else f"{v:.4g}" for v in (was, now))
        return Check(f"{what}, {name}", "falls", shown, ok)

    def per_record(which: str) -> float:
        return float(said[f"{which}_bytes_per_s"] / said["records_per_s"])

    moved = len(said["moves"])
    unjudged = is_quick() and not moved
    note = "QUICK is too short for evidence: moved as was expected of it" if unjudged else ""
    checks = [
        Check(f"jobs moved, {name}", ">= 1", moved, None if unjudged else moved >= 1, note),
        fell("latency p95 of Job 4 (s)", before["job4"]["p95_s"], after["job4"]["p95_s"]),
        fell("latency p95 of Job 3 (s)", before["job3"]["p95_s"], after["job3"]["p95_s"]),
        fell(
            "WAN bytes a record",
            before["wan_bytes_per_record"],
            after["wan_bytes_per_record"],
        ),
        Check(
            f"records a second at the sink, {name}",
            f"> {before['sink_per_s']:.0f}",
            round(after["sink_per_s"]),
            after["sink_per_s"] > before["sink_per_s"],
        ),
    ]
    for which, span_ in () if unjudged else (("today", before), ("proposed", after)):
        told, found = per_record(which), span_["wan_bytes_per_record"] or 0.0
        checks.append(
            Check(
                f"WAN bytes a record, {which}, {name}",
                f"{told:.1f} +- {WITHIN:.0%} as predicted",
                round(found, 1),
                abs(found / told - 1) <= WITHIN,
                "predicted: MQTT packets; measured: whole packets of the uplink's interface",
            )
        )
    for what in ("lost", "repeated", "different"):
        checks.append(Check(f"{what}, {name}", "0", row[what], row[what] == 0))
    return checks


def main() -> int:
    """Exit status 0 only when every check holds."""
    times = course()
    settings: JsonObject = {
        "uplink_mbps": UP_MBPS,
        "downlink_mbps": DOWN_MBPS,
        "latency_ms": LATENCY_MS,
        "link": LINK,
        "window_ms": WINDOW_MS,
        "metrics_s": METRICS_S,
        "interval_ms": times.interval_ms,
        "seconds": [times.lead_s, times.before_s, times.settle_s, times.after_s],
    }
    experiment = Experiment(
        "in_action",
        settings,
        simulated=[
            "The WAN: network namespaces on one machine, rate by tc, latency by a delay element.",
            "Cameras: a simulated trace's vehicles with fields drawn by chance, some 780 B each.",
        ],
    )
    movers = ["by hand"] if is_quick() else ["by hand", "autopilot"]
    done = {row["key"] for row in experiment.rows}
    if not set(movers) <= done:
        with prepared() as bench:
            by = {"by hand": bench.by_hand, "autopilot": bench.by_itself}
            for name in movers:
                experiment.row(name, lambda: bench.series(by[name], times))  # noqa: B023
    rows = {row["key"]: row for row in experiment.rows if row["key"] in movers}
    checks = [check for name, row in rows.items() for check in judged(name, row)]
    return experiment.finish({"series": rows}, checks)


if __name__ == "__main__":
    sys.exit(main())
