"""bench.scale: a thousand simulated sites."""

from __future__ import annotations

from typing import Any

from bench.page import style
from bench.page.section import Plot, Section
from bench.page.told import Told
from bench.page.words import number, table

_OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "register_s": ("register all sites", {"color": style.GREEN, "marker": "v"}),
    "plan_s": ("plan all jobs", {"color": style.ORANGE, "marker": "D"}),
    "apply_s": ("deploy all jobs", {"color": style.BLUE, "marker": "o"}),
    "noop_s": ("apply again, nothing to do", {"color": style.SKY, "marker": "s"}),
    "restart_looked_s": (
        "restart, until each site is looked at",
        {"color": style.RED, "marker": "^"},
    ),
}
_READS: dict[str, tuple[str, dict[str, Any]]] = {
    "job": ("GET one job", {"color": style.BLUE, "marker": "o"}),
    "jobs": ("GET 100 jobs", {"color": style.GREEN, "marker": "v"}),
    "composition": ("GET a composition", {"color": style.ORANGE, "marker": "D"}),
    "sites": ("GET all sites", {"color": style.RED, "marker": "^"}),
    "metrics": ("GET /metrics", {"color": style.PINK, "marker": "s"}),
}


def _figures(result: Told) -> str:
    summary = result["summary"]
    growth = summary["growth"]
    rows = [
        (
            it["sites"],
            it["jobs"],
            *(it[name] for name in _OPERATIONS),
            it["watch"]["numbers_every_s"],
            f"{it['reads']['jobs']['p50_ms']:.1f} / {it['reads']['jobs']['p99_ms']:.1f}",
            it["rss_mb"],
            it["store_bytes"] / 1e6,
        )
        for it in growth
    ]
    heads = [">sites", ">jobs", *(f">{name}, s" for name, _ in _OPERATIONS.values())]
    heads += [
        ">a site is looked at every, s",
        ">GET 100 jobs, p50 / p99, ms",
        ">memory of the service, MB",
        ">store, MB",
    ]
    exponents = summary["exponents"]
    grown = ", ".join(
        f"{label} {number(exponents[name][-1])}"
        for name, (label, _) in _OPERATIONS.items()
        if exponents[name]
    )
    up_to = summary["keeps_up_to_sites"]
    keeps = f"up to {up_to:,} sites" if up_to else "at no size"
    return (
        f"{table(heads, rows)}\n\nGrowth between the two largest sizes, as a power of the number of"
        f" sites: {grown}. Every site is looked at as often as it should be {keeps}."
    )


def _draw(result: Told) -> Any:
    made, (left, right) = style.figure(2, height=4.4)
    growth = result["summary"]["growth"]
    sites = [it["sites"] for it in growth]
    for name, (label, look) in _OPERATIONS.items():
        left.plot(sites, [it[name] for it in growth], label=label, **look)
    for name, (label, look) in _READS.items():
        reads = [it["reads"][name] for it in growth]
        right.plot(sites, [it["p50_ms"] for it in reads], label=label, **look)
        p99 = [it["p99_ms"] for it in reads]
        right.plot(sites, p99, color=look["color"], linewidth=1.2, linestyle=":")
    left.set_ylabel("time, s")
    right.set_ylabel("time, ms (line: p50, dots: p99)")
    for axes in (left, right):
        axes.set_xscale("log")
        axes.set_yscale("log")
        style.logarithmic(axes.yaxis)
        axes.set_xticks(sites, [f"{n:,}" for n in sites])
        axes.set_xticks([], minor=True)
        axes.set_xlabel("sites, ten jobs each")
        axes.legend(loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=2, fontsize=9, **_TIGHT)
    return made


_TIGHT: Any = {"columnspacing": 0.9, "handlelength": 1.5, "handletextpad": 0.4}

SECTION = Section(
    name="scale",
    title="A thousand sites",
    question="How does the control plane grow up to 1000 sites with 10 000 jobs, and where does it"
    " break?",
    set_up="The real service and one real Mosquitto against simulated engines, compositions of up"
    " to 1000 jobs.",
    target="scale",
    figures=_figures,
    plots=[
        Plot(
            "scale",
            "Seconds of each operation, and milliseconds of each read, over the number of sites,"
            " both logarithmic",
            _draw,
        )
    ],
)
