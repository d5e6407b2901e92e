"""bench.state: the size of the state."""

from __future__ import annotations

from collections.abc import Sequence

from bench.page.result import Result
from bench.page.section import Claim, Section
from bench.page.words import key_figures


def _figures(result: Result) -> str:
    return key_figures(
        [
            ("jobs", result["jobs"]),
            ("bytes on disk", result["bytes"]),
            ("bytes that the paper reports for its own", result["paper_bytes"]),
        ]
    )


def _claims(result: Result) -> Sequence[Claim]:
    size, paper = result["bytes"], result["paper_bytes"]
    ok = size <= paper if result["jobs"] == 1000 else None
    return [Claim("bytes of 1000 jobs", f"<= {paper:,}, the paper's", size, ok)]


def _headline(result: Result) -> list[tuple[str, str]]:
    size, paper = (result[key] / 1e6 for key in ("bytes", "paper_bytes"))
    return [
        (f"State of {result['jobs']} jobs on disk", f"{size:.2f} MB (the paper's: {paper:.2f})")
    ]


SECTION = Section(
    name="state",
    title="State on disk",
    question="How much does the service keep of a composition of 1000 jobs?",
    set_up="A real store, filled by the real service.",
    target="state",
    figures=_figures,
    claims=_claims,
    headline=_headline,
    simulated=["engines and brokers (in memory)."],
)
