"""Placement policies compared for real: what each predicts, and what is measured under it.

Two applications: the filters of bench.edge_server, each with a job behind it that works hard, and
the traffic application with cameras (bench.in_action). Both start all in the cloud, behind uplinks
that cannot carry what is offered; edges have half a core. One analysis of that is what every
policy places by; each placement is applied as its YAML, the load is put on again, and once what
arrives is steady the sink rate, the latency, what crosses the uplinks and the CPU time of the
cloud's engine are measured. A placement that exceeds limits is measured all the same, and the row
names them.

`make bench-policies` writes bench/results/policies.json; as root on Linux, for the WAN.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, replace

from bench.common import is_quick, say
from bench.experiment import Check, Experiment
from bench.policies_apps import Application, applications
from bench.policies_run import (
    CHECKPOINT_S,
    DOWN_MBPS,
    EDGE_CORES,
    LATENCY_MS,
    METRICS_S,
    UP_MBPS,
    Bench,
    Course,
    prepared,
)
from speck.model.values import JsonObject

POLICIES = ("all-cloud", "all-edge", "lightweight", "ranked", "greedy", "milp")
WITHIN = 0.2
WITHIN_CORES = 0.1
"""What an engine uses besides its jobs is measured while it is idle, and is not quite constant."""
MOST_CPU = 0.7
"""Of the machine: beyond, what is measured may be the machine's doing, and is not judged."""
KEEPS_UP = 0.95
"""A sink that gets so much of what should come keeps up: otherwise a queue grows."""


def course() -> Course:
    """Short in QUICK=1."""
    return Course(2.0, 3.0, 6.0) if is_quick() else Course(10.0, 10.0, 30.0)


def policies() -> Sequence[str]:
    return ("all-cloud", "milp") if is_quick() else POLICIES


def predict_at(
    prediction: JsonObject, offered_per_s: float, sink_share: float, idle_cores: float
) -> JsonObject:
    """What a placement predicts at the offered rate: figures grow with the rate up to the highest
    one. `p95_ms` None: a queue grows without end. The latency is that of the longest path."""
    highest = prediction["proposed_max_rate"]
    keeps_up = highest is None or highest >= offered_per_s
    carried = offered_per_s if keeps_up else highest
    factor = carried / prediction["records_per_s"] if prediction["records_per_s"] else 0.0
    cores = prediction["proposed_cloud_engine_cores"]
    return {
        "sink_per_s": carried * sink_share,
        "latency_ms": prediction["proposed_latency_ms"] if keeps_up else None,
        "wan_bytes_per_s": prediction["proposed_bytes_per_s"] * factor,
        "cloud_engine_cores": None if cores is None else idle_cores + cores * factor,
        "keeps_up": keeps_up,
        "held_by": prediction["held_by"],
    }


def compare(app: Application, analysed: JsonObject, rows: dict[str, JsonObject]) -> JsonObject:
    """Measured beside predicted, policy by policy."""
    outcomes = []
    for policy, row in rows.items():
        placement = analysed["placements"][policy]
        expected = row["offered_per_s"] * app.sink_share
        outcomes.append(
            {
                "policy": policy,
                "within_limits": not placement["violations"],
                "violations": placement["violations"],
                "moves": len(placement["moves"]),
                "sites": placement["sites"],
                "predicted": predict_at(
                    placement, row["offered_per_s"], app.sink_share, analysed["idle_cloud_cores"]
                ),
                "measured": {
                    "sink_per_s": row["sink_per_s"],
                    "keeps_up": row["sink_per_s"] >= KEEPS_UP * expected,
                    "p50_ms": row["p50_ms"],
                    "p95_ms": row["p95_ms"],
                    "wan_bytes_per_s": row["wan_bytes_per_s"],
                    "cloud_engine_cores": row["cloud_engine_cores"],
                },
                "offered_per_s": row["offered_per_s"],
                "machine_cpu": row["machine_cpu"],
                "lost": row["lost"],
                "repeated": row["repeated"],
                "different": row["different"],
            }
        )
    return {
        "application": app.name,
        "idle_cloud_cores": analysed["idle_cloud_cores"],
        "policies": outcomes,
    }


def judge(cells: Sequence[JsonObject]) -> list[Check]:
    """Predictions that hold, `milp` against the others, and nothing lost."""
    checks = []
    for cell in cells:
        for outcome in cell["policies"]:
            checks += _judge_prediction(cell["application"], outcome)
        checks += _judge_milp(cell)
        for what in ("lost", "repeated", "different"):
            count = sum(outcome[what] for outcome in cell["policies"])
            checks.append(
                Check(f"records {what}, {cell['application']}", "0", count, count == 0, always=True)
            )
    return checks


def _judge_prediction(application: str, outcome: JsonObject) -> list[Check]:
    predicted, measured = outcome["predicted"], outcome["measured"]
    name = f"{application}, {outcome['policy']}"
    checks = []
    for figure, text in (
        ("sink_per_s", "records/s at the sink"),
        ("wan_bytes_per_s", "WAN bytes/s"),
    ):
        wanted, value = predicted[figure], measured[figure]
        near = abs(value - wanted) <= WITHIN * wanted
        checks.append(
            Check(
                f"{text}, {name}", f"{wanted:.0f} +- {WITHIN:.0%} as predicted", round(value), near
            )
        )
    wanted, value = predicted["cloud_engine_cores"], measured["cloud_engine_cores"]
    if wanted is not None:
        near = abs(value - wanted) <= max(WITHIN_CORES, WITHIN * wanted)
        checks.append(
            Check(
                f"cores of the cloud's engine, {name}",
                f"{wanted:.2f} +- {WITHIN_CORES:g} or {WITHIN:.0%} as predicted",
                round(value, 2),
                near,
            )
        )
    if not outcome["within_limits"]:
        # what an engine needs besides its jobs is left to it by the limits only
        checks = [
            replace(check, ok=None, note="reported only: limits are exceeded") for check in checks
        ]
    return _unless_saturated(checks, outcome)


def _unless_saturated(checks: list[Check], *outcomes: JsonObject) -> list[Check]:
    """The checks; not judged if the machine was saturated."""
    cpu = max(outcome["machine_cpu"] for outcome in outcomes)
    if cpu <= MOST_CPU:
        return checks
    note = f"not judged: the machine was {cpu:.0%} in use"
    return [replace(check, ok=None, note=note) for check in checks]


def _judge_milp(cell: JsonObject) -> list[Check]:
    """The exact policy sends the fewest bytes of those that keep limits, and carries more than the
    cloud alone."""
    by_name = {outcome["policy"]: outcome for outcome in cell["policies"]}
    exact, cloud = by_name["milp"], by_name["all-cloud"]
    others = [
        outcome["measured"]["wan_bytes_per_s"]
        for outcome in cell["policies"]
        if outcome["within_limits"] and outcome["measured"]["keeps_up"]
    ]
    sent, least = exact["measured"]["wan_bytes_per_s"], min(others, default=0.0)
    sinks = [each["measured"]["sink_per_s"] for each in (cloud, exact)]
    checks = [
        Check(
            f"WAN bytes/s of milp, {cell['application']}",
            f"<= {least:.0f} + 5 %: the least of all within the limits",
            round(sent),
            bool(others) and sent <= 1.05 * least,
        ),
        Check(
            f"records/s at the sink, milp against all-cloud, {cell['application']}",
            f"> {sinks[0]:.0f}",
            round(sinks[1]),
            sinks[1] > sinks[0],
        ),
    ]
    return _unless_saturated(checks, cloud, exact)


class Runs:
    """All rows of an application; the fog is brought up when there is something to measure."""

    def __init__(self, experiment: Experiment, stack: ExitStack) -> None:
        self._experiment, self._stack = experiment, stack
        self._bench: Bench | None = None

    def measure(self, app: Application) -> tuple[JsonObject, dict[str, JsonObject]]:
        """The analysis's row, and that of each policy."""
        times = course()
        analysed = self._experiment.row(
            f"{app.name} analysis", lambda: self._fog().analysed(app, policies(), times)
        )
        rows = {}
        for policy in policies():
            placement = analysed["placements"][policy]
            rows[policy] = row = self._experiment.row(
                f"{app.name} {policy}",
                lambda: self._fog().measured(app, placement, times),  # noqa: B023
            )
            say(
                f"  {row['sink_per_s']:.0f}/s of {row['offered_per_s']:.0f}/s, p95"
                f" {row['p95_ms']} ms, {row['wan_bytes_per_s'] / 1000:.0f} kB/s, cloud"
                f" {row['cloud_engine_cores']:.2f} cores, machine {row['machine_cpu']:.0%}, lost"
                f" {row['lost']}"
            )
        return analysed, rows

    def _fog(self) -> Bench:
        if self._bench is None:
            self._bench = self._stack.enter_context(prepared())
        return self._bench


def main() -> int:
    """Exit status 0 only when every check holds."""
    settings: JsonObject = {
        "uplink_mbps": UP_MBPS,
        "downlink_mbps": DOWN_MBPS,
        "latency_ms": LATENCY_MS,
        "edge_cores": EDGE_CORES,
        "metrics_s": METRICS_S,
        "checkpoint_s": CHECKPOINT_S,
        "course": asdict(course()),
        "offered_per_s": {app.name: app.rate for app in applications()},
        "evidence_s": {app.name: app.evidence_s for app in applications()},
    }
    experiment = Experiment(
        "policies",
        settings,
        simulated=[
            "The WAN: network namespaces on one machine, rate by tc, latency by a delay element.",
            f"An edge's engine may use {EDGE_CORES} of a core by a CPU quota.",
            "Cameras: a simulated trace's vehicles with fields drawn by chance, some 4000 B each.",
        ],
    )
    with ExitStack() as stack:
        runs = Runs(experiment, stack)
        cells = [compare(app, *runs.measure(app)) for app in applications()]
    return experiment.finish({"cells": cells}, judge(cells))


if __name__ == "__main__":
    sys.exit(main())
