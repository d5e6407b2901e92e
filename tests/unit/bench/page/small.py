"""Small results, shaped as the experiments write theirs, to draw from."""

from __future__ import annotations

import json
from pathlib import Path

from bench.experiment import interval
from bench.page.result import Result, load
from speck.model.values import JsonObject


def write_small_result(name: str, summary: JsonObject, folder: Path) -> Result:
    """A result with this summary, as it would be read."""
    provenance = {"at": "2026-11-22T02:00:00Z", "seconds": 90.0, "code": "abc1234", "machine": {}}
    content = {
        **provenance,
        "summary": summary,
        "checks": [],
        "rows": [],
        "simulated": ["All of it."],
    }
    content["settings"] = SETTINGS
    file = folder / f"{name}.json"
    file.write_text(json.dumps(content))
    return load(file)


def around(mean: float) -> JsonObject:
    """An interval of three runs around a mean."""
    return interval([mean * 0.95, mean, mean * 1.06])


def fig6() -> JsonObject:
    return {**_chains(), "near": _chains()}


def _chains() -> JsonObject:
    chains: JsonObject = {"noop_s": around(0.1), "restless": 0.02}
    ratio = {**around(1.08), "median": 1.08}
    slopes = {"deploy": 0.03, "modify": 0.04, "delete": 0.015}
    for action in (*slopes, "argument", "savepoint", "move", "insert"):
        slope = slopes.get(action, 0.035)
        chains[action] = [
            {
                "jobs": jobs,
                "speck_s": around(0.15 + slope * jobs * 1.08),
                "floor_s": around(0.1 + slope * jobs),
                "one_by_one_s": around(0.1 + 3 * slope * jobs) if jobs != 50 else interval([]),
                "ratio": ratio,
            }
            for jobs in ((1, 10, 50, 100) if action in slopes else (10, 100))
        ]
    chains["of_a_deployment"] = dict.fromkeys(("argument", "move", "insert"), ratio)
    return chains


def moves() -> JsonObject:
    gaps = {"p50": 0.4, "p95": 0.6, "max": 0.9, "of": 50}
    kinds = {f"gap_{kind}_s": gaps for kind in ("stateless", "stateful", "at_rest")}
    return {mode: {"moves": 200, **kinds} for mode in ("exactly_once", "at_least_once")}


def edge_server() -> JsonObject:
    cells = []
    for limit, mbps, binds in (
        ("100 Mb/s", 100, False),
        ("10 Mb/s", 10, None),
        ("1 Mb/s", 1, True),
    ):
        for share in (0.3, 0.7):
            server = 100.0 * mbps
            ratio = 1 / share if binds else 1.0
            cells.append(
                {
                    "limit": limit,
                    "selectivity": share,
                    "sink_per_s": {"edge": around(server * ratio), "server": around(server)},
                    "ratio": around(ratio * 0.98),
                    "binds": binds,
                    "expected_ratio": None if binds is None else ratio,
                    "wan_bytes_saved": 1 - share,
                    "machine_cpu": 0.4 if mbps < 100 else 0.8,
                    "saturated": mbps == 100,
                    "repeats": 3,
                    "saturated_repeats": 3 if mbps == 100 else 0,
                }
            )
    return {"cells": cells}


def in_action() -> JsonObject:
    def span(rate: float, late: float) -> JsonObject:
        job = {"results": 30, "p50_s": late / 2, "p95_s": late, "p99_s": late}
        return {
            "seconds": 20,
            "sink_per_s": rate,
            "wan_bytes_per_s": 750e3,
            "wan_bytes_per_record": 750e3 / rate,
            "machine_cpu": 0.5,
            "job3": job,
            "job4": {**job, "p50_s": None},
        }

    bins = [
        {
            "t_s": float(t),
            "sink_per_s": 700 if t < 60 else 1050,
            "wan_bytes_per_s": 760e3 if t < 60 else 200e3,
            "latency_p50_s": None if 58 < t < 62 else t / 4 if t < 60 else 0.05,
            "latency_max_s": None if 58 < t < 62 else t / 3 if t < 60 else 0.2,
            "machine_cpu": 0.5,
        }
        for t in range(1, 100)
    ]
    series = {
        "predicted": {"moves": {"clean-a1": "edge-a"}},
        "moments_s": {
            "begin": 0,
            "measure": 10,
            "analyse": 40,
            "place": 55,
            "apply": 56,
            "applied": 60,
            "settled": 70,
            "end": 99,
        },
        "bins": bins,
        "before": span(700, 15),
        "after": span(1050, 0.1),
        "lost": 0,
    }
    return {"series": {"by hand": series}}


def scale() -> JsonObject:
    growth = []
    usage = {"service": 0.5, "engines": 0.3, "mount": 0.1, "broker": 0.02}
    for sites in (10, 30, 100):
        reads = {
            name: {
                "n": 10,
                "p50_ms": n + sites / 50,
                "p99_ms": 2 * n + sites / 20,
                "cpu_ms": n / 2,
                "bytes": 100,
            }
            for n, name in enumerate(("job", "jobs", "composition", "sites", "metrics"), 1)
        }
        growth.append(
            {
                "sites": sites,
                "jobs": sites * 10,
                "register_s": sites / 100,
                "plan_s": sites / 80,
                "apply_s": sites / 4,
                "noop_s": sites / 50,
                "restart_ready_s": 2.0,
                "restart_looked_s": 2 + sites / 30,
                "watch": {"numbers_every_s": 5.01, "checkpoints_every_s": 9.0, "cores": usage},
                "cores": {"apply": usage, "noop": usage},
                "collector": {
                    "every_s": 10.0,
                    "rss_mb": 120.0,
                    "answered": 20.0,
                    "gaps": 0.0,
                    "cores": usage,
                },
                "reads": reads,
                "rss_mb": 100.0 + sites,
                "store_bytes": 80_000.0 * sites,
            }
        )
    names = ("register_s", "plan_s", "apply_s", "noop_s", "restart_looked_s")
    return {
        "growth": growth,
        "exponents": {name: [0.9, 1.02] for name in names},
        "keeps_up_to_sites": 100,
        "one_composition": {
            "jobs": 3500,
            "plan_s": 3.0,
            "apply_s": 90.0,
            "noop_s": 4.0,
            "change": {"p50_ms": 200.0, "bytes": 4_000_000},
        },
        "latencies_ms": {"run": {"n": 10, "p50": 12.0, "p99": 40.0}},
        "broke": None,
    }


def traffic() -> JsonObject:
    rates, d = [], []
    for interval_ms, up_mbps in ((20, 2), (5, 2), (10, 0.15)):
        point = f"{interval_ms}ms/{up_mbps}Mbps"
        for name, slow in (("fog", 1.0), ("cloud", 3.0), ("fog-direct", 0.9)):
            behind = up_mbps < 1 and name == "cloud"
            late = 40.0 * slow * (100 if behind else 1)
            job = {
                "processed_per_s": around(3000 / interval_ms * (0.6 if behind else 1)),
                "offered_per_s": around(3000 / interval_ms),
                **{f"p{share}_ms": around(late * share / 50) for share in (50, 95, 99)},
                "pooled": {f"p{share}_ms": late * share / 50 for share in (50, 95, 99)},
                "results": 90,
                "falls_behind": behind,
            }
            rates.append(
                {
                    "point": point,
                    "deployment": name,
                    "interval_ms": interval_ms,
                    "up_mbps": up_mbps,
                    "saturated": interval_ms == 5,
                    "runs": 5,
                    "saturated_runs": 4 if interval_ms == 5 else 1,
                    "falls_behind": behind,
                    "job3": job,
                    "job4": job,
                    "cpu": around(0.75 if interval_ms == 5 else 0.45),
                    "cores": {
                        site: {"engine": around(0.1), "broker": around(0.02)}
                        for site in ("cloud", "edge-a", "edge-b", "edge-c")
                    },
                    "wan_up_bytes_per_s": around(60_000 / interval_ms),
                    "wan_down_bytes_per_s": around(9_000 / interval_ms),
                    "lost": 0,
                }
            )
        for name in ("fog", "fog-direct"):
            gain = around(40.0) if up_mbps < 1 else interval([-0.4, 0.1, 0.3])
            gains = {"job3_d_percent": gain, "job4_d_percent": around(1.0)}
            d.append({"point": point, "deployment": name, "pairs": 3, **gains})
    hop = {"hop": "feed -> clean -> edge", "n": 100, "p50_ms": 3.0, "p95_ms": 9.0}
    return {"rates": rates, "d": d, "hops": [{"deployment": "fog", "hops": [hop]}]}


def link_batching() -> JsonObject:
    ways = [(1, "none"), (100, "none"), (1000, "zstd")]
    kinds = [(100, "at_least_once", 1), (100, "exactly_once", 1), (1000, "at_least_once", 2)]
    return {
        "variants": [
            {
                "size": size,
                "delivery": delivery,
                "batch_records": batch,
                "compression": compression,
                "links": links,
                "records_per_s": around(20_000 * (1 if batch == 1 else 9)),
                "all_that_was_fed": batch == 1000,
                "link_bytes_per_record": around(size * (1.5 if batch == 1 else 0.3)),
                "bytes_of_a_record": size + 3.0,
                "speed_to_plain": 1.0 if batch == 1 else 9.0,
                "bytes_to_plain": 1.0 if batch == 1 else 0.2,
                "p50_ms": around(2),
                "p99_ms": around(9),
                "added_p50_ms": 0,
                "added_p99_ms": 20.0,
                "lost": 0,
                "repeated": 0,
            }
            for size, delivery, links in kinds
            for batch, compression in ways
        ]
    }


def fig8() -> JsonObject:
    runs: list[JsonObject] = []
    for ms in (2.0, 1.0):
        for way, late in (("local", 20.0), ("remote", 60.0)):
            ticks = [step * 0.5 for step in range(14)]
            over_time = {
                "at_s": ticks,
                "published": [min(6, tick) * 1000 / ms for tick in ticks],
                "processed": [max(0, min(6, tick - late / 40)) * 1000 / ms for tick in ticks],
            }
            runs.append(
                {
                    "way": way,
                    "interval_ms": ms,
                    "offered_per_s": 1000 / ms,
                    "highest": ms == 1,
                    "processed_per_s": around(1000 / ms),
                    **{f"p{share}_ms": late * share / 50 for share in (50, 95, 99)},
                    "p95_of_runs_ms": around(late * 1.9),
                    "cpu": around(0.4),
                    "wan_bytes_per_s": around(90_000 if way == "remote" else 400),
                    "lost": 0,
                    "runs": 5,
                    "left_out": 0 if ms == 1 else 1,
                    "saturated": ["the machine was 80 % in use"] if ms == 1 else [],
                    "over_time": over_time,
                }
            )
    step = {"way": "local", "interval_ms": 0.5, "saturated": "the feed was 300 ms late"}
    return {"runs": runs, "highest_per_s": 1000.0, "steps": [step]}


def policies() -> JsonObject:
    def outcome(policy: str, sink: float, *violations: str) -> JsonObject:
        keeps_up = sink > 100
        return {
            "policy": policy,
            "within_limits": not violations,
            "violations": list(violations),
            "moves": 2,
            "sites": {"filter": "edge-a"},
            "predicted": {
                "sink_per_s": sink * 1.05,
                "latency_ms": 20.0 if keeps_up else None,
                "wan_bytes_per_s": 170_000.0,
                "cloud_engine_cores": 0.4,
                "keeps_up": keeps_up,
                "held_by": "the uplink of edge-a",
            },
            "measured": {
                "sink_per_s": sink,
                "keeps_up": keeps_up,
                "p50_ms": 20.0,
                "p95_ms": 30.0,
                "wan_bytes_per_s": 180_000.0,
                "cloud_engine_cores": 0.45,
            },
            "offered_per_s": 300.0,
            "machine_cpu": 0.5,
            "lost": 0,
            "repeated": 0,
            "different": 0,
        }

    outcomes = [outcome("all-cloud", 90.0, "uplink: full"), outcome("milp", 160.0)]
    return {
        "cells": [
            {"application": name, "idle_cloud_cores": 0.1, "policies": outcomes}
            for name in ("edge-server", "traffic")
        ]
    }


def ramp() -> JsonObject:
    def case(applied: float, full: float | None) -> JsonObject:
        span = {"input_per_s": 90.0, "uplink_share": 0.5, "p95_s": 0.1, "max_s": 0.2, "queue": 3}
        moments = {"decided": applied - 5, "applied": applied}
        bins = {
            "t_s": [1.0, 2.0, 3.0],
            "input_per_s": [51.0, 52.0, 53.0],
            "uplink_share": [0.5, 0.6, 0.7],
            "queue": [4, 4, 5],
            "latency_p50_s": [0.1, 0.1, 0.1],
            "latency_max_s": [0.2, None, 0.2],
        }
        return {
            "moments_s": moments if full is None else {**moments, "full": full},
            "before": span,
            "meanwhile": span,
            "after": {**span, "uplink_share": None},
            "reason": "the autopilot moves pack to edge-a",
            "looks": [
                {
                    "t_s": 90.0,
                    "analysis_s": 4.0,
                    "warm": True,
                    "rate": None if full else 120.0,
                    "high": None if full else 150.0,
                    "kind": "wait",
                    "message": "everything is already where the policy wants it",
                }
            ],
            "lost": 0,
            "bins": bins,
        }

    return {"cases": {"forecast": case(600.0, None), "today": case(1000.0, 900.0)}}


SETTINGS = {
    "seconds": 12.0,
    "window_ms": 500,
    "watch_s": 5.0,
    "linger_ms": 20,
    "checkpoint_interval_s": 1.0,
    "rate_per_s": 2000,
}
"""What sections tell of an experiment's settings."""
SUMMARIES = {
    each.__name__: each
    for each in (
        fig6,
        moves,
        fig8,
        edge_server,
        in_action,
        policies,
        ramp,
        scale,
        traffic,
        link_batching,
    )
}
