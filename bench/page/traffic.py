"""bench.traffic: the traffic application in the fog and in the cloud."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Claim, Plot, Section
from bench.page.words import FEW, mean, number, table

_LOOKS: dict[str, dict[str, Any]] = {
    "cloud": {"color": style.RED, "marker": "s"},
    "fog": {"color": style.BLUE, "marker": "o"},
    "fog-direct": {"color": style.GREEN, "marker": "^"},
    "fog-batched": {"color": style.ORANGE, "marker": "D"},
}
_JOBS = {"job3": "Job 3 (local)", "job4": "Job 4 (global)"}
_D_LOOKS: dict[tuple[str, str], tuple[float, dict[str, Any]]] = {
    ("job3", "fog"): (-0.24, {"color": style.BLUE, "marker": "o"}),
    ("job4", "fog"): (0.08, {"color": style.ORANGE, "marker": "D"}),
    ("job3", "fog-batched"): (-0.08, {"color": style.SKY, "marker": "v"}),
    ("job4", "fog-batched"): (0.24, {"color": style.PINK, "marker": "^"}),
}
"""Where beside its point, and how, D of a job in a deployment is drawn."""


def _name(rate: Result) -> str:
    """A point in words: messages a second and site, uplink of an edge."""
    up_mbps = rate["up_mbps"]
    up = f"{up_mbps:g} Mb/s" if up_mbps >= 1 else f"{1000 * up_mbps:g} kb/s"
    return f"{1000 / rate['interval_ms']:g}/s, {up}"


def _names(rates: Sequence[Result]) -> dict[str, str]:
    """The points in their order, in words."""
    return {rate["point"]: _name(rate) for rate in rates}


def _figures(result: Result) -> str:
    summary = result["summary"]
    rates = summary["rates"]
    names = _names(rates)
    parts = [
        "A point is the messages a second at each site, and the rate of each edge's uplink. Latency"
        " goes from the publication of the message that completes a window to its result at its"
        " reader: Job 3's at its edge wherever the job runs, Job 4's in the cloud.",
        "D = (100/F)(F - C), F and C the detections in the results of fog and cloud that came in"
        " the time of a run:",
        table(
            ["point", "against the cloud", ">D of Job 3, %", ">D of Job 4, %", ">pairs of runs"],
            [
                (
                    names[it["point"]],
                    it["deployment"],
                    _percent(it["job3_d_percent"]),
                    _percent(it["job4_d_percent"]),
                    it["pairs"],
                )
                for it in summary["d"]
            ],
        ),
        _windows(result["settings"]),
        "Percentiles over all results of all runs of a point; checks and plots go by the mean over"
        " its runs of each run's percentile. Where a deployment is behind, latency grows as runs"
        " last. Runs during which the machine was saturated, or stalled so that their feed was"
        " late, are left out, unless most were: then the point is marked, and not judged:",
        table(_HEADS, [_row(rate) for rate in rates]),
        "What each hop takes, at the first point:",
        table(
            ["deployment", "hop", ">p50, ms", ">p95, ms", ">messages"],
            [
                (point["deployment"], hop["hop"], hop["p50_ms"], hop["p95_ms"], hop["n"])
                for point in summary["hops"]
                for hop in point["hops"]
            ],
        ),
        _why(summary["hops"]),
    ]
    return "\n\n".join(parts)


def _windows(settings: Result) -> str:
    """What D is right to."""
    windows = 1000 * settings["seconds"] / settings["window_ms"]
    return (
        f"Detections are counted in whole windows, of which a run holds {number(windows)}: a D of"
        f" less than some {number(100 / windows)} %, more where both are behind, is one window."
    )


def _why(hops: Sequence[Result]) -> str:
    """Why Job 4 is no sooner in the fog where both keep up."""
    ways = ", ".join(f"{it['deployment']} {number(_to_the_merge(it['hops']))} ms" for it in hops)
    return (
        "The way to Job 4's result, as the sum of its hops' medians in one short run of each"
        f" deployment by itself: {ways}. Fog and cloud take the same hops in another order, each"
        " with one uplink: so Job 4 cannot be sooner in the fog by more than what a hop costs."
        " fog-direct takes out the Forward: a second Clean, in the cloud, reads from the edge's"
        " broker, and no edge's engine is on the way. Where the fog's p95 and p99 are above the"
        " cloud's, an edge's engine is on the way, which stands still whenever it has used up its"
        " quota; how much that makes was not measured by itself."
    )


def _to_the_merge(hops: Sequence[Result]) -> float:
    """Milliseconds: of the hops from the last sensor on, but for those of the local statistics."""
    begins = max((n for n, it in enumerate(hops) if it["hop"].startswith("sensor")), default=0)
    return sum(it["p50_ms"] for it in hops[begins:] if "LocalStats" not in it["hop"])


def _percent(interval: Result) -> str:
    """Mean and interval to a tenth: a run is right to one window."""
    if interval["mean"] is None:
        return mean(interval)
    middle, low, high = (interval[key] for key in ("mean", "low", "high"))
    text = f"{middle:z.1f}"
    return text if low is None or interval["n"] < FEW else f"{text} ({low:z.1f} to {high:z.1f})"


_HEADS = [
    "point",
    "deployment",
    *(
        f">{job}: {what}"
        for job in _JOBS.values()
        for what in ("of offered", "p50 / p95 / p99, ms")
    ),
    ">up the uplinks, kB/s",
    ">down, kB/s",
    ">edge engines, cores",
    ">cloud engine",
    ">brokers",
    ">machine",
    ">runs left out",
    ">lost",
]


def _row(rate: Result) -> Sequence[object]:
    marks = [
        word for key, word in (("saturated", "saturated"), ("falls_behind", "behind")) if rate[key]
    ]
    jobs: list[str] = []
    for job in _JOBS:
        summary = rate[job]
        offered = summary["offered_per_s"]["mean"]
        share = summary["processed_per_s"]["mean"] / offered if offered else None
        pooled = (number(summary["pooled"][key]) for key in ("p50_ms", "p95_ms", "p99_ms"))
        jobs += ["–" if share is None else f"{100 * share:.0f} %", " / ".join(pooled)]
    cores = rate["cores"]
    edges = sum(usage["engine"]["mean"] for site, usage in cores.items() if site != "cloud")
    brokers = sum(usage["broker"]["mean"] for usage in cores.values())
    return [
        _name(rate),
        ", ".join([rate["deployment"], *marks]),
        *jobs,
        number(rate["wan_up_bytes_per_s"]["mean"] / 1000),
        number(rate["wan_down_bytes_per_s"]["mean"] / 1000),
        number(edges),
        number(cores["cloud"]["engine"]["mean"]),
        number(brokers),
        f"{100 * rate['cpu']['mean']:.0f} %",
        f"{0 if rate['saturated'] else rate['saturated_runs']} of {rate['runs']}",
        rate["lost"],
    ]


def _headline(result: Result) -> list[tuple[str, str]]:
    """The first rate at which both keep up, and the first at which the cloud does not."""
    summary = result["summary"]
    fog, cloud = (
        {it["point"]: it for it in summary["rates"] if it["deployment"] == name}
        for name in ("fog", "cloud")
    )
    near: list[tuple[str, str]] = []
    missed: list[tuple[str, str]] = []
    for it in summary["d"]:
        pair = (fog[it["point"]], cloud[it["point"]])
        if it["deployment"] != "fog" or any(rate["saturated"] for rate in pair):
            continue
        at = _name(pair[0])
        if any(rate["falls_behind"] for rate in pair):
            share = number(it["job3_d_percent"]["mean"])
            missed.append(
                (
                    f"Local statistics across a narrow uplink, {at}",
                    f"the cloud misses {share} % of what the fog takes in the same time",
                )
            )
        else:
            mine, yours = (number(rate["job3"]["pooled"]["p95_ms"]) for rate in pair)
            near.append(
                (
                    f"Latency (p95) of local results, {at}",
                    f"{mine} ms in the fog, {yours} ms from the cloud",
                )
            )
    return [*near[:1], *missed[:1]]


def _places(rates: Sequence[Result]) -> dict[str, int]:
    return {point: place for place, point in enumerate(_names(rates))}


def _points(axes: Any, rates: Sequence[Result]) -> None:
    names = [name.replace(", ", "\n") for name in _names(rates).values()]
    axes.set_xticks(range(len(names)), names)
    axes.set_xlim(-0.5, len(names) - 0.5)
    axes.grid(visible=False, axis="x")


def _saturated(rates: Sequence[Result]) -> set[tuple[str, str]]:
    return {(it["point"], it["deployment"]) for it in rates if it["saturated"]}


def _one(axes: Any, x: float, interval: Result, hollow: bool, look: dict[str, Any]) -> None:
    if interval["mean"] is None:
        return
    axes.errorbar(
        x,
        interval["mean"],
        yerr=style.ends([interval]),
        linestyle="",
        markerfacecolor="white" if hollow else look["color"],
        markersize=7,
        **look,
    )


def _draw(result: Result) -> Any:
    figure, (d, late) = style.rows(2, height=6.4)
    summary = result["summary"]
    rates = summary["rates"]
    places, saturated = _places(rates), _saturated(rates)
    drawn = [it for it in summary["d"] if ("job3", it["deployment"]) in _D_LOOKS]
    for it in drawn:
        hollow = any((it["point"], name) in saturated for name in (it["deployment"], "cloud"))
        for job in _JOBS:
            shift, look = _D_LOOKS[job, it["deployment"]]
            x = places[it["point"]] + shift
            _one(d, x, it[f"{job}_d_percent"], hollow, look)
    d.axhline(0, color=style.BLACK, linewidth=1)
    for (job, name), (_, look) in _D_LOOKS.items():
        if any(it["deployment"] == name for it in drawn):
            d.plot([], [], linestyle="", label=f"{_JOBS[job]}, {name}", **look)
    d.set_ylabel("D, % (above 0: more in the fog)")
    for rate in rates:
        order = list(_LOOKS).index(rate["deployment"])
        x = places[rate["point"]] + (order - 1.5) * 0.18
        hollow = (rate["point"], rate["deployment"]) in saturated
        _one(late, x, rate["job3"]["p95_ms"], hollow, _LOOKS[rate["deployment"]])
    _label_deployments(late, rates)
    late.set_ylabel("Job 3: latency p95, ms")
    late.set_yscale("log")
    style.logarithmic(late.yaxis)
    for axes in (d, late):
        _points(axes, rates)
        axes.legend(
            loc="lower left",
            bbox_to_anchor=(0, 1.0),
            ncols=2 if axes is d else 4,
            columnspacing=1.2,
        )
    late.set_xlabel("messages of a site, uplink of an edge" + _hollow(saturated))
    return figure


def _claims(result: Result) -> Sequence[Claim]:
    """The checks, their points in words."""
    names = _names(result["summary"]["rates"])
    claims = []
    for each in result["checks"]:
        about, _, point = each["name"].rpartition(", ")
        name = f"{about}, {names[point]}" if point in names else each["name"]
        claims.append(Claim(name, *(each[key] for key in ("wanted", "measured", "ok", "note"))))
    return claims


def _hollow(saturated: set[tuple[str, str]]) -> str:
    return "\n(hollow: machine saturated or stalled)" if saturated else ""


def _label_deployments(axes: Any, rates: Sequence[Result]) -> None:
    for name in _LOOKS:
        if any(rate["deployment"] == name for rate in rates):
            axes.plot([], [], linestyle="", label=name, **_LOOKS[name])


def _draw_cost(result: Result) -> Any:
    figure, (late, wan, cpu) = style.rows(3, height=7.5)
    rates = result["summary"]["rates"]
    places, saturated = _places(rates), _saturated(rates)
    for rate in rates:
        name = rate["deployment"]
        look = _LOOKS[name]
        x = places[rate["point"]] + (list(_LOOKS).index(name) - 1.5) * 0.18
        hollow = (rate["point"], name) in saturated
        _one(late, x, rate["job4"]["p50_ms"], hollow, look)
        bars = {"color": look["color"], "width": 0.17, "alpha": 0.45 if hollow else 1}
        for axes, values, scale in (
            (wan, rate["wan_up_bytes_per_s"], 1e-3),
            (cpu, rate["cpu"], 100.0),
        ):
            errors = style.ends([values], scale)
            axes.bar(x, values["mean"] * scale, yerr=errors, ecolor=style.BLACK, **bars)
    late.set_ylabel("Job 4: latency p50, ms")
    late.set_yscale("log")
    style.logarithmic(late.yaxis)
    wan.set_ylabel("up the edges' uplinks, kB/s")
    cpu.set_ylabel("machine in use, %")
    cpu.axhline(70, color=style.BLACK, linewidth=1, linestyle="--")
    cpu.set_ylim(0, 100)
    _label_deployments(late, rates)
    for axes in (late, wan, cpu):
        _points(axes, rates)
    cpu.set_xlabel("messages of a site, uplink of an edge" + _hollow(saturated))
    handles, names = late.get_legend_handles_labels()
    style.legend_above(figure, handles, names)
    return figure


def _differences(result: Result) -> list[str]:
    return [
        "In the paper D of Job 3 is above 0 at every rate and D of Job 4 below 0 at low rates,"
        " nearing 0 at a message per ms. Here D is 0 wherever both deployments keep up with what is"
        " offered, which is everywhere but behind an uplink of 100 kb/s, and above 0 there",
        "The paper's runs last 15 minutes; these last 12 s. One window of 24 is 4.2 % of a run, so"
        " smaller values of D cannot be seen. No long run was made to show that 12 s are enough",
        "The paper's highest rate, a message per ms at each site, is missing: with three sites and"
        " the feed this machine is saturated at 400/s already",
        "The paper's 245 369 vehicles are not public. These are 8674 simulated vehicles with 25 404"
        " detections, republished faster",
    ]


SECTION = Section(
    name="traffic",
    title="Fog or cloud (figures 7, 9 and 10)",
    question="What does the fog give over running everything in the cloud?",
    set_up="The 17 jobs of the traffic application, as fog and as cloud, with a hop less on the way"
    " to the merge (fog-direct, 24 jobs since each stream is cleaned twice), and as fog with"
    " batches on the uplinks (fog-batched), fed with the same detections; three edges with a fourth"
    " of a core each behind shaped uplinks, and a cloud with 0.7 of one.",
    target="traffic",
    figures=_figures,
    claims=_claims,
    plots=[
        Plot(
            "traffic",
            "Above: D of Job 3 and Job 4 for each rate and uplink. Below: p95 latency of Job 3 in"
            " fog and cloud. With 95 % intervals",
            _draw,
        ),
        Plot(
            "traffic-cost",
            "Median latency of Job 4, bytes up the uplinks and use of the machine for each"
            " deployment, rate and uplink",
            _draw_cost,
        ),
    ],
    root=True,
    differences=_differences,
    headline=_headline,
)
