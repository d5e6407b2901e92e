"""bench.placement: the policies."""

from __future__ import annotations

from collections.abc import Sequence

from bench.page.result import Result
from bench.page.section import Claim, Section
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
    text += " More: [placement.md](placement.md)."
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


SECTION = Section(
    name="placement",
    title="Placement",
    question="How long does the best placement take, and is it the best?",
    set_up="Problems made up at random, of the traffic application's kind and of general graphs.",
    target="placement",
    figures=_figures,
    claims=_claims,
    simulated=["the problems (no job runs)."],
)
