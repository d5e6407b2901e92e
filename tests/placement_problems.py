"""Problems for tests of placement: random ones, and all answers to a small one."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from speck.placement.instance import Instance
from speck.placement.model import Flow, Kind, Limits, Load, Place, Problem


def random_problem(seed: int) -> Problem:
    """Up to 6 jobs and a topic on up to 4 sites, with limits that bind more often than not."""
    chance = random.Random(seed)
    places = tuple(_place(chance, index) for index in range(chance.randint(2, 4)))
    names = [place.name for place in places]
    jobs = [_job(chance, index, names) for index in range(chance.randint(2, 6))]
    ends = [
        Load(f"in-{index}", Kind.END, site=chance.choice(names))
        for index in range(chance.randint(1, 3))
    ]
    ends.append(Load("out", Kind.END, site="cloud"))
    flows = []
    for index, job in enumerate(jobs):
        feeders = [end.name for end in ends[:-1]] + [other.name for other in jobs[:index]]
        for start in chance.sample(feeders, k=min(len(feeders), chance.randint(1, 2))):
            flows.append(_flow(chance, start, job.name))
    fed = {flow.start for flow in flows}
    flows += [_flow(chance, job.name, "out") for job in jobs if job.name not in fed]
    topics: tuple[Load, ...] = ()
    kind = chance.random()
    if kind < 0.35:
        flows, topics = _through_topic(chance, flows, names)
    elif kind < 0.7:
        flows, topics = _into_topic(chance, flows, names)
    limits = Limits(
        utilisation=chance.choice([0.7, 0.9]),
        max_latency_ms=chance.choice([None, None, chance.uniform(20, 120)]),
        min_rate=chance.choice([None, None, chance.uniform(100, 1500)]),
        latency_weight=chance.choice([0.0, 0.0, 100.0]),
    )
    return Problem((*ends, *jobs, *topics), tuple(flows), places, limits)


def _place(chance: random.Random, index: int) -> Place:
    if index == 0:
        return Place(
            "cloud",
            "cloud",
            cores=chance.choice([2.0, 8.0]),
            slots=chance.choice([None, 3, 8]),
            latency_ms=chance.uniform(0, 5),
            busy=chance.choice([0.0, 0.5]),
        )
    return Place(
        f"edge-{index}",
        "edge",
        cores=chance.choice([0.5, 1.0, 4.0]),
        core_speed=chance.choice([0.25, 0.5, 1.0]),
        slots=chance.choice([None, 1, 2, 4]),
        uplink=chance.choice([None, None, chance.uniform(1e4, 3e5)]),
        latency_ms=chance.uniform(1, 30),
    )


def _job(chance: random.Random, index: int, sites: list[str]) -> Load:
    measured = chance.random() > 0.1
    return Load(
        f"job-{index}",
        core_s_per_record=chance.uniform(5e-5, 1e-3) if measured else None,
        rate=chance.uniform(100, 500) if measured else None,
        slots=chance.choice([1, 1, 2]),
        site=chance.choice(sites),
        pinned=chance.choice([None, None, None, None, chance.choice(sites)]),
        stateful=chance.choice([None, True, False]),
    )


def _flow(chance: random.Random, start: str, end: str) -> Flow:
    rate = chance.uniform(50, 500)
    return Flow(start, end, rate, rate * chance.uniform(50, 400))


def _through_topic(
    chance: random.Random, flows: list[Flow], sites: list[str]
) -> tuple[list[Flow], tuple[Load, ...]]:
    """All that one load sends goes to a topic of its own, from there to each reader."""
    start = chance.choice(flows).start
    own = [flow for flow in flows if flow.start == start]
    rest = [flow for flow in flows if flow.start != start]
    rate, size = own[0].records_per_s, own[0].bytes_per_s
    sent = [Flow("topic", flow.end, rate, size) for flow in own]
    topic = Load("topic", Kind.TOPIC, site=chance.choice(sites))
    return [*rest, Flow(start, "topic", rate, size), *sent], (topic,)


def _into_topic(
    chance: random.Random, flows: list[Flow], sites: list[str]
) -> tuple[list[Flow], tuple[Load, ...]]:
    """All that one load takes comes from a topic of its own, that it may lag behind."""
    end = chance.choice(flows).end
    own = [flow for flow in flows if flow.end == end]
    rest = [flow for flow in flows if flow.end != end]
    share = chance.choice([1.0, 0.9])
    rate, size = (
        share * sum(flow.records_per_s for flow in own),
        share * sum(flow.bytes_per_s for flow in own),
    )
    sent = [Flow(flow.start, "topic", flow.records_per_s, flow.bytes_per_s) for flow in own]
    topic = Load("topic", Kind.TOPIC, site=chance.choice(sites))
    return [*rest, *sent, Flow("topic", end, rate, size)], (topic,)


def limit_memory(problem: Problem, seed: int) -> Problem:
    """The problem with memory that often does not suffice."""
    chance = random.Random(f"memory {seed}")
    loads = tuple(
        replace(load, memory_bytes=chance.choice([None, chance.uniform(5e6, 80e6)]))
        for load in problem.loads
    )
    places = tuple(
        replace(place, memory_bytes=chance.choice([None, 0.0, chance.uniform(1e7, 2e8)]))
        for place in problem.places
    )
    return replace(problem, loads=loads, places=places)


def every_answer(problem: Problem) -> Iterator[dict[str, str]]:
    """All placements that keep what cannot move where it is."""
    instance = Instance(problem)
    names = [place.name for place in problem.places]
    for sites in product(names, repeat=len(instance.movable)):
        yield {**instance.fixed_sites, **dict(zip(instance.movable, sites, strict=True))}


TREE = Problem(
    loads=(
        *(Load(f"in-{n}", Kind.END, site=f"edge-{n}") for n in (1, 2)),
        *(Load(f"clean-{n}", core_s_per_record=1e-3, rate=200, site="cloud") for n in (1, 2)),
        *(Load(f"stats-{n}", core_s_per_record=1e-3, rate=100, site="cloud") for n in (1, 2)),
        Load("merge", core_s_per_record=1e-3, rate=20, site="cloud"),
        Load("out", Kind.END, site="cloud"),
    ),
    flows=(
        *tuple(
            flow
            for n in (1, 2)
            for flow in (
                Flow(f"in-{n}", f"clean-{n}", 200, 20000),
                Flow(f"clean-{n}", f"stats-{n}", 100, 10000),
                Flow(f"stats-{n}", "merge", 10, 1000),
            )
        ),
        Flow("merge", "out", 20, 2000),
    ),
    places=(
        Place("cloud", "cloud", cores=4, slots=5),
        Place("edge-1", "edge", cores=1, slots=2),
        Place("edge-2", "edge", cores=1, slots=1),
    ),
    limits=Limits(),
)
