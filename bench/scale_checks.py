"""What the figures of bench.scale mean: growth, comparison with the result before, checks."""

from __future__ import annotations

import itertools
import math

from bench.common import is_quick
from bench.experiment import Check, percentile
from speck.model.values import JsonObject

QUICK = is_quick()
SIZES = (10, 30) if QUICK else (10, 30, 100, 300, 1000)
JOBS_A_SITE = 10
WHOLE_SITES = SIZES[0] if QUICK else SIZES[-1]
"""Of the one composition: as many jobs as one may have."""
WATCH_S = 2.0 if QUICK else 5.0
SLOWEST_START_S = 6.0
"""Past that the machine was busy while the real Flink was measured; and of a start that takes 8 s
speck asks whether its source is connected."""
STEEPEST, PLAN_STEEPEST = 1.3, 1.1
"""An operation that grows with more than this power of the number of sites does not scale."""
MOST = {"plan_s": 2.0, "apply_s": 40.0}
"""Seconds that an operation may take at 1000 sites."""
MOST_P99_MS = {"metrics": 300.0, "jobs": 100.0}
"""The same for reads: all metrics, and 100 jobs."""
SLOWER, SLOWER_BY_S = 1.25, {"operations": 0.1, "reads": 0.002}
"""At 10 sites, an operation or read that takes longer than before by this factor and by so many
seconds is slower."""
BUSY = 0.9
"""Of a core: a simulator that uses more may be what is slow."""

OPERATIONS = ("register_s", "plan_s", "apply_s", "noop_s", "restart_ready_s", "restart_looked_s")


def summary(rows: list[JsonObject], whole: JsonObject | None, latencies: JsonObject) -> JsonObject:
    return {
        "growth": [{k: v for k, v in row.items() if k not in ("key", "version")} for row in rows],
        "one_composition": whole,
        "exponents": exponents(rows),
        "latencies_ms": {
            kind: {
                "n": len(seconds),
                "p50": round(1000 * (percentile(seconds, 0.5) or 0), 2),
                "p99": round(1000 * (percentile(seconds, 0.99) or 0), 2),
            }
            for kind, seconds in latencies.items()
        },
        "keeps_up_to_sites": keeps_up(rows),
    }


def exponents(rows: list[JsonObject]) -> JsonObject:
    """Operation -> by which power of the number of sites it grows from each size to the next."""

    def values(row: JsonObject) -> dict[str, float]:
        reads = {f"GET {name}": read["p50_ms"] for name, read in row["reads"].items()}
        sizes = {name: row[name] for name in (*OPERATIONS, "rss_mb", "store_bytes")}
        return {**sizes, **reads}

    slopes: dict[str, list[float]] = {}
    for low, high in itertools.pairwise(rows):
        steps = math.log(high["sites"] / low["sites"])
        for name, value in values(high).items():
            grown = math.log(max(value, 1e-6) / max(values(low)[name], 1e-6)) / steps
            slopes.setdefault(name, []).append(round(grown, 2))
    return slopes


def keeps_up(rows: list[JsonObject]) -> int | None:
    """The largest number of sites of which each is polled as often as intended, within a tenth."""
    fine = [row["sites"] for row in rows if row["watch"]["numbers_every_s"] <= 1.1 * WATCH_S]
    return max(fine, default=None)


def compare(former: JsonObject, row: JsonObject) -> JsonObject:
    """Operation or read -> how many times as long as before it takes, of those that are slower."""
    seconds = {
        **{name: (former[name], row[name], SLOWER_BY_S["operations"]) for name in OPERATIONS},
        **{
            f"GET {name}": (before["p50_ms"] / 1000, read["p50_ms"] / 1000, SLOWER_BY_S["reads"])
            for name, read in row["reads"].items()
            if (before := former["reads"].get(name)) is not None
        },
    }
    return {
        name: round(now / before, 2)
        for name, (before, now, by_s) in seconds.items()
        if now > SLOWER * before and now > before + by_s
    }


def checks(
    rows: list[JsonObject], latencies: JsonObject, broke: str = "", slower: JsonObject | None = None
) -> list[Check]:
    measured_to = max((row["sites"] for row in rows), default=0)
    whole = f"{SIZES[-1]} sites, and one composition of {WHOLE_SITES * JOBS_A_SITE} jobs"
    verdicts = [Check("measured up to", whole, f"{measured_to} sites", not broke, broke)]
    starting = percentile(latencies["starting"], 0.5) or 0.0
    verdicts.append(
        Check(
            "the real Flink was measured on a quiet machine",
            f"half of ten starts at once within {SLOWEST_START_S} s",
            round(starting, 2),
            starting <= SLOWEST_START_S,
        )
    )
    for row in rows[-1:]:
        verdicts += check_largest(row)
    for name in OPERATIONS if len(rows) > 1 else ():
        last, most = exponents(rows)[name][-1], PLAN_STEEPEST if name == "plan_s" else STEEPEST
        wanted = f"exponent at most {most} at the largest size"
        verdicts.append(Check(f"{name} grows with the number of sites", wanted, last, last <= most))
    if slower is not None:
        worst = ", ".join(f"{name} {ratio} times" for name, ratio in slower.items())
        name = f"slower than in the result before, at {SIZES[0]} sites"
        verdicts.append(Check(name, "nothing", worst or "nothing", not slower))
    busiest = max(
        (
            usage[who]
            for row in rows
            for usage in row["cores"].values()
            for who in ("engines", "mount")
        ),
        default=0.0,
    )
    verdicts.append(
        Check(
            "the simulator is not what is slow",
            f"less than {BUSY} of a core in every phase",
            busiest,
            busiest < BUSY,
        )
    )
    return verdicts


def check_largest(row: JsonObject) -> list[Check]:
    """What is wanted at 1000 sites; smaller sizes are held to it, too."""
    sites, verdicts = row["sites"], []
    for kind in ("engine", "numbers"):
        every_s, most_s = row["watch"][f"{kind}_every_s"], 1.1 * WATCH_S
        name = f"each of {sites} sites is polled ({kind}) every, s"
        verdicts.append(Check(name, f"<= {most_s:g}", every_s, every_s <= most_s))
    collector = row["collector"]
    name = f"samples missed of {sites} sites every {collector['every_s']:g} s"
    verdicts.append(Check(name, "0", collector["gaps"], collector["gaps"] == 0))
    for name, most_s in MOST.items():
        what = f"{name} at {sites} sites"
        verdicts.append(Check(what, f"<= {most_s:g}", row[name], row[name] <= most_s))
    for name, most_ms in MOST_P99_MS.items():
        p99 = row["reads"][name]["p99_ms"]
        what = f"GET {name} at {sites} sites, p99, ms"
        verdicts.append(Check(what, f"<= {most_ms:g}", p99, p99 <= most_ms))
    return verdicts
