"""The prediction of a placement, beside a simulator that knows nothing of speck's formulas."""

from __future__ import annotations

import heapq
import random
from dataclasses import replace

import pytest

from speck.errors import PermanentError
from speck.placement.evaluate import Prediction, evaluate
from speck.placement.model import Flow, Kind, Limits, Load, Place, Problem

# sensor -> clean (keeps half) -> topic -> two readers, one of which goes on to the cloud
PROBLEM = Problem(
    loads=(
        Load("sensor", Kind.END, site="edge"),
        Load("clean", core_s_per_record=2e-3, rate=200, site="edge"),
        Load("topic", Kind.TOPIC),
        Load("count", core_s_per_record=1e-3, rate=100, slots=2, site="cloud"),
        Load("store", core_s_per_record=3e-3, rate=100, site="cloud"),
        Load("view", Kind.END, site="cloud"),
    ),
    flows=(
        Flow("sensor", "clean", 200, 20_000),
        Flow("clean", "topic", 100, 10_000),
        Flow("topic", "count", 100, 10_000),
        Flow("topic", "store", 100, 10_000),
        Flow("count", "view", 10, 500),
    ),
    places=(
        Place("edge", "edge", cores=2, core_speed=0.5, slots=3, uplink=30_000, latency_ms=8),
        Place("cloud", "cloud", cores=4, core_speed=1, slots=8, latency_ms=2, busy=0.2),
    ),
)
SITES = {
    "sensor": "edge",
    "clean": "edge",
    "topic": "edge",
    "count": "cloud",
    "store": "cloud",
    "view": "cloud",
}


class Simulated:
    """Records of one sensor run through the graph, one by one, for a while.

    Every subtask is a queue of its own with exponential service times; a site is nothing but
    its pace. Counts busy seconds by site, bytes by pair of sites, and times of records at ends.
    """

    def __init__(self, problem: Problem, sites: dict[str, str], seconds: float, seed: int):
        self.problem, self.sites, self.chance = problem, sites, random.Random(seed)
        self.place = {place.name: place for place in problem.places}
        self.load = {load.name: load for load in problem.loads}
        self.free = {load.name: [0.0] * load.slots for load in problem.loads}
        self.busy = dict.fromkeys(self.place, 0.0)
        self.crossed = dict.fromkeys(self.place, 0.0)
        self.stayed: dict[str, list[float]] = {load.name: [] for load in problem.loads}
        self.seconds = seconds
        self.queue: list[tuple[float, int, str, float]] = []
        self.count = 0
        flows = problem.flows
        self.rates_in = {
            load.name: sum(flow.records_per_s for flow in flows if flow.end == load.name)
            for load in problem.loads
        }
        rate = self.rates_in["sensor"] = 200.0
        now = 0.0
        while (now := now + self.chance.expovariate(rate)) < seconds:
            self.push(now, "sensor", now)
        while self.queue:
            self.step()

    def push(self, at: float, name: str, born: float) -> None:
        self.count += 1
        heapq.heappush(self.queue, (at, self.count, name, born))

    def step(self) -> None:
        at, _, name, born = heapq.heappop(self.queue)
        load, place = self.load[name], self.place[self.sites[name]]
        if load.kind is Kind.JOB:
            cost = self.chance.expovariate(1 / (load.core_s_per_record or 1.0))
            subtask = self.count % load.slots
            begins = max(at, self.free[name][subtask])
            at = self.free[name][subtask] = begins + cost / place.core_speed
            self.busy[place.name] += cost
        self.stayed[name].append(at - born)
        rate = self.rates_in[name]
        for flow in self.problem.flows:
            if flow.start != name or self.chance.random() >= flow.records_per_s / rate:
                continue
            other = self.place[self.sites[flow.end]]
            if other is not place:
                self.crossed[place.name] += flow.bytes_per_s / flow.records_per_s
            far = place.latency_ms + other.latency_ms if other is not place else 0.0
            self.push(at + far / 1000, flow.end, born)


@pytest.mark.parametrize(
    "moved", [{}, {"topic": "cloud"}, {"clean": "cloud", "topic": "cloud"}, {"count": "edge"}]
)
def test_it_is_what_a_simulator_sees(moved: dict[str, str]) -> None:
    sites = {**SITES, **moved}
    seconds = 300.0
    simulation, prediction = Simulated(PROBLEM, sites, seconds, seed=1), evaluate(PROBLEM, sites)
    crossed = sum(simulation.crossed.values()) / seconds
    assert prediction.wan_bytes_per_s == pytest.approx(crossed, rel=0.03)
    for place in PROBLEM.places:
        work = simulation.busy[place.name] / seconds + place.busy
        assert prediction.utilisation[place.name] == pytest.approx(work / place.capacity, rel=0.03)
        assert prediction.sent[place.name] == pytest.approx(
            simulation.crossed[place.name] / seconds, rel=0.03, abs=1e-9
        )
    mean = {
        name: 1000 * sum(times) / len(times) for name, times in simulation.stayed.items() if times
    }
    assert prediction.latency_ms == pytest.approx(max(mean.values()), rel=0.05)


def test_figures_by_hand() -> None:
    prediction = evaluate(PROBLEM, SITES)
    assert prediction.wan_bytes_per_s == prediction.objective == 20_000  # to both readers
    assert prediction.sent == {"edge": 20_000, "cloud": 0}
    assert prediction.utilisation == {"edge": pytest.approx(0.4), "cloud": pytest.approx(0.15)}
    assert prediction.slots == {"edge": 1, "cloud": 3}
    assert prediction.path == ("sensor", "clean", "topic", "store")
    # 2 ms at half pace, 80 % busy: 4 / 0.2; the way; 3 ms 30 % busy: 3 / 0.7
    assert prediction.latency_ms == pytest.approx(20 + 10 + 3 / 0.7)
    # the subtask of clean could take 250 a second; the uplink 300; the processors more
    assert prediction.max_rate == pytest.approx(250)
    assert prediction.held_by == "the subtasks of clean at edge"
    assert prediction.moves == ()
    assert prediction.violations == ()
    together = evaluate(PROBLEM, {**SITES, "topic": "cloud"})
    assert together.wan_bytes_per_s == 10_000


def test_what_holds_the_rate_is_named() -> None:
    edge, cloud = PROBLEM.places
    narrow = replace(PROBLEM, places=(replace(edge, uplink=21_000), cloud))
    prediction = evaluate(narrow, SITES)
    assert (prediction.max_rate, prediction.held_by) == (pytest.approx(210), "the uplink of edge")
    full = replace(PROBLEM, places=(edge, replace(cloud, busy=3.6)))
    prediction = evaluate(full, {**SITES, "clean": "cloud"})
    assert (prediction.max_rate, prediction.held_by) == (
        pytest.approx(100),
        "the processor of cloud",
    )


def test_latency_has_a_price_where_it_is_asked_for() -> None:
    priced = replace(PROBLEM, limits=Limits(latency_weight=7.0))
    assert evaluate(priced, SITES).objective == 20_000 + 2 * 7 * 10


def test_limits_that_are_passed_are_told_with_figures() -> None:
    edge, cloud = PROBLEM.places
    problem = replace(
        PROBLEM,
        places=(replace(edge, slots=0, uplink=15_000), replace(cloud, busy=2.7)),
        limits=Limits(max_latency_ms=20, min_rate=300),
    )
    assert evaluate(problem, SITES).violations == (
        "slots: edge would need 1 slot, it has 0",
        "uplink: edge would send 30000 bytes/s at min_rate 300 records/s, its uplink takes 15000",
        "utilisation: cloud would be 82.5% busy at min_rate 300 records/s (3.3 of 4 core-seconds "
        "a second), 70% is allowed",
        "speed: clean at edge would need 0.6 core-seconds a second at min_rate 300 records/s, its "
        "subtasks can use 0.5",
        "latency: the path sensor -> clean -> topic -> store would take 34.3 ms, 20 ms is allowed",
    )


def test_too_little_memory_is_a_violation_in_words() -> None:
    """Measured jobs need what they were measured to; others 10 MB a slot, topics nothing."""
    (edge, cloud) = PROBLEM.places
    places = (replace(edge, memory_bytes=512e6), replace(cloud, memory_bytes=30e6))
    loads = tuple(
        replace(x, memory_bytes=620e6 if x.name == "clean" else None) for x in PROBLEM.loads
    )
    problem = replace(PROBLEM, loads=loads, places=places)
    prediction = evaluate(problem, SITES)
    assert prediction.violations == ("memory: jobs at edge need 620 MB, 512 MB are free",)
    assert prediction.memory == {"edge": 620e6, "cloud": 30e6}
    over = replace(problem, places=(replace(edge, memory_bytes=-1e6), cloud))
    assert evaluate(over, SITES).violations == ("memory: jobs at edge need 620 MB, 0 MB are free",)
    enough = replace(problem, places=(replace(edge, memory_bytes=620e6), cloud))
    assert evaluate(enough, SITES).violations == ()


def test_a_job_that_was_not_measured_leaves_a_gap_and_no_zero() -> None:
    loads = tuple(replace(x, core_s_per_record=None, rate=None) for x in PROBLEM.loads)
    prediction = evaluate(replace(PROBLEM, loads=loads), SITES)
    assert prediction.latency_ms is None
    assert prediction.notes == (
        "left out of the figures for lack of measurements: clean, count, store",
    )
    nothing = evaluate(
        Problem(loads[:1], (), PROBLEM.places, Limits(min_rate=5)), {"sensor": "edge"}
    )
    assert nothing == Prediction(
        wan_bytes_per_s=0,
        objective=0,
        utilisation={"edge": 0.0, "cloud": pytest.approx(0.05)},
        cores={"edge": 0.0, "cloud": pytest.approx(0.2)},
        sent={"edge": 0, "cloud": 0},
        slots={"edge": 0, "cloud": 0},
        memory={"edge": 0, "cloud": 0},
        notes=("min_rate was not checked: the input rate of the composition is unknown",),
    )


def test_a_load_without_a_site_is_refused() -> None:
    with pytest.raises(PermanentError, match="store is at no site, which is none of edge, cloud"):
        evaluate(PROBLEM, {name: site for name, site in SITES.items() if name != "store"})
