"""What the runs of the traffic application come to, and what is claimed of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from bench.experiment import Check, interval, percentile
from speck.model.values import JsonObject

MOST_CPU = 0.7
"""Of the machine: above it a run tells of the machine, and is not judged."""
LEAST_RUNS = 0.5
"""A point is judged by its runs below that, if they are so large a share of all of them; by fewer
it counts as saturated."""
BEHIND = 0.95
"""A deployment falls behind when fewer than so many of the offered came out in time."""
LATE_MS = 200.0
"""A feed that was ever later than this was not at its pace: the machine stalled, and the run tells
of that."""
MOST_LATE_RUNS = 0.1
"""So large a share of the runs may be left out for that."""
FEWEST = 3
"""Of fewer pairs of runs an interval says nothing: of two it holds 0 whatever they are."""
JOBS = ("job3", "job4")
_WHOLE = "counted in whole windows: a run is right to one of them"


def summary(rows: Sequence[JsonObject], hops: Sequence[JsonObject]) -> JsonObject:
    """`{rates: [...], d: [...], hops: [...]}`.

    A rate is one deployment at one point: intervals over its runs (latency percentiles in ms,
    cores, bytes a second), latency percentiles over all results of all its runs; `saturated_runs`
    of its `runs` (their feeds late or the machine too busy) are left out, unless most are: then it
    is `saturated`, and made of all. A d compares fog and cloud at one point, in per cent, over
    pairs of runs of the same round.
    """
    points = list(dict.fromkeys(row["point"] for row in rows))
    names = list(dict.fromkeys(row["deployment"] for row in rows))
    cells = dict.fromkeys((row["point"], row["deployment"]) for row in rows)
    of = {cell: [r for r in rows if (r["point"], r["deployment"]) == cell] for cell in cells}
    judged_rows = [row for each in of.values() for row in judged_of(each)]
    return {
        "rates": [_rate(each) for each in of.values()],
        "d": [
            {"point": point, "deployment": name, **_d(judged_rows, point, name)}
            for point in points
            for name in names
            if name != "cloud"
        ],
        "hops": [{"deployment": row["deployment"], "hops": row["hops"]} for row in hops],
    }


def judged_of(rows: Sequence[JsonObject]) -> Sequence[JsonObject]:
    """The runs of a deployment at a point that its figures are made of: those during which the
    machine was not saturated, by themselves or by what else ran there; all when they are few."""
    fine = [row for row in rows if not _is_saturated(row)]
    return fine if len(fine) >= LEAST_RUNS * len(rows) else rows


def _is_saturated(row: JsonObject) -> bool:
    """Whether the machine did not carry the run, all through or for a moment."""
    return bool(row["cpu"]["machine"] > MOST_CPU) or _late(row)


def _late(row: JsonObject) -> bool:
    return bool(row["feed_late_ms"] > LATE_MS)


def _rate(measured: Sequence[JsonObject]) -> JsonObject:
    rows = judged_of(measured)
    first = rows[0]
    cpu = interval([row["cpu"]["machine"] for row in rows])
    sites = sorted(first["cpu"]["sites"])
    point: JsonObject = {
        **{key: first[key] for key in ("point", "deployment", "interval_ms", "up_mbps")},
        "runs": len(measured),
        "saturated_runs": sum(_is_saturated(row) for row in measured),
        "saturated": any(_is_saturated(row) for row in rows),
        "falls_behind": any(_behind(rows, job) for job in JOBS),
        **{job: _job(rows, job) for job in JOBS},
        "cpu": cpu,
        "cores": {
            site: {
                what: interval([row["cpu"]["sites"][site][what] for row in rows])
                for what in first["cpu"]["sites"][site]
            }
            for site in sites
        },
        "wan_up_bytes_per_s": _measure_crossing(rows, 0),
        "wan_down_bytes_per_s": _measure_crossing(rows, 1),
        "wan_up_bytes_per_detection": interval(
            [
                _of_edges(row, 0) * row["seconds"] / row["job4"]["processed"]
                for row in rows
                if row["job4"]["processed"]
            ]
        ),
        "lost": sum(row["lost"] for row in measured),
    }
    near = [row for row in rows if "job3_in_the_cloud" in row]
    if near:
        point["job3_in_the_cloud"] = _job(near, "job3_in_the_cloud")
    return point


def _measure_crossing(rows: Sequence[JsonObject], way: int) -> JsonObject:
    """Bytes a second of all edges together."""
    return interval([_of_edges(row, way) for row in rows])


def _of_edges(row: JsonObject, way: int) -> int:
    return sum(both[way] for site, both in row["wan_bytes_per_s"].items() if site != "cloud")


def _job(rows: Sequence[JsonObject], job: str) -> JsonObject:
    pooled = [each for row in rows for each in row[job]["latencies_ms"]]
    shares = ("p50_ms", "p95_ms", "p99_ms")
    return {
        "processed_per_s": interval([row[job]["processed"] / row["seconds"] for row in rows]),
        "offered_per_s": interval([row[job]["offered"] / row["seconds"] for row in rows]),
        **{
            share: interval([row[job][share] for row in rows if row[job][share] is not None])
            for share in shares
        },
        "pooled": {share: percentile(pooled, int(share[1:3]) / 100) for share in shares},
        "results": len(pooled),
        "falls_behind": _behind(rows, job),
    }


def _behind(rows: Sequence[JsonObject], job: str) -> bool:
    offered = sum(row[job]["offered"] for row in rows)
    return sum(row[job]["processed"] for row in rows) < BEHIND * offered


def _d(rows: Sequence[JsonObject], point: str, name: str) -> JsonObject:
    """D of both jobs against the cloud, over the rounds of which both runs count."""
    pairs = list(_pairs(rows, point, name))
    return {
        "pairs": len(pairs),
        **{
            f"{job}_d_percent": interval(
                [
                    100 / fog[job]["processed"] * (fog[job]["processed"] - cloud[job]["processed"])
                    for fog, cloud in pairs
                    if fog[job]["processed"]
                ]
            )
            for job in JOBS
        },
    }


def _pairs(
    rows: Sequence[JsonObject], point: str, name: str
) -> Iterator[tuple[JsonObject, JsonObject]]:
    by_key = {row["key"]: row for row in rows}
    for row in rows:
        if (row["point"], row["deployment"]) == (point, name):
            other = by_key.get("cloud" + row["key"].removeprefix(name))
            if other is not None:
                yield row, other


def checks(rows: Sequence[JsonObject], result: JsonObject, *, enough: bool) -> list[Check]:
    """Every claim; those about points at which the machine was saturated are not judged.
    `enough`: whether there are to be points of each kind."""
    rates = {(rate["point"], rate["deployment"]): rate for rate in result["rates"]}
    points = list(dict.fromkeys(point for point, _ in rates))
    judged: list[Check] = []
    kinds: list[str] = []
    for point in points:
        fog, cloud, direct = (rates.get((point, n)) for n in ("fog", "cloud", "fog-direct"))
        if fog is None or cloud is None:
            continue
        saturated = fog["saturated"] or cloud["saturated"]
        behind = fog["falls_behind"] or cloud["falls_behind"]
        kinds += [] if saturated else ["behind" if behind else "both keep up"]
        if behind:
            judged += _where_behind(result, point, rates)
        else:
            judged += _where_both(fog, cloud, direct)
    return [*judged, *(_enough(kinds) if enough else []), *_sound(rows)]


def _judge(check: Check, *of: JsonObject) -> Check:
    """The check, unless the machine was saturated in a deployment that it is about."""
    if not any(rate["saturated"] for rate in of):
        return check
    return replace(check, ok=None, note="not judged: the machine was saturated or stalled")


def _where_behind(
    result: JsonObject, point: str, rates: Mapping[tuple[str, str], JsonObject]
) -> list[Check]:
    d = {each["deployment"]: each for each in result["d"] if each["point"] == point}

    def about(name: str, job: str, wanted: str, holds: Callable[[JsonObject], bool]) -> Check:
        share = d[name][f"{job}_d_percent"]
        check = Check(
            f"D of Job {job[3:]}, {name}, {point}",
            wanted,
            _describe(share),
            holds(share) if share["n"] >= FEWEST else None,
            _WHOLE if share["n"] >= FEWEST else f"not judged: of {share['n']} pairs of runs",
        )
        return _judge(check, rates[point, name], rates[point, "cloud"])

    return [
        about("fog", "job3", "> 0", lambda share: share["low"] > 0),
        *(
            about(name, "job4", ">= 0 within its interval", lambda share: share["high"] >= 0)
            for name in ("fog", "fog-batched")
            if name in d
        ),
    ]


def _where_both(fog: JsonObject, cloud: JsonObject, direct: JsonObject | None) -> list[Check]:
    point = fog["point"]

    def less(job: str, share: str, one: JsonObject, other: JsonObject, names: str) -> Check:
        mine, yours = one[job][share]["mean"], other[job][share]["mean"]
        few = min(one[job][share]["n"], other[job][share]["n"])
        check = Check(
            f"{share.removesuffix('_ms')} of Job {job[3:]}, {names}, {point}",
            "lower",
            _beside(mine, yours),
            None if 0 < few < FEWEST else bool(few) and mine < yours,
            f"not judged: {few} runs" if 0 < few < FEWEST else "",
        )
        return _judge(check, one, other)

    fog_p50, cloud_p50 = fog["job4"]["p50_ms"]["mean"], cloud["job4"]["p50_ms"]["mean"]
    return [
        less("job3", "p95_ms", fog, cloud, "fog against cloud"),
        Check(
            f"p50 of Job 4, fog against cloud, {point}",
            "reported, with the cost of each hop",
            _beside(fog_p50, cloud_p50),
            None,
            "reported only",
        ),
        *([less("job4", "p50_ms", direct, fog, "fog-direct against fog")] if direct else []),
    ]


def _beside(mine: float | None, yours: float | None) -> str:
    texts = ("nothing" if each is None else f"{each:.1f}" for each in (mine, yours))
    return " against ".join(texts) + " ms"


def _describe(difference: JsonObject) -> str:
    if difference["mean"] is None:
        return "nothing"
    low, high = difference["low"], difference["high"]
    return f"{difference['mean']:.1f} %" + ("" if low is None else f" ({low:.1f} to {high:.1f})")


def _enough(kinds: Sequence[str]) -> list[Check]:
    behind, both = kinds.count("behind"), kinds.count("both keep up")
    return [
        Check("points where one falls behind, machine below 70 %", ">= 1", behind, behind >= 1),
        Check("points where both keep up, machine below 70 %", ">= 2", both, both >= 2),
    ]


def _sound(rows: Sequence[JsonObject]) -> list[Check]:
    """Of all runs, saturated or not."""
    lost = sum(row["lost"] for row in rows)
    wrong = sum(row["different"] + row["repeated"] for row in rows)
    quiet = [row for row in rows if row["cpu"]["machine"] <= MOST_CPU]
    late = sum(_late(row) for row in quiet)
    latest_ms = max((row["feed_late_ms"] for row in quiet), default=0.0)
    published = sum(row["published"] for row in rows)
    return [
        Check("detections lost in all runs", "0", f"{lost} of {published}", lost == 0, always=True),
        Check(
            "results that differ from the reference, or count twice",
            "0",
            wrong,
            wrong == 0,
            always=True,
        ),
        Check(
            f"runs below 70 % whose feed was more than {LATE_MS:g} ms late",
            f"<= {MOST_LATE_RUNS:.0%}",
            f"{late} of {len(quiet)}, the latest {latest_ms:.0f} ms",
            late <= MOST_LATE_RUNS * len(quiet),
        ),
    ]
