"""A placement carried out while data flows: the traffic application, started in the cloud.

Cameras publish at three edges, each with an uplink of 2 Mb/s; all 17 jobs start in the cloud, so
every record crosses an uplink as the camera sent it: more than the uplink carries. The service's
own collector measures, an analysis is made of that, `milp` proposes, and its placement is applied
while the cameras go on. What crosses then is what Forward sends: batches, compressed
(`link: {batch_records, linger_ms, compression}`), which is no use to anyone while it runs in the
cloud. Then the same again, with nobody but the autopilot at work.

`make bench-in-action` writes bench/results/in_action.json; as root on Linux, for the WAN.
"""

from __future__ import annotations

import sys
from dataclasses import replace

from bench.cameras import LINK, WINDOW_MS, expected_moves, sites
from bench.common import is_quick
from bench.experiment import Check, Experiment
from bench.moving import CHECKPOINT_S, DOWN_MBPS, LATENCY_MS, METRICS_S, Course, prepared
from speck.model.values import JsonObject

WITHIN = 0.2
MOST_CPU = 0.7
"""Of the machine: beyond, what changes may be the machine's doing, and is not judged."""
RATE = 70.0
"""Records a second of an edge: more than its uplink carries, and what two cores can do."""
FULL = 0.9
"""An uplink that is used so much is the limit."""


def course() -> Course:
    """A short one in QUICK=1: too short for evidence, so `laid_out` says what moves then, and
    one edge of the three."""
    if is_quick():
        return Course(3.0, 6.0, 15.0, 6.0, 1000 / RATE, 2.0)
    # a Clean of four at a site must be busy for more than a second while it is measured: evidence
    return Course(15.0, 300.0, 60.0, 40.0, 1000 / RATE, 2.0)


def judge(name: str, row: JsonObject, uplinks_mbps: float) -> list[Check]:
    """The checks of a series. `uplinks_mbps`: of all edges together."""
    before, after = row["before"], row["after"]
    share = before["wan_bytes_per_s"] * 8e-6 / uplinks_mbps
    full = Check(
        f"use of the uplinks before, {name}", f">= {FULL:.0%}", f"{share:.0%}", share >= FULL
    )
    checks = [*_compare_spans(name, row), full]
    if (cpu := max(before["machine_cpu"], after["machine_cpu"])) > MOST_CPU:
        note = f"not judged: the machine was {cpu:.0%} in use"
        checks = [replace(check, ok=None, note=note) for check in checks]
    for what in ("lost", "repeated", "different"):
        checks.append(Check(f"{what}, {name}", "0", row[what], row[what] == 0, always=True))
    return checks


def _compare_spans(name: str, row: JsonObject) -> list[Check]:
    """Compare before with after, and both with the prediction."""
    before, after, prediction = row["before"], row["after"], row["predicted"]

    def fell(what: str, was: float | None, now: float | None) -> Check:
        ok = was is not None and now is not None and now < was
        text = " -> ".join("none" if v is None else f"{v:.4g}" for v in (was, now))
        return Check(f"{what}, {name}", "falls", text, ok)

    def per_record(which: str) -> float:
        bytes_per_s, records_per_s = prediction[f"{which}_bytes_per_s"], prediction["records_per_s"]
        return float(bytes_per_s / records_per_s) if records_per_s else 0.0

    moves, expected = prediction["moves"], expected_moves()
    unjudged = is_quick() and not moves
    note = "QUICK is too short for evidence: moved as was expected of it" if unjudged else ""
    missing_moves = sorted(set(expected.items()) - set(moves.items()))
    ok = None if unjudged else not missing_moves
    if missing_moves:
        note = note or "not moved: " + ", ".join(job for job, _ in missing_moves)
    checks = [
        Check(f"jobs moved to their edges, {name}", f"all {len(expected)}", len(moves), ok, note),
        fell("latency p95 of Job 4 (s)", before["job4"]["p95_s"], after["job4"]["p95_s"]),
        fell("latency p95 of Job 3 (s)", before["job3"]["p95_s"], after["job3"]["p95_s"]),
        fell(
            "WAN bytes a record",
            before["wan_bytes_per_record"],
            after["wan_bytes_per_record"],
        ),
        fell("cores of the cloud's engine", *(it["cloud_engine_cores"] for it in (before, after))),
        Check(
            f"records a second at the sink, {name}",
            f"> {before['sink_per_s']:.0f}",
            round(after["sink_per_s"]),
            after["sink_per_s"] > before["sink_per_s"],
        ),
    ]
    for which, span_ in () if unjudged else (("today", before), ("proposed", after)):
        predicted_bytes, measured_bytes = per_record(which), span_["wan_bytes_per_record"] or 0.0
        checks.append(
            Check(
                f"WAN bytes a record, {which}, {name}",
                f"{predicted_bytes:.1f} +- {WITHIN:.0%} as predicted",
                round(measured_bytes, 1),
                abs(measured_bytes - predicted_bytes) <= WITHIN * predicted_bytes
                and predicted_bytes > 0,
                "predicted: MQTT packets; measured: whole packets of the uplink's interface",
            )
        )
    return checks


def main() -> int:
    """Exit status 0 only when every check holds."""
    times = course()
    settings: JsonObject = {
        "uplink_mbps": times.up_mbps,
        "downlink_mbps": DOWN_MBPS,
        "latency_ms": LATENCY_MS,
        "link": LINK,
        "window_ms": WINDOW_MS,
        "metrics_s": METRICS_S,
        "checkpoint_interval_s": CHECKPOINT_S,
        "interval_ms": times.interval_ms,
        "seconds": [times.lead_s, times.before_s, times.settle_s, times.after_s],
    }
    experiment = Experiment(
        "in_action",
        settings,
        simulated=[
            "The WAN: network namespaces on one machine, rate by tc, latency by a delay element.",
            "Cameras: a simulated trace's vehicles with fields drawn by chance, some 4000 B each.",
        ],
    )
    movers = ["by hand"] if is_quick() else ["by hand", "autopilot"]
    keys = {row["key"] for row in experiment.rows}
    broke: list[Check] = []
    if not set(movers) <= keys:
        with prepared(times) as bench:
            by = {"by hand": bench.by_hand, "autopilot": bench.by_itself}
            for name in movers:
                try:
                    experiment.row(name, lambda: bench.series(by[name], times))  # noqa: B023
                except RuntimeError as error:  # the other series is a result all the same
                    broke.append(Check(f"moved, {name}", "moved", str(error)[:500], False))
    rows = {row["key"]: row for row in experiment.rows if row["key"] in movers}
    uplinks_mbps = times.up_mbps * len(sites())
    checks = [check for name, row in rows.items() for check in judge(name, row, uplinks_mbps)]
    return experiment.finish({"series": rows}, [*checks, *broke])


if __name__ == "__main__":
    sys.exit(main())
