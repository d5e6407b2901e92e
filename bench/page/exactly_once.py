"""bench.exactly_once: what it costs."""

from __future__ import annotations

from collections.abc import Sequence

from bench.page.result import Result
from bench.page.section import Claim, Section
from bench.page.words import number, table


def _figures(result: Result) -> str:
    rows = [
        (
            f"{number(it['checkpoint_interval_s'])} s",
            it["msgs_per_s"]["exactly_once"],
            it["msgs_per_s"]["at_least_once"],
            it["ratio"],
            it["p50_ms"]["exactly_once"],
            it["p50_ms"]["at_least_once"],
            it["p99_ms"]["exactly_once"],
            it["p99_ms"]["at_least_once"],
        )
        for it in result["intervals"]
    ]
    heads = [
        "checkpoint every",
        ">exactly once, msgs/s",
        ">at least once, msgs/s",
        ">ratio",
        ">p50, ms: exactly",
        ">at least",
        ">p99, ms: exactly",
        ">at least",
    ]
    return table(heads, rows)


def _claims(result: Result) -> Sequence[Claim]:
    return [
        Claim("records lost", "0", result["lost"], result["lost"] == 0),
        Claim("records repeated", "0", result["repeated"], result["repeated"] == 0),
    ]


SECTION = Section(
    name="exactly_once",
    title="Exactly once",
    question="What does `exactly_once` cost against `at_least_once`?",
    set_up="One job that passes records of 100 B on with QoS 1: results are published when their"
    " checkpoint completes, so latency is that of the checkpoints.",
    target="exactly-once",
    figures=_figures,
    claims=_claims,
)
