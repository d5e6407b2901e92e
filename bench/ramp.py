"""A ramp that fills an uplink, under the autopilot with a forecast and without.

Records enter at an edge and cross its uplink of 2 Mb/s as they are, since all jobs are in the
cloud. Their rate grows, so that the uplink is full after 15 minutes, and goes on growing. The
autopilot runs every 90 s and moves jobs only because of limits. With `ahead_s` it plans for the
rate that the analysis forecasts, and moves the job that sends batches to the edge while the uplink
still has room; without, it sees the full uplink first.

`make bench-ramp` writes bench/results/ramp.json; as root on Linux, for the WAN.
"""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import asdict

from bench.common import is_quick
from bench.experiment import Check, Experiment
from bench.instruments.feed import Ramp
from bench.ramp_run import (
    AROUND_S,
    CHECKPOINT_S,
    DOWN_MBPS,
    FULL,
    LATENCY_MS,
    METRICS_S,
    PAYLOAD,
    UP_MBPS,
    Bench,
    Course,
    prepared,
)
from speck.model.values import JsonObject

AHEAD_S = 60.0 if is_quick() else 300.0
CASES = {"forecast": AHEAD_S} if is_quick() else {"forecast": AHEAD_S, "today": 0.0}
"""How far the autopilot looks ahead; the one with a forecast first, so that no ramp is history."""
LATE_S = 1.0
"""A latency above this is that of a queue."""


def course() -> Course:
    """About 225 records/s fill the uplink: after 15 minutes, in QUICK=1 after one and a half."""
    if is_quick():
        return Course(Ramp(50.0, 266.0, 105.0), 110.0, 15.0)
    return Course(Ramp(50.0, 275.0, 1155.0), 1155.0, 90.0)


def judge(rows: dict[str, JsonObject]) -> list[Check]:
    """Moved before the uplink is full with the forecast, after it without; nothing lost."""
    checks = []
    if (row := rows.get("forecast")) is not None:
        moments = row["moments_s"]
        before_full = "applied" in moments and (
            "full" not in moments or moments["applied"] < moments["full"]
        )
        checks += [
            Check(
                "with a forecast", "moved before the uplink is full", _describe(row), before_full
            ),
            Check(
                f"most seconds that a record took, {AROUND_S:g} s before it moved and after",
                f"< {LATE_S:g}",
                [row[when]["max_s"] for when in ("before", "after")] if before_full else None,
                before_full and all(row[each]["max_s"] < LATE_S for each in ("before", "after")),
            ),
        ]
    if (row := rows.get("today")) is not None:
        moments = row["moments_s"]
        after_full = (
            "full" in moments and moments.get("applied", moments["full"] + 1) > moments["full"]
        )
        checks.append(
            Check("without a forecast", "the uplink is full first", _describe(row), after_full)
        )
    for case, row in rows.items():
        for what in ("lost", "repeated"):
            name = f"records {what}, {case}"
            checks.append(Check(name, "0", row[what], row[what] == 0, always=True))
    return checks


def _describe(row: JsonObject) -> str:
    names = {"decided": "decided", "applied": "applied", "full": "uplink full"}
    known = [
        f"{names[name]} at {row['moments_s'][name]:.0f} s"
        for name in names
        if name in row["moments_s"]
    ]
    return ", ".join(known) or "neither moved nor full"


def main() -> int:
    """Exit status 0 only when every check holds."""
    times = course()
    settings: JsonObject = {
        "uplink_mbps": UP_MBPS,
        "downlink_mbps": DOWN_MBPS,
        "latency_ms": LATENCY_MS,
        "payload_bytes": PAYLOAD,
        "metrics_s": METRICS_S,
        "checkpoint_s": CHECKPOINT_S,
        "full": FULL,
        "ahead_s": AHEAD_S,
        "course": asdict(times),
    }
    experiment = Experiment(
        "ramp",
        settings,
        simulated=[
            "The WAN: network namespaces on one machine, rate by tc, latency by a delay element.",
            "Records are padded with one letter, so batches compress to nearly nothing.",
        ],
    )
    rows: dict[str, JsonObject] = {}
    with ExitStack() as stack:
        fogs: list[Bench] = []

        def measure(case: str) -> JsonObject:
            if not fogs:
                fogs.append(stack.enter_context(prepared()))
            return fogs[0].run(case, CASES[case], times)

        for case in CASES:
            rows[case] = experiment.row(case, lambda: measure(case))  # noqa: B023
    return experiment.finish({"cases": rows}, judge(rows))


if __name__ == "__main__":
    sys.exit(main())
