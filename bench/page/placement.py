"""bench.placement: the policies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bench.page import style
from bench.page.result import Result
from bench.page.section import Claim, Plot, Section
from bench.page.words import table


def _figures(result: Result) -> str:
    rows = [
        (
            it["kind"],
            it["jobs"],
            it["sites"],
            it["seconds"],
            "yes" if it["optimal"] else f"within {100 * it['gap']:.1f} %",
        )
        for it in result["milp"]
    ]
    text = "The exact policy (`milp`); the last row was stopped early."
    text += " More: [placement.md](../placement.md)."
    times = table(["problem", ">jobs", ">sites", ">s", ">optimal"], rows)
    return f"{text}\n\n{times}\n\n{_compare(result)}"


def _compare(result: Result) -> str:
    """The policies beside the optimum."""
    rows = [
        (
            f"`{name}`",
            *(f"{100 * it[key]:.1f} %" for key in ("median", "mean", "max")),
            f"{it['optimal']} of {it['compared']}",
            it["none_found"],
        )
        for name, it in result["policies"].items()
    ]
    text = "Bytes between sites above the optimum, where a placement within all limits was found:"
    head = ["policy", ">median", ">mean", ">worst", ">optimal", ">none found"]
    return f"{text}\n\n{table(head, rows)}"


def _claims(result: Result) -> Sequence[Claim]:
    equal, of = result["brute_force_equal"]
    return [Claim("optimum equal to brute force", f"{of}", equal, equal == of)]


def _draw_scores(result: Result) -> Any:
    figure, axes = style.figure(2, height=3.2, sharey=True)
    data = result["rolbts_plots"]["figure_4"]
    for each, name, what in zip(axes, ("RoLBTS", "FSACE"), ("overclock", "weight"), strict=True):
        lines = [(line, ys) for line, ys in data["scores"].items() if line.startswith(name)]
        for (line, ys), (color, marker) in zip(lines, _LOOKS, strict=True):
            setting = line.removeprefix(f"{name} ")
            each.plot(data["lengths"], ys, color=color, marker=marker, label=f"{what} {setting}")
        each.set_title(name)
        each.set_xscale("log", base=2)
        each.set_yscale("log")
        each.set_xticks(data["lengths"], [str(length) for length in data["lengths"]])
        each.set_xlabel("length of a record, kbit")
        each.legend()
    axes[0].set_ylabel("score")
    return figure


_LOOKS = ((style.BLUE, "o"), (style.ORANGE, "s"), (style.GREEN, "^"))


def _draw_solutions(result: Result) -> Any:
    figure, axes = style.figure(3, height=3.0)
    rows = result["rolbts_plots"]["figures_5_6"]
    numbers = list(range(1, max(row["servers"] for row in rows) + 1))
    powers = [[math.log10(it) for it in line] for line in _arrange(rows, "assignments")]
    states = _arrange(rows, "exact_states")
    times = [[1000 * it for it in line] for line in _arrange(rows, "exact_s")]
    for each, values, title, label in (
        (axes[0], powers, "RoLBTS: N^M", "log10 of assignments"),
        (axes[1], states, "the exact answer", "states searched"),
        (axes[2], times, "the exact answer", "ms"),
    ):
        each.grid(visible=False)
        image = each.pcolormesh(numbers, numbers, values, cmap="Blues", vmin=0)
        figure.colorbar(image, ax=each, label=label)
        each.set_xticks(numbers)
        each.set_yticks(numbers)
        each.set_xlabel("servers N")
        each.set_title(title)
    lines = axes[0].contour(
        numbers, numbers, powers, levels=[2, 4, 6, 8], colors=style.BLACK, linewidths=1
    )
    axes[0].clabel(lines, fmt=lambda level: f"$10^{{{level:g}}}$", fontsize=9)
    axes[0].set_ylabel("branches M")
    return figure


def _arrange(rows: Sequence[Result], key: str) -> list[list[float]]:
    """A line for each number of branches, a value for each number of servers."""
    lines: dict[int, list[float]] = {}
    for row in rows:
        lines.setdefault(row["branches"], []).append(row[key])
    return [lines[branches] for branches in sorted(lines)]


SECTION = Section(
    name="placement",
    title="Placement",
    question="How long does the best placement take, and is it the best?",
    set_up="Problems made up at random, of the traffic application's kind and of general graphs.",
    target="placement",
    figures=_figures,
    claims=_claims,
    plots=[
        Plot(
            "rolbts-scores",
            "RoLBTS and FSACE: score over the length of a record, both axes logarithmic (the"
            " paper's figure 4, reconstructed)",
            _draw_scores,
        ),
        Plot(
            "rolbts-solutions",
            "Assignments of M branches to N servers that RoLBTS enumerates (the paper's figures 5"
            " and 6), and the states that the exact answer searches, with its time",
            _draw_solutions,
        ),
    ],
    simulated=["the problems (no job runs)."],
)
