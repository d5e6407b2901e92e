"""Figures 7, 9 and 10 of the SpecK paper: the traffic application in the fog and in the cloud.

Three edges, each engine with a small board's share of a core, behind uplinks of a WAN, and a cloud.
The paper's two deployments, its 17 jobs in the fog (fog.yaml) and in the cloud (cloud.yaml), and,
one in which the merge is a hop nearer (fog-direct.yaml) and fog.yaml with batches
on the uplinks (`link` of the forward jobs). All are fed alike, at several rates:

- D = (100/F)(F - C), F and C the detections in the results of the fog's and the cloud's job that
  had come to their readers within the run's time. Job 3 (local statistics) is read at its edge
  wherever it runs, since it serves the site; Job 4 (merge) is read in the cloud.
- Latency of a result: from the publication of the message that completed its window, by the feed's
  own log (bench/detections.py), to its arrival at that reader.
- What crosses each uplink, by the kernel's word; CPU of each site and of the machine. Runs above
  70 % of the machine are marked and not judged.

    python -m bench.traffic     30 minutes, goes on where it was; as root on Linux
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass

from bench.common import say
from bench.experiment import Experiment, is_quick
from bench.traffic_hops import hops
from bench.traffic_run import CHECKPOINT_S, CLOUD, WINDOW_MS, Bench, prepared
from bench.traffic_summary import MOST_CPU, checks, summary
from speck.fog.wan import Uplink
from speck.model.values import JsonObject

SPEED, CLOUD_SPEED = 0.25, 0.7
"""Of a core, for an engine. An edge does 3 of the 12 jobs' work that a detection of each site costs
and has a third of what the cloud has. All at their quota take 1.45 of two cores: such a run is
above 70 % of the machine, and not judged."""
SPEEDS = {"edge-a": SPEED, "edge-b": SPEED, "edge-c": SPEED, CLOUD: CLOUD_SPEED}
LATENCY_MS = 9.3
BATCHES = {"batch_records": 200, "linger_ms": 50, "compression": "zstd"}


@dataclass(frozen=True, slots=True)
class Variant:
    """A deployment: its file, and how its forward jobs send over the uplink when it is not record
    by record."""

    file: str
    forward_link: JsonObject | None = None


DEPLOYMENTS = {
    "fog": Variant("fog.yaml"),
    "cloud": Variant("cloud.yaml"),
    "fog-direct": Variant("fog-direct.yaml"),
    "fog-batched": Variant("fog.yaml", forward_link=BATCHES),
}
SIMULATED = (
    f"An edge's engine may use {SPEED} of a core by a CPU quota, the cloud's {CLOUD_SPEED}: a small"
    " board against a server; the shares are set, not measured on a board; brokers have no quota.",
    "All sites are network namespaces of one machine, their uplinks shaped by tc, latency by a"
    " delay element on a TUN device.",
    "Detections are those of the trace (simulated with SUMO), republished at set rates with times"
    " of now; the malformed ones are left out.",
)


@dataclass(frozen=True, slots=True)
class Point:
    """One rate over one kind of uplink: ms between two messages of a site, Mb/s of an edge."""

    interval_ms: float
    up_mbps: float
    down_mbps: float = 10.0

    def __str__(self) -> str:
        return f"{self.interval_ms:g}ms/{self.up_mbps:g}Mbps"

    @property
    def uplink(self) -> Uplink:
        return Uplink(self.up_mbps, self.down_mbps, LATENCY_MS)


@dataclass(frozen=True, slots=True)
class Plan:
    """How much is measured: the points, in each round of each deployment, and for how long."""

    points: tuple[Point, ...]
    deployments: tuple[str, ...]
    rounds: int
    lead_s: float
    seconds: float


FULL = Plan(
    (Point(20, 2), Point(10, 2), Point(5, 2), Point(2.5, 2), Point(10, 0.1)),
    tuple(DEPLOYMENTS),
    rounds=5,
    lead_s=3.0,
    seconds=12.0,
)
QUICK = Plan((Point(20, 2), Point(10, 0.1)), ("fog", "cloud"), rounds=1, lead_s=1.0, seconds=3.0)


class Runs:
    """The fog, brought up when there is something to measure."""

    def __init__(self, experiment: Experiment, plan: Plan) -> None:
        self._experiment, self._plan = experiment, plan
        self._stack = ExitStack()
        self._bench: Bench | None = None

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def all(self) -> None:
        """Every row: rounds of all deployments in turn, each at all points."""
        for number in range(self._plan.rounds):
            names = self._plan.deployments
            for name in names if number % 2 == 0 else reversed(names):
                self._round(number, name)

    def _keys(self, number: int, name: str) -> Iterator[tuple[str, Point]]:
        for point in self._plan.points:
            yield f"{name} {point} #{number + 1}", point

    def _round(self, number: int, name: str) -> None:
        keys = {row["key"] for row in self._experiment.rows}
        round_keys = [key for key, _ in self._keys(number, name)]
        variant, hop_key = DEPLOYMENTS[name], f"{name} hops"
        look_at_hops = number == 0 and variant.forward_link is None  # taps read no batches
        if look_at_hops:
            round_keys.append(hop_key)
        if keys.issuperset(round_keys):
            return
        bench = self._fog()
        with bench.deployed(variant.file, variant.forward_link) as deployment:
            first, warm_s = self._plan.points[0], 2 * self._plan.lead_s
            bench.shape(first.uplink)
            deployment.run(first.interval_ms, 0.0, warm_s)  # what runs first is compiled first
            for key, point in self._keys(number, name):
                bench.shape(point.uplink)

                def measure(point: Point = point) -> JsonObject:
                    row = deployment.run(point.interval_ms, self._plan.lead_s, self._plan.seconds)
                    return {"deployment": name, "point": str(point), **asdict(point), **row}

                report_run(self._experiment.row(key, measure))
            if look_at_hops:  # last: by then what is used is compiled
                bench.shape(first.uplink)
                seconds = self._plan.seconds / 2
                self._experiment.row(
                    hop_key,
                    lambda: {"deployment": name, **hops(deployment, first.interval_ms, seconds)},
                )

    def _fog(self) -> Bench:
        if self._bench is None:
            first = self._plan.points[0].uplink
            self._bench = self._stack.enter_context(prepared(SPEEDS, first))
        return self._bench


def report_run(row: JsonObject) -> None:
    """One line about a run."""
    three, four = row["job3"], row["job4"]
    machine = row["cpu"]["machine"]
    say(
        f"  machine {machine:.0%}{' SATURATED' if machine > MOST_CPU else ''}, Job 3"
        f" {three['processed']}/{three['offered']} p95 {three['p95_ms']} ms, Job 4"
        f" {four['processed']}/{four['offered']} p50 {four['p50_ms']} p95 {four['p95_ms']} ms,"
        f" lost {row['lost']}"
    )


def main() -> int:
    """Measure what is missing, judge all; 0 only when every check that is judged holds."""
    plan = QUICK if is_quick() else FULL
    settings = {
        "speeds": SPEEDS,
        "latency_ms": LATENCY_MS,
        "window_ms": WINDOW_MS,
        "checkpoint_s": CHECKPOINT_S,
        "lead_s": plan.lead_s,
        "seconds": plan.seconds,
        "batches_of_fog_batched": BATCHES,
    }
    experiment = Experiment("traffic", settings, simulated=SIMULATED)
    with Runs(experiment, plan) as runs:
        runs.all()
    keys = [str(point) for point in plan.points]
    rows = [row for row in experiment.rows if "point" in row and row["point"] in keys]
    result = summary(rows, [row for row in experiment.rows if "hops" in row])
    return experiment.finish(result, checks(rows, result, enough=not is_quick()))


if __name__ == "__main__":
    sys.exit(main())
