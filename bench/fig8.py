"""Figure 8: Job 3 (local statistics) at the edge beside its broker, and remote in the cloud.

One edge and a cloud, 9.3 ms one way apart; the edge's three streams feed the job's source topic,
and its result is read at the edge, where it is wanted: the remote job's comes back over the WAN.
At a message per 2 ms, per 1 ms, and at the highest rate at which both keep up on a machine that is
at most 70 % in use, found by stepping up.

`make bench-fig8` writes bench/results/fig8.json; QUICK=1 takes one short run of each.
"""

from __future__ import annotations

import gc
import secrets
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from bench.arrivals import Arrival, Arrivals
from bench.common import Api, fog_with_service, say, sleep_until
from bench.detections import STREAMS, DetectionFeed, Log, templates
from bench.experiment import Check, Experiment, interval, is_quick, percentile
from bench.usage import Machine
from speck.fog.sites import Fog
from speck.fog.wan.model import Uplink, Wan
from speck.model.values import JsonObject
from traffic.reference import Comparison, compare_local, compute_local

EDGE, CLOUD, SITE = "edge-a", "cloud", "A"
PLACES = {"local": EDGE, "remote": CLOUD}
TOPIC = "traffic/{site}/clean"
LATENCY_MS = 9.3
WINDOW_MS = 500
SENSORS = 2
INTERVALS_MS = (2.0, 1.0)
STEPS_PER_S = (2000,) if is_quick() else (1500, 2000, 3000, 4000, 5000, 6000, 8000, 10000)
REPEATS = 1 if is_quick() else 5
LEAD_S = 1.5
SECONDS = 2.0 if is_quick() else 6.0
DRAIN_S = 20.0
MOST_CPU = 0.7
LEAST_PROCESSED = 0.98
"""Of what was offered; less says that the job fell behind. Windows come whole: one may be due
just at the end."""
MOST_LATE_MS = 100.0
"""The feed's own: beyond, it did not offer what it should have."""


class Bench:
    """The fog with its service; one job at a time."""

    def __init__(self, fog: Fog, api: Api) -> None:
        self._fog, self._api = fog, api
        self._brokers = {site.name: site.broker_address for site in fog.sites()}
        self._templates = templates(SENSORS)

    def run(self, way: str, interval_ms: float, seconds: float = SECONDS) -> JsonObject:
        """Deploy the job, feed it, measure for `seconds` after a lead, wait for what is to come."""
        _freeze_objects()
        with self._deploy(PLACES[way]) as reader:
            feed = DetectionFeed(
                {SITE: self._brokers[EDGE]},
                interval_ms=interval_ms,
                window_ms=WINDOW_MS,
                run=secrets.token_hex(4),
                detections=self._templates,
                topic=TOPIC,
            )
            with feed:
                began = feed.find_middle(time.monotonic() + LEAD_S, WINDOW_MS)
                sleep_until(began)
                machine, crossings = Machine(), self._read_crossings()
                until = feed.find_middle(began + seconds, WINDOW_MS)
                sleep_until(until)
                cpu_share, now = machine.used(), self._read_crossings()
                log = feed.end()
            drained_s = _await_all(log, reader)
            arrivals = reader.since(0)
        return {
            "way": way,
            "interval_ms": interval_ms,
            "seconds": round(until - began, 3),
            "cpu": round(cpu_share, 4),
            "wan_bytes_per_s": round((now - crossings) / (until - began)),
            "published": len(log.rows),
            "feed_late_ms": round(feed.latest_s * 1000, 1),
            "drained_s": round(drained_s, 2),
            **_summarise_run(log, arrivals, began, until),
        }

    @contextmanager
    def _deploy(self, place: str) -> Iterator[Arrivals]:
        """Job 3 at a site, and a reader of its result at the edge."""
        client = f"fig8-{secrets.token_hex(4)}"
        output = {"site": place, "topic": "traffic/A/local", "client_id": client}
        self._api.apply(
            {
                "name": "fig8",
                "jobs": [
                    {
                        "job_name": "local-stats-a",
                        "site": place,
                        "source_site": EDGE,
                        "source_topic": TOPIC.format(site=SITE),
                        "sink_topic": output["topic"],
                        "entry_class": "io.speck.jobs.LocalStats",
                        "job_path": "speck-jobs.jar",
                        "args": [
                            *("--site", SITE, "--streams", ",".join(STREAMS[SITE])),
                            *("--window", f"{WINDOW_MS}ms", "--idle-limit", "60s"),
                        ],
                    }
                ],
                "inputs": [{"site": EDGE, "topic": TOPIC.format(site=SITE)}],
                "outputs": [output],
            }
        )
        outputs = [(client, self._brokers[place], output["topic"])]
        try:
            with Arrivals(outputs, self._fog.enter(EDGE)) as reader:
                yield reader
        finally:
            self._api.call(
                "DELETE", "/compositions/fig8", drop_queues="true", drain_limit=0, wait=120
            )

    def _read_crossings(self) -> int:
        """Bytes that crossed the edge's uplink so far, both ways, whole packets."""
        link = next(link for link in self._fog.links() if link.site == EDGE)
        return link.up_bytes + link.down_bytes


def _freeze_objects() -> None:
    """A full garbage collection looks through what was imported, too, and takes some 100 ms,
    in which the feed sends nothing: what exists before a run is left out."""
    gc.collect()
    gc.freeze()


def _compare_with_log(log: Log, arrivals: Sequence[Arrival]) -> Comparison:
    expected = compute_local(log.rows, window_ms=WINDOW_MS)
    return compare_local(expected, [arrival.record for arrival in arrivals])


def _await_all(log: Log, reader: Arrivals) -> float:
    """Wait until every detection is in a result; seconds waited."""
    began = time.monotonic()
    while _compare_with_log(log, reader.since(0)).lost and time.monotonic() < began + DRAIN_S:
        time.sleep(0.2)
    return time.monotonic() - began


def _summarise_run(log: Log, arrivals: Sequence[Arrival], began: float, until: float) -> JsonObject:
    """The offered and processed records of the measured time, and the latency of results."""
    latencies, offered, counts = [], 0, []
    for arrival in arrivals:
        record: Mapping[str, int] = arrival.record
        if record["revision"] != 0:
            continue
        counts.append((arrival.at, record["count"]))
        closed = log.closed_at(STREAMS[SITE], record["window_start_ms"] + WINDOW_MS)
        if closed is not None and began < closed <= until:
            offered += record["count"]
            latencies.append(arrival.at - closed)
    published = [(row.detection.time_ms) for row in log.rows if row.detection]
    comparison = _compare_with_log(log, arrivals)
    return {
        "offered": offered,
        "processed": sum(count for at, count in counts if began < at <= until),
        "lost": comparison.lost,
        "repeated": comparison.repeated,
        "different": len(comparison.different),
        "results": len(latencies),
        "latencies_ms": [round(each * 1000, 2) for each in latencies],
        "over_time": _over_time(published, counts),
    }


def _over_time(published_ms: Sequence[int], counts: Sequence[tuple[float, int]]) -> JsonObject:
    """Sums at each half second of the run: detections published, detections in results."""
    offset = time.time() - time.monotonic()
    begin = published_ms[0] / 1000
    last = max([at + offset for at, _ in counts], default=begin)
    ticks = [step * 0.5 for step in range(int((last - begin) / 0.5) + 2)]
    return {
        "at_s": ticks,
        "published": [sum(ms / 1000 - begin <= tick for ms in published_ms) for tick in ticks],
        "processed": [
            sum(count for at, count in counts if at + offset - begin <= tick) for tick in ticks
        ],
    }


def why_unjudged(row: JsonObject) -> str:
    """Why a run says nothing about the job, whatever came of it; empty when it does."""
    if row["cpu"] > MOST_CPU:
        return f"the machine was {row['cpu']:.0%} in use"
    if row["feed_late_ms"] > MOST_LATE_MS:
        return f"the feed was {row['feed_late_ms']:.0f} ms late"
    return ""


def why_highest(row: JsonObject) -> str:
    """Why a rate is above the highest sustainable one; empty when it is not."""
    if why := why_unjudged(row):
        return why
    if row["processed"] < LEAST_PROCESSED * row["offered"]:
        return f"{row['processed']} of {row['offered']} were processed in time"
    return ""


def highest(experiment: Experiment, bench: Bench) -> float | None:
    """ms between messages at the highest rate that both ways keep up with; None: at no step."""
    rate = None
    for per_s in STEPS_PER_S:
        steps = [
            experiment.row(
                f"step/{per_s}/{way}",
                lambda w=way, r=per_s: {"kind": "step", **bench.run(w, 1000 / r, SECONDS / 2)},
            )
            for way in PLACES
        ]
        if any(why_highest(step) for step in steps):
            break
        rate = 1000 / per_s
    return rate


def judged_of(rows: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """The runs that figures are made of: those that can be judged; all when these are few."""
    fine = [row for row in rows if not why_unjudged(row)]
    return fine if 2 * len(fine) >= len(rows) else rows


def summary(rows: Sequence[JsonObject], highest_ms: float | None) -> JsonObject:
    """By rate and way, over the repeats."""
    runs = [row for row in rows if row["kind"] == "run"]
    summaries = []
    for ms in sorted({row["interval_ms"] for row in runs}, reverse=True):
        for way in PLACES:
            all_runs = [row for row in runs if (row["way"], row["interval_ms"]) == (way, ms)]
            of = judged_of(all_runs)
            late = [each for row in of for each in row["latencies_ms"]]
            summaries.append(
                {
                    "way": way,
                    "interval_ms": ms,
                    "offered_per_s": 1000 / ms,
                    "highest": ms == highest_ms,
                    "processed_per_s": interval([r["processed"] / r["seconds"] for r in of]),
                    "processed_share": interval(
                        [r["processed"] / r["offered"] for r in of if r["offered"]]
                    ),
                    **{f"p{p}_ms": percentile(late, p / 100) for p in (50, 95, 99)},
                    "p95_of_runs_ms": interval(
                        [v for r in of if (v := percentile(r["latencies_ms"], 0.95)) is not None]
                    ),
                    "latencies": len(late),
                    "cpu": interval([row["cpu"] for row in of]),
                    "wan_bytes_per_s": interval([row["wan_bytes_per_s"] for row in of]),
                    "lost": sum(row["lost"] for row in all_runs),
                    "repeated": sum(row["repeated"] for row in all_runs),
                    "different": sum(row["different"] for row in all_runs),
                    "runs": len(all_runs),
                    "left_out": len(all_runs) - len(of),
                    "saturated": [why for row in of if (why := why_unjudged(row))],
                    "over_time": of[0]["over_time"],
                }
            )
    return {
        "runs": summaries,
        "highest_per_s": None if highest_ms is None else 1000 / highest_ms,
        "steps": [
            {k: row[k] for k in ("way", "interval_ms", "cpu", "feed_late_ms", "processed")}
            | {"saturated": why_highest(row)}
            for row in rows
            if row["kind"] == "step"
        ],
    }


def checks(result: JsonObject) -> list[Check]:
    """Nothing is lost; where both keep up the local job's results come sooner."""
    runs = result["runs"]
    verdicts = []
    for what in ("lost", "repeated", "different"):
        count = sum(run[what] for run in runs)
        verdicts.append(Check(f"detections {what} in any run", "0", count, count == 0, always=True))
    top = result["highest_per_s"]
    verdicts.append(
        Check(
            "the highest rate that both ways keep up with is found",
            f"> {1000 / min(INTERVALS_MS):.0f}/s",
            top,
            top is not None,
            f"the last step, {STEPS_PER_S[-1]}/s, is carried, too"
            if top == STEPS_PER_S[-1]
            else "",
        )
    )
    for run in runs:
        share = run["processed_share"]["mean"] or 0.0
        verdicts.append(
            Check(
                f"{run['way']} keeps up with {run['offered_per_s']:.0f}/s",
                f">= {LEAST_PROCESSED:.0%} of the offered processed in time",
                f"{share:.1%}",
                None if run["saturated"] else share >= LEAST_PROCESSED,
                f"not judged: {run['saturated'][0]}" if run["saturated"] else "",
            )
        )
    for local in (run for run in runs if run["way"] == "local"):
        remote = next(
            r for r in runs if r["way"] == "remote" and r["interval_ms"] == local["interval_ms"]
        )
        saturated = [*local["saturated"], *remote["saturated"]]
        verdicts.append(
            Check(
                f"p95 latency at {local['offered_per_s']:.0f}/s: local below remote, ms",
                "local < remote",
                [local["p95_ms"], remote["p95_ms"]],
                None if saturated else local["p95_ms"] < remote["p95_ms"],
                f"not judged: {saturated[0]}" if saturated else "",
            )
        )
    return verdicts


def main() -> int:
    settings: JsonObject = {
        "intervals_ms": INTERVALS_MS,
        "steps_per_s": STEPS_PER_S,
        "latency_one_way_ms": LATENCY_MS,
        "window_ms": WINDOW_MS,
        "results_a_window": SENSORS * len(STREAMS[SITE]),
        "lead_s": LEAD_S,
        "seconds": SECONDS,
        "repeats": REPEATS,
        "most_cpu": MOST_CPU,
    }
    experiment = Experiment(
        "fig8",
        settings,
        simulated=(
            "The WAN: edge and cloud are network namespaces of one machine, 9.3 ms one way apart"
            " by a delay element; the rate is not limited.",
            "Edge, cloud, feed and reader share the cores of one machine.",
        ),
    )
    wan = Wan({EDGE: Uplink(latency_ms=LATENCY_MS)})
    with fog_with_service(1, 1, 4, wan=wan, more={"SPECK_METRICS_S": "0"}) as (fog, api):
        bench = Bench(fog, api)
        say("warming up")
        for way in PLACES:
            bench.run(way, INTERVALS_MS[-1])
        highest_ms = highest(experiment, bench)
        rates = sorted({*INTERVALS_MS, *([highest_ms] if highest_ms else [])}, reverse=True)
        for repeat in range(1, REPEATS + 1):
            for ms in rates:
                for way in list(PLACES) if repeat % 2 else list(PLACES)[::-1]:
                    experiment.row(
                        f"{1000 / ms:.0f}/{repeat}/{way}",
                        lambda w=way, m=ms, r=repeat: {
                            "kind": "run",
                            "repeat": r,
                            **bench.run(w, m),
                        },
                    )
    result = summary(experiment.rows, highest_ms)
    return experiment.finish(result, checks(result))


if __name__ == "__main__":
    sys.exit(main())
