"""What each hop of the traffic application takes: broker -> job -> broker, at its own site or over
the WAN. Taps look at the links between the jobs; they read at QoS 0 and keep no session."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping

from bench.arrivals import TAP, Arrivals
from bench.detections import STREAMS, Log, all_streams
from bench.experiment import percentile
from bench.traffic_run import GLOBAL, LOCAL, WINDOW_MS, Deployment
from speck.model.values import JsonObject

CLEAN, MERGED = TAP + "clean", TAP + "merged"
Seen = Mapping[tuple[str, int], float]  # (stream, id) -> when


def hops(deployment: Deployment, interval_ms: float, seconds: float) -> JsonObject:
    """`{hops: [{hop, n, p50_ms, p95_ms}]}` of `seconds` of a feed that the deployment carries."""
    taps = sorted(
        {
            (name, deployment.bench.brokers[job.get("sink_site", job["site"])], job["sink_topic"])
            for job in deployment.content["jobs"]
            if (name := _tap(job["sink_topic"])) is not None
        }
    )
    # a client id of one broker is one connection
    named = [(f"{name}-{number}", *rest) for number, (name, *rest) in enumerate(taps)]
    first = [reader.count() for reader in deployment.readers]
    with Arrivals(named) as tapped:
        with deployment.bench.feed(interval_ms) as feed:
            time.sleep(seconds)
            log = feed.end()
        _settle(lambda: tapped.count() + sum(r.count() for r in deployment.readers))
        arrivals = tapped.since(0)
    arrivals_at = {
        name: {
            (arrival.record[0], arrival.record[1]): arrival.at
            for arrival in arrivals
            if arrival.client.startswith(name) and arrival.record[1] is not None
        }
        for name in (CLEAN, MERGED)
    }
    results = [
        arrival
        for reader, start in zip(deployment.readers, first, strict=True)
        for arrival in reader.since(start)
        if arrival.record["revision"] == 0
    ]
    local = [each for each in results if each.client.startswith(LOCAL)]
    merged = [each for each in results if each.client == GLOBAL]
    names = _names(deployment)
    completes = _completing(log, arrivals_at[CLEAN]), _completing(log, arrivals_at[MERGED])
    rows = [
        _hop(names["clean"], _between(log.published, arrivals_at[CLEAN])),
        _hop(
            names["local-stats"],
            (
                each.at - at
                for each in local
                if (at := completes[0](STREAMS[each.record["site"]], _end(each.record)))
            ),
        ),
        _hop(
            names["to-merge"],
            _between(_before_merge(deployment, log, arrivals_at), arrivals_at[MERGED]),
        ),
        _hop(
            names["merge"],
            (
                each.at - at
                for each in merged
                if (at := completes[1](all_streams(), _end(each.record)))
            ),
        ),
    ]
    return {"hops": rows}


def _tap(topic: str) -> str | None:
    if topic.endswith("/clean"):
        return CLEAN
    return MERGED if topic == "traffic/detections" else None


def _names(deployment: Deployment) -> dict[str, str]:
    """The name of each hop, with the engine that processes it."""
    jobs = {job["job_name"]: job for job in deployment.content["jobs"]}
    into = jobs.get("forward-a") or jobs["merge-clean-a1"]
    return {
        "clean": f"sensor -> Clean ({jobs['clean-a1']['site']}) -> link of the site's statistics",
        "local-stats": f"-> LocalStats ({jobs['local-stats-a']['site']}) -> reader at the edge",
        "to-merge": f"{_source_of(into)} -> {into['entry_class'].rsplit('.', 1)[1]}"
        f" ({into['site']}) -> link of the merge",
        "merge": f"-> Merge ({jobs['merge']['site']}) -> reader in the cloud",
    }


def _source_of(job: JsonObject) -> str:
    return "link of the site's statistics" if job["source_topic"].endswith("/clean") else "sensor"


def _before_merge(
    deployment: Deployment, log: Log, arrivals_at: Mapping[str, Seen]
) -> Mapping[tuple[str, int], float]:
    forwards = any(job["job_name"] == "forward-a" for job in deployment.content["jobs"])
    return arrivals_at[CLEAN] if forwards else log.published


def _between(
    before: Mapping[tuple[str, int], float], after: Mapping[tuple[str, int], float]
) -> Iterable[float]:
    return (at - before[key] for key, at in after.items() if key in before)


def _completing(log: Log, arrivals: Seen) -> Callable[[Iterable[str], int], float | None]:
    """When the message that completed a window was seen at the tap."""
    first: dict[tuple[str, int], float] = {}
    for (stream, number), published in log.published.items():
        at = arrivals.get((stream, number))
        for end, passed in log.passed[stream].items():
            if passed == published and at is not None:
                first[stream, end] = at

    def find_completion(streams: Iterable[str], end: int) -> float | None:
        moments = [first.get((stream, end)) for stream in streams]
        return None if None in moments else max(at for at in moments if at is not None)

    return find_completion


def _end(record: JsonObject) -> int:
    return int(record["window_start_ms"]) + WINDOW_MS


def _hop(name: str, seconds: Iterable[float]) -> JsonObject:
    values = list(seconds)
    return {
        "hop": name,
        "n": len(values),
        **{
            f"p{share}_ms": None
            if (value := percentile(values, share / 100)) is None
            else round(value * 1000, 2)
            for share in (50, 95)
        },
    }


def _settle(count: Callable[[], int], quiet_s: float = 2.0, most_s: float = 20.0) -> None:
    """Until nothing has come for a while."""
    began = since = time.monotonic()
    before = count()
    while (now := time.monotonic()) - since < quiet_s and now - began < most_s:
        time.sleep(0.1)
        if count() != before:
            before, since = count(), now
