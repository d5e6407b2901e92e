"""bench.overload: the service under attack."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bench.page.section import Section
from bench.page.words import number, table
from bench.soak import REST_S

_ATTACKS = {
    "none": "no attack",
    "one byte": "200 sockets that send one byte",
    "slow headers": "200 that send a byte of a header each second",
    "slow bodies": "300 uploads of a byte a second, 100 with a valid token",
    "slow readers": "200 that pipeline 60 requests and read a byte a second",
    "idle connections": "1000 that send nothing",
    "readers of exports": "70 that read an export of all metrics at 250 kB/s",
    "dry runs at a hanging engine": "60 callers with a job at an engine that hangs",
    "checks of a hanging engine": "40 callers that check a site whose engine hangs",
    "hostile documents": "4 callers with documents of thousands of faults",
    "import and analysis": "an import of metrics beside an analysis, again and again",
    "large defaults": "4 callers with compositions that are 430 times as large with their defaults",
    "dense documents": "4 callers with YAML of half a million values in a megabyte",
    "archives with a decoy": "4 callers with archives of 1.5 million entries that claim one",
    "slow programs": "8 callers with Python that is slow, or large, once it is parsed",
    "a hostile engine": "8 callers that read a site whose engine answers with 32 MB",
    "all but hostile documents": "all of these but the documents at once",
    "all together": "all of these at once",
    "descriptors": "3000 sockets, and 512 descriptors for the service",
}


def _figures(result: Mapping[str, Any]) -> str:
    summary = result["summary"]
    calm = {**summary["calm"], "recovered_s": None}
    rows = [
        (
            _ATTACKS.get(it["attack"], it["attack"]),
            it["livez_p99_ms"],
            it["vital_p99_ms"],
            it["reads_p99_ms"],
            it["memory_mb"],
            it["recovered_s"],
        )
        for it in (calm, *summary["attacks"])
    ]
    heads = [
        "attack",
        ">/livez p99, ms",
        ">/readyz, heartbeat p99, ms",
        ">GET /jobs p99, ms",
        ">memory, MB",
        ">as before after, s",
    ]
    comparison = [
        (
            f"GET {route}",
            f"{number(it['p50_ms']['before'])} / {number(it['p50_ms']['now'])}",
            it["p50_ratio"],
            f"{it['requests_per_s']['before']:,} / {it['requests_per_s']['now']:,}",
            it["rate_ratio"],
        )
        for route, it in summary["comparison"].items()
    ]
    compared_heads = [
        "without an attack: gunicorn's worker / ours",
        ">p50, ms",
        ">ratio",
        ">requests/s",
        ">ratio",
    ]
    parts = [table(heads, rows), table(compared_heads, comparison)]
    if "soak" in summary:
        parts.append(_describe_soak(summary["soak"]))
    return "\n\n".join(parts)


def _describe_soak(it: Mapping[str, Any]) -> str:
    heads = ["eight busy clients", ">before", ">at most", f">{REST_S:g} s after"]
    memory = (it["before_mb"], it["most_mb"], it["after_mb"])
    return table(heads, [(f"memory, MB, {it['seconds']:g} s, {it['calls']:,} calls", *memory)])


SECTION = Section(
    name="overload",
    title="Overload",
    question="Does the service answer while clients attack it, and is it as before afterwards?",
    set_up="Each attack goes on for half a minute, from a process of its own. Meanwhile new"
    " connections ask for health, send heartbeats and read. Before that the service's worker is"
    " measured in turns with gunicorn's own worker for threads, which it replaced.",
    target="overload",
    figures=_figures,
)
