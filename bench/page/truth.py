"""bench.truth: what is measured against what is set."""

from __future__ import annotations

from collections.abc import Sequence

from bench.page.result import Result
from bench.page.section import Claim, Section


def _figures(result: Result) -> str:
    right = sum(1 for it in result["items"] if it["ok"])
    return f"{right} of {len(result['items'])} figures are as they were set."


def _claims(result: Result) -> Sequence[Claim]:
    return [
        Claim(it["name"], it["set"], it["measured"], it["ok"], it["detail"])
        for it in result["items"]
    ]


SECTION = Section(
    name="truth",
    title="Measured against set",
    question="Are the figures that placement goes by true?",
    set_up="Jobs whose cost and selectivity are set, on a site with a quarter of a core and one"
    " without a limit, real Flink and Mosquitto; what the analyzer says against what was set.",
    target="truth",
    figures=_figures,
    claims=_claims,
    root=True,
)
