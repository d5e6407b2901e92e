"""bench.crash: the service dies at every point."""

from __future__ import annotations

from collections.abc import Sequence

from bench.page.result import Result
from bench.page.section import Claim, Section
from bench.page.words import key_figures, number


def _figures(result: Result) -> str:
    return key_figures(
        [
            ("points at which it dies", result["points"]),
            (
                "from death to the end of the change, median",
                f"{number(result['median_recovery_s'])} s",
            ),
            ("the same, longest", f"{number(result['max_recovery_s'])} s"),
            ("records published meanwhile", result["published"]),
        ]
    )


def _claims(result: Result) -> Sequence[Claim]:
    points = result["points"]
    return [
        Claim(
            "changes that go on", f"{points}", result["recovered"], result["recovered"] == points
        ),
        Claim("two copies of a job", "0", result["two_copies"], result["two_copies"] == 0),
        Claim("records lost", "0", result["lost"], result["lost"] == 0),
    ]


SECTION = Section(
    name="crash",
    title="The service dies",
    question="What is left of a change when the service is killed in the middle of it?",
    set_up="Real Flink, Mosquitto and service; it is killed at every point around every kind of"
    " operation and started again.",
    target="crash",
    figures=_figures,
    claims=_claims,
)
