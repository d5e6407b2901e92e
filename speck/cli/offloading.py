"""What `speck offload` measures, and its table of before and after."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from time import monotonic, sleep
from typing import Any

from speck.cli.messages import say, warn
from speck.cli.output import Grid, Output
from speck.client import Client
from speck.model.values import JsonObject
from speck.placement.figures import describe_rate


class Quiet(Output):
    """Prints no data of a step: a command's stdout holds one document, that of the whole."""

    def show(self, data: object, *blocks: object) -> None:
        """Print nothing."""


POLL_S = 1.0
STEADY_SAMPLES = 3
"""Rates are steady when this many samples in a row of every job are close to their mean."""
CLOSE = 0.2
LEAST_RATE = 2.0
"""Records per second: rates that differ by less are close."""


def measure(service: Client, composition: str, window_s: float, settle_s: float) -> JsonObject:
    """Wait until the rates of the composition's jobs are steady, then measure for `window_s`
    seconds; returns the analysis."""
    from speck.cli.waiting import await_analysis

    say(f"waiting until the rates of {composition} are steady")
    if not _await_steady(service, composition, settle_s):
        warn(f"the rates of {composition} are not steady after {settle_s:g} s")
    say(f"measuring for {window_s:g} s")
    sleep(window_s)
    return await_analysis(service, service.analyse(window_s=window_s)["id"])


def _await_steady(service: Client, composition: str, limit_s: float) -> bool:
    """False when the rates are not steady within `limit_s`."""
    until = monotonic() + limit_s
    seen: dict[str, list[tuple[str, float]]] = {}
    while monotonic() < until:
        for job in service.rates(composition):
            samples = seen.setdefault(job["job_name"], [])
            is_new = not samples or samples[-1][0] != job["at"]
            if is_new and None not in (job["at"], job["in_rate"]):
                samples.append((job["at"], job["in_rate"]))
        if seen and all(is_steady([rate for _, rate in samples]) for samples in seen.values()):
            return True
        sleep(POLL_S)
    return False


def is_steady(rates: Sequence[float]) -> bool:
    """Whether the newest rates (records per second) are close to their mean."""
    newest = rates[-STEADY_SAMPLES:]
    if len(newest) < STEADY_SAMPLES:
        return False
    mean = sum(newest) / len(newest)
    return all(abs(each - mean) <= max(CLOSE * mean, LEAST_RATE) for each in newest)


def compare(
    composition: str, before: JsonObject, after: JsonObject, placement: JsonObject
) -> list[JsonObject]:
    """One row for each figure: `{figure, unit, before, predicted, after}`; None where unknown. A
    count has the unit ""."""
    first, second = _read_figures(composition, before), _read_figures(composition, after)
    predicted = {
        "between sites": placement["proposed"]["wan_bytes_per_s"],
        "jobs at edges": _count_edge_jobs(after, placement["proposed"]["sites"]),
        **{
            figure: _shift(first[figure], placement, _sites_of(before, cloud=cloud))
            for figure, cloud in (("CPU of cloud engines", True), ("CPU of edge engines", False))
        },
    }
    return [
        {
            "figure": figure,
            "unit": unit,
            "before": first[figure],
            "predicted": predicted.get(figure),
            "after": second[figure],
        }
        for figure, unit in _UNITS.items()
    ]


def _shift(cores: float | None, placement: JsonObject, sites: Sequence[JsonObject]) -> float | None:
    """What engines used, and what the placement changes of it: what an engine uses besides its
    jobs is in no prediction."""
    today, proposed = placement["today"]["cores"], placement["proposed"]["cores"]
    changes = [(today.get(site["name"]), proposed.get(site["name"])) for site in sites]
    if cores is None or any(None in change for change in changes):
        return None
    return max(0.0, cores + sum(float(after) - float(before) for before, after in changes))


_UNITS = {
    "between sites": "bytes/s",
    "at the outputs": "records/s",
    "CPU of cloud engines": "cores",
    "CPU of edge engines": "cores",
    "jobs at edges": "",
}


def _read_figures(composition: str, analysis: JsonObject) -> dict[str, float | int | None]:
    jobs = [job for job in analysis["jobs"] if job["composition"] == composition]
    read = {(job["source"]["site"], job["source"]["topic"]) for job in jobs}
    last = [job for job in jobs if (job["sink"]["site"], job["sink"]["topic"]) not in read]
    links = [link for link in analysis["links"] if link["composition"] == composition]
    return {
        "between sites": _sum(links, "wan_bytes_per_s"),
        "at the outputs": _sum(last, "out_rate"),
        "CPU of cloud engines": _sum(_sites_of(analysis, cloud=True), "cpu"),
        "CPU of edge engines": _sum(_sites_of(analysis, cloud=False), "cpu"),
        "jobs at edges": _count_edge_jobs(analysis, {job["job_name"]: job["site"] for job in jobs}),
    }


def _sites_of(analysis: JsonObject, *, cloud: bool) -> list[JsonObject]:
    return [site for site in analysis["sites"] if (site["tier"] == "cloud") is cloud]


def _count_edge_jobs(analysis: JsonObject, sites: Mapping[str, str]) -> int:
    edges = {site["name"] for site in _sites_of(analysis, cloud=False)}
    return sum(site in edges for site in sites.values())


def _sum(rows: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """The sum; None if there is nothing to add or a part is unknown."""
    values = [row[name] for row in rows]
    return None if None in values or not values else float(sum(values))


def render(composition: str, rows: list[JsonObject]) -> Grid:
    """The rows of `compare` as a table."""
    return Grid(
        ("figure", "in the cloud", "predicted", "offloaded"),
        [(row["figure"], *(_show(row[name], row["unit"]) for name in _COLUMNS)) for row in rows],
        f"{composition} before and after the offload",
    )


_COLUMNS = ("before", "predicted", "after")


def _show(value: float | None, unit: str) -> str | None:
    if value is None:
        return None
    if unit == "bytes/s":
        return describe_rate(value)
    return f"{value:.3g} {unit}".rstrip()
