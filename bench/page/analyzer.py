"""bench.analyzer: a day of samples."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Claim, Plot, Section
from bench.page.words import number, table

_WANTED = {17: 2.0, 100: 3.0, 1000: 10.0}
"""Seconds of a warm answer, by jobs."""


def _figures(result: Result) -> str:
    warm = table(
        [">jobs", ">window, min", ">s, median", ">s, most", ">s, nothing cached"],
        [
            (
                it["jobs"],
                it["window_s"] / 60,
                it["seconds"],
                it["most_s"],
                it["nothing_cached"]["seconds"],
            )
            for it in result["warm"]
        ],
    )
    growth = table(
        ["dataset", ">rows of tasks", ">s", ">rows/s", ">memory, MB", ">DuckDB, s"],
        [
            (
                f"{number(it['hours'])} h",
                it["rows"],
                it["seconds"],
                it["rows_per_s"],
                it["peak_mb"],
                it["duckdb_s"],
            )
            for it in result["growth"]
        ],
    )
    beside = _describe_fog(result["beside_a_fog"]) if "beside_a_fog" in result else ""
    return (
        f"{beside}An application that stays up answers:\n\n{warm}\n\n"
        "A process of its own, from its start, with nothing cached; beside it DuckDB computes the"
        f" same analysis in SQL of its own:\n\n{growth}"
    )


def _describe_fog(it: Any) -> str:
    then, loaded = (", ".join(map(number, it[name])) for name in ("then_s", "loaded_s"))
    return (
        f"Beside a quiet fog of four sites with {it['jobs']} jobs at {it['records_per_s']}"
        f" records/s ({it['samples']} samples), for a user who cannot lower a nice value: the first"
        f" answer took {number(it['first_s'])} s, those that followed {then} s, and with"
        f" {it['load']} busy processes on the machine {loaded} s. After the analyzer was killed the"
        f" next one took {number(it['cold_s'])} s. Process and JVM held {it['resident_mb']} MB.\n\n"
    )


def _claims(result: Result) -> Sequence[Claim]:
    claims = [
        _limit(
            f"s to a warm answer, {it['jobs']} jobs and {number(it['window_s'] / 60)} min",
            _WANTED[it["jobs"]],
            it["seconds"],
        )
        for it in result["warm"]
        if it["jobs"] in _WANTED
    ]
    rows = f"{result['rows'] / 1e6:.1f}"
    return [
        *(_claim_fog(result["beside_a_fog"]) if "beside_a_fog" in result else ()),
        *claims,
        _limit("s to the first answer, JVM included", 12.0, result["cold_s"]),
        _limit("s to a warm answer that do not depend on the data", 5.0, result["fixed_s"]),
        _limit(f"s to a warm answer, {rows} million rows, none cached", 40.0, result["seconds"]),
        Claim(
            "figures that differ from DuckDB's",
            "0",
            result["differences"],
            bool(result["agree"]),
            f"{result['compared']:,} figures compared, to 1e-6",
        ),
    ]


def _claim_fog(it: Any) -> Iterator[Claim]:
    yield _limit("s to the first answer beside a fog", 12.0, it["first_s"])
    yield _limit("s to the next ones beside a fog, most of them", 2.0, it["most_s"])
    yield _limit(f"s at a load of {it['load']}, most", 10.0, max(it["loaded_s"]))
    yield _limit("s to an answer beside a fog, JVM included", 12.0, it["cold_s"])
    yield _limit(f"MB resident for {it['jobs']} jobs", 700, it["resident_mb"])


def _limit(name: str, wanted: float, measured: float) -> Claim:
    return Claim(name, f"<= {number(wanted)}", measured, measured <= wanted)


def _draw(result: Result) -> Any:
    figure, (left, right) = style.figure(2, height=2.8)
    rows = [it["rows"] / 1e6 for it in result["growth"]]
    left.plot(rows, [it["seconds"] for it in result["growth"]], "o-", color=style.BLUE)
    left.set_ylabel("whole process, s")
    right.plot(rows, [it["peak_mb"] for it in result["growth"]], "s-", color=style.RED)
    right.set_ylabel("most memory, MB")
    for axes in (left, right):
        axes.set_xlabel("rows of tasks, millions")
        style.from_zero(axes)
    return figure


SECTION = Section(
    name="analyzer",
    title="The analyzer",
    question="How long does an answer take, up to a day of 1000 jobs on 100 sites?",
    set_up="A sample of each job every 10 s, with the faults that collectors meet; PySpark in one"
    " process on two cores of this machine.",
    target="analyzer",
    figures=_figures,
    claims=_claims,
    plots=[Plot("analyzer-growth", "Time and memory over the size of the dataset", _draw)],
    simulated=["the samples (generated, with known truth)."],
)
