"""Problems of placement of a given size: compositions like compositions/traffic, and random DAGs.

Sites: one cloud and edges of unlike speed (core speed 0.25, 0.5 or 1; 2 or 4 cores), each with an
uplink that takes 85 to 100 % of what its sensors send, or what `bottom-up` sends if that is more,
and slots for a part of the jobs.
"""

from __future__ import annotations

import random
from dataclasses import replace

from speck.placement.evaluate import evaluate
from speck.placement.model import Flow, Kind, Limits, Load, Place, Problem
from speck.placement.policies import find_policy

SIZE = 120.0
"""Bytes of a message, as a MQTT packet."""


def traffic(jobs: int, sites: int, seed: int = 0) -> Problem:
    """The paper's application (section 4.2), with as many streams as make so many jobs.

    At each edge streams are cleaned (selectivity 0.5 to 0.95) into one topic, which one job
    forwards and another boils down to statistics (0.02); one job in the cloud merges all.
    """
    chance = random.Random(f"traffic {jobs} {sites} {seed}")
    edges = [f"edge-{index}" for index in range(sites - 1)]
    groups = min(len(edges), (jobs - 1) // 3)
    streams = jobs - 1 - 2 * groups
    loads: list[Load] = [Load("merged", Kind.END, site="cloud")]
    flows: list[Flow] = []
    into_merge = 0.0
    for group in range(groups):
        count = streams // groups + (group >= groups - streams % groups)
        edge, passed = edges[group], 0.0
        clean = f"{edge}/clean"
        for stream in range(count):
            rate, selectivity = chance.uniform(50, 400), chance.uniform(0.5, 0.95)
            name = f"clean-{group}-{stream}"
            loads += [Load(f"in-{group}-{stream}", Kind.END, site=edge)]
            loads += [_job(chance, name, 2e-4, rate, stateful=False)]
            flows += [
                _flow(f"in-{group}-{stream}", name, rate),
                _flow(name, clean, rate * selectivity),
            ]
            passed += rate * selectivity
        loads += [Load(clean, Kind.TOPIC, site="cloud")]
        loads += [_job(chance, f"forward-{group}", 1e-4, passed, stateful=False)]
        loads += [_job(chance, f"stats-{group}", 3e-4, passed, stateful=True)]
        flows += [_flow(clean, f"forward-{group}", passed), _flow(clean, f"stats-{group}", passed)]
        flows += [_flow(f"forward-{group}", "merge", passed)]
        loads += [Load(f"local-{group}", Kind.END, site=edge)]
        flows += [_flow(f"stats-{group}", f"local-{group}", passed * 0.02)]
        into_merge += passed
    loads += [_job(chance, "merge", 1e-4, into_merge, stateful=True)]
    flows += [_flow("merge", "merged", into_merge * 0.1)]
    return _problem(chance, edges, loads, flows)


def random_dag(jobs: int, sites: int, seed: int = 0) -> Problem:
    """Each job reads one or two jobs or sensors before it; selectivity 0.05 to 1.2."""
    chance = random.Random(f"dag {jobs} {sites} {seed}")
    edges = [f"edge-{index}" for index in range(sites - 1)]
    loads: list[Load] = [Load("out", Kind.END, site="cloud")]
    flows: list[Flow] = []
    sends: dict[str, float] = {}
    for index in range(max(1, jobs // 3)):
        loads += [Load(f"in-{index}", Kind.END, site=chance.choice(edges))]
        sends[f"in-{index}"] = chance.uniform(50, 500)
    unread = list(sends)
    for index in range(jobs):
        name, rate = f"job-{index}", 0.0
        feeders = {unread.pop(0)} if unread else set()
        feeders |= set(chance.sample(sorted(sends), k=chance.randint(0 if feeders else 1, 1)))
        for feeder in sorted(feeders):
            flows += [_flow(feeder, name, sends[feeder])]
            rate += sends[feeder]
        loads += [_job(chance, name, 2e-4, rate, stateful=chance.random() < 0.3)]
        sends[name] = rate * chance.uniform(0.05, 1.2)
        if chance.random() < 0.5:
            unread.append(name)
    read = {flow.start for flow in flows}
    flows += [_flow(name, "out", rate) for name, rate in sends.items() if name not in read]
    return _problem(chance, edges, loads, flows)


def _job(chance: random.Random, name: str, cost: float, rate: float, *, stateful: bool) -> Load:
    each = cost * chance.uniform(0.5, 2)
    # as many subtasks as keep up with the rate on cores of speed 1 that are half busy
    slots = 1 + int(each * rate / 0.5)
    return Load(
        name, core_s_per_record=each, rate=rate, slots=slots, site="cloud", stateful=stateful
    )


def _flow(start: str, end: str, rate: float) -> Flow:
    return Flow(start, end, rate, rate * SIZE)


def _problem(
    chance: random.Random, edges: list[str], loads: list[Load], flows: list[Flow]
) -> Problem:
    """Uplinks bind, but never more than that a placement is left: what `bottom-up` sends fits."""
    places = _places(chance, edges, loads)
    free = Problem(tuple(loads), tuple(flows), places, Limits())
    needed = evaluate(free, find_policy("bottom-up").place(free).sites).sent
    sensed = {load.name: load.site for load in loads if load.kind is Kind.END}
    bound = []
    for place in places:
        sent = sum(flow.bytes_per_s for flow in flows if sensed.get(flow.start) == place.name)
        uplink = max(sent * chance.uniform(0.85, 1.0), 1.02 * needed[place.name])
        bound.append(replace(place, uplink=uplink) if place.tier == "edge" else place)
    return replace(free, places=tuple(bound))


def _places(chance: random.Random, edges: list[str], loads: list[Load]) -> tuple[Place, ...]:
    jobs = [load for load in loads if load.kind is Kind.JOB]
    slots = sum(load.slots for load in jobs)
    work = sum(load.work or 0.0 for load in jobs)
    places = [Place("cloud", "cloud", cores=max(4.0, 1.5 * work), slots=slots, latency_ms=2)]
    for edge in edges:
        places.append(
            Place(
                edge,
                "edge",
                cores=chance.choice([2.0, 4.0]),
                core_speed=chance.choice([0.25, 0.5, 1.0]),
                slots=max(2, int(1.2 * slots / len(edges))),
                latency_ms=chance.uniform(5, 30),
            )
        )
    return tuple(places)
