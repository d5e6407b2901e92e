"""bench.faults: what every fault does."""

from __future__ import annotations

from collections.abc import Sequence

from bench.page.result import Result
from bench.page.section import Claim, Section
from bench.page.words import key_figures, number


def _figures(result: Result) -> str:
    rows = result["faults"]
    slow = max((row for row in rows if row["recovery_s"] is not None), key=_recovery)
    return (
        key_figures(
            [
                ("faults, in both kinds of delivery", len(rows)),
                ("records published", result["published"]),
                ("longest recovery", f"{number(slow['recovery_s'])} s ({slow['fault']})"),
                (
                    "lost where a queue is made to overflow, which is detected",
                    result["expected_loss"],
                ),
            ]
        )
        + "\n\nEach fault by itself: [guarantees.md](guarantees.md)."
    )


def _recovery(row: Result) -> float:
    return float(row["recovery_s"])


def _claims(result: Result) -> Sequence[Claim]:
    return [
        Claim("records lost", "0", result["lost"], result["lost"] == 0, "the overflow apart"),
        Claim("repeated under exactly_once", "0", result["repeated"], result["repeated"] == 0),
        Claim("two copies of a job", "0", result["two_copies"], result["two_copies"] == 0),
    ]


SECTION = Section(
    name="faults",
    title="Faults",
    question="What do crashes, partitions, hung sites and dying brokers do to the data?",
    set_up="Real Flink, Mosquitto and service on plain loopback; every fault while numbered records"
    " flow, most of them in the middle of a move.",
    target="faults",
    figures=_figures,
    claims=_claims,
)
