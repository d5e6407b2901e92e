"""bench.scale: a thousand simulated sites."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Plot, Section
from bench.page.words import number, table

_OPERATIONS: dict[str, tuple[str, dict[str, Any]]] = {
    "register_s": ("register all sites", {"color": style.GREEN, "marker": "v"}),
    "plan_s": ("plan all jobs", {"color": style.ORANGE, "marker": "D"}),
    "apply_s": ("deploy all jobs", {"color": style.BLUE, "marker": "o"}),
    "noop_s": ("apply again, nothing to do", {"color": style.SKY, "marker": "s"}),
    "restart_looked_s": (
        "restart, until each site is polled",
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


def _figures(result: Result) -> str:
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
        ">a site is polled every, s",
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
    parts = [
        table(heads, rows),
        "Growth between the two largest sizes, as a power of the number of"
        f" sites: {grown}. Every site is polled as often as it should be {keeps}.",
        *_reads(growth[-1]),
        *_collector(growth),
        *_cores(growth[-1]),
        *_whole(summary.get("one_composition")),
        *_latencies(summary["latencies_ms"]),
        *([f"It broke at {summary['broke']}"] if summary.get("broke") else []),
        where_it_breaks(growth, result["settings"]["watch_s"]),
        _NEXT,
    ]
    return "\n\n".join(parts)


_NEXT = (
    "The service has one core, whatever the machine has, for its store, its plans and its answers;"
    " from 100 sites on the polls of the watch and of the collector are made by processes of their"
    " own (`pollers`: threads of gevent), and `/metrics` is kept ready. Registering, planning and"
    " deploying use most of that core. The simulated engines, the forwarder, the broker and the"
    " client take what the table says of the same two cores."
)


def where_it_breaks(growth: Sequence[Result], watch_s: float) -> str:
    """Where it breaks, as measured."""
    limits = []
    late = [it for it in growth if it["watch"]["numbers_every_s"] > 1.1 * watch_s]
    if late:
        every = number(late[0]["watch"]["numbers_every_s"])
        limits.append(
            f"at {late[0]['sites']:,} sites the watch comes to a site every {every} s instead of"
            f" {number(watch_s)} s, so what fails is mended that much later"
        )
    missed = [it for it in growth if it["collector"]["gaps"]]
    for it in missed:
        polls = it["collector"]
        share = polls["gaps"] / (polls["gaps"] + polls["answered"])
        limits.append(
            f"at {it['sites']:,} sites the collector, asked to poll every"
            f" {number(polls['every_s'])} s, misses {100 * share:.0f} % of its polls"
        )
    for name, read in growth[-1]["reads"].items():
        for share in ("p50", "p99"):
            if read[f"{share}_ms"] > 1000:
                time = f"{read[f'{share}_ms'] / 1000:.1f} s ({share})"
                limits.append(f"at {growth[-1]['sites']:,} sites GET {name} takes {time}")
    return (
        f"Where it breaks: {'; '.join(limits)}." if limits else "It broke at none of these sizes."
    )


def _reads(largest: Result) -> list[str]:
    rows = [
        (f"GET {name}", read["p50_ms"], read["p99_ms"], read["cpu_ms"], read["bytes"])
        for name, read in largest["reads"].items()
    ]
    heads = ["read", ">p50, ms", ">p99, ms", ">CPU of the service, ms", ">bytes"]
    return [f"Reads, one after another, at {largest['sites']:,} sites:", table(heads, rows)]


def _collector(growth: Sequence[Result]) -> list[str]:
    rows = [
        (
            it["sites"],
            it["collector"]["every_s"],
            it["collector"]["gaps"],
            it["collector"]["cores"]["service"],
            it["collector"]["rss_mb"],
        )
        for it in growth
    ]
    heads = [">sites", ">asked for every, s", ">polls missed", ">service, cores", ">its memory, MB"]
    return ["The collector, polling all jobs:", table(heads, rows)]


def _cores(largest: Result) -> list[str]:
    phases = {**largest["cores"], "watch": largest["watch"]["cores"]}
    names = list(largest["cores"]["apply"])
    rows = [(phase, *(usage[name] for name in names)) for phase, usage in phases.items()]
    return [
        f"Cores in use at {largest['sites']:,} sites, by process:",
        table(["phase", *(f">{name}" for name in names)], rows),
    ]


def _whole(one: Result | None) -> list[str]:
    if one is None:
        return []
    planned, deployed, again = (number(one[name]) for name in ("plan_s", "apply_s", "noop_s"))
    change = one["change"]
    return [
        f"One composition of {one['jobs']:,} jobs: planned in {planned} s, deployed in"
        f" {deployed} s, applied again in {again} s; its change ({change['bytes']:,} bytes)"
        f" is read in {number(change['p50_ms'])} ms."
    ]


def _latencies(kinds: Result) -> list[str]:
    phrases = [f"{kind} {number(ms['p50'])} / {number(ms['p99'])}" for kind, ms in kinds.items()]
    return [
        "Latencies of the real Flink that the simulated ones draw from, p50 / p99 in ms:"
        f" {', '.join(phrases)}."
    ]


def _draw(result: Result) -> Any:
    figure, (left, right) = style.figure(2, height=4.4)
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
    return figure


_TIGHT: Any = {"columnspacing": 0.9, "handlelength": 1.5, "handletextpad": 0.4}

SECTION = Section(
    name="scale",
    title="A thousand sites",
    question="How does the control plane grow up to 1000 sites with 10 000 jobs, and where does it"
    " break?",
    set_up="The real service and one real Mosquitto against simulated engines, compositions of up"
    " to 1000 jobs. Each size was measured once; all but the table of the collector is without it.",
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
