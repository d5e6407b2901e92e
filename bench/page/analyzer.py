"""bench.analyzer: a day of samples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Claim, Plot, Section
from bench.page.words import number, table


def _figures(result: Result) -> str:
    rows = [
        (f"{number(it['hours'])} h", it["rows"], it["seconds"], it["rows_per_s"], it["peak_mb"])
        for it in result["growth"]
    ]
    heads = ["dataset", ">rows of tasks", ">s", ">rows/s", ">memory, MB"]
    beside = result["beside"]
    return (
        f"{table(heads, rows)}\n\nBeside it {beside['tool']} works out {beside['works_out']} alone"
        f" in {number(beside['seconds'])} s."
    )


def _claims(result: Result) -> Sequence[Claim]:
    beside = result["beside"]
    note = f"{beside['compared']:,} rates compared, {beside['tool']}"
    return [
        Claim(
            "rates that differ from the other tool's",
            "0",
            beside["differences"],
            bool(result["agree"]),
            note,
        )
    ]


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
    question="How long does it take to analyse a day of 1000 jobs on 100 sites?",
    set_up="A sample of each job every 10 s, with the faults that collectors meet; PySpark in one"
    " process on this machine.",
    target="analyzer",
    figures=_figures,
    claims=_claims,
    plots=[Plot("analyzer-growth", "Time and memory over the size of the dataset", _draw)],
    simulated=["the samples (generated, with known truth)."],
)
