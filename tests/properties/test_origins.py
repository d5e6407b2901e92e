"""Where data enters the system does not depend on where jobs and inner brokers are."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from speck.model.values import JsonObject
from speck.placement.instance import Instance
from speck.placement.model import Flow, Kind, Load, Place, Problem
from speck.placement.ranking import find_origins, rank_loads
from tests.rows_of_jobs import job, rank, site

SEEDS = st.integers(0, 10**6)
SITES = ("cloud", "edge-a", "edge-b", "edge-c")
PLACES = [site(name) for name in SITES]


def make_graph(chance: random.Random) -> list[JsonObject]:
    """Jobs over random links: each reads an input from outside or a link that jobs before it
    write; some links have several writers, some several readers, some are fed from outside, too."""
    inputs = [(chance.choice(SITES), f"in-{n}") for n in range(chance.randint(1, 4))]
    carried = {topic: chance.uniform(100, 9000) for _, topic in inputs}
    sites_of = {topic: at for at, topic in inputs}
    jobs: list[JsonObject] = []
    for layer in range(chance.randint(1, 4)):
        written: dict[str, float] = {}
        for number in range(chance.randint(1, 4)):
            topic = f"mid-{layer}-{chance.randint(0, number)}"
            source = chance.choice(sorted(carried))
            taken = carried[source]
            sent = taken * chance.choice([0.0, 0.1, 0.5, 1.0, 1.5])
            written[topic] = written.get(topic, 0.0) + sent
            jobs.append(
                job(
                    f"job-{layer}-{number}",
                    source_site=sites_of.get(source),
                    source_topic=source,
                    sink_topic=topic,
                    in_rate=taken / 50,
                    bytes_in_rate=taken,
                    out_rate=sent / 50,
                    bytes_out_rate=sent,
                    stateful=chance.choice([True, False, None]),
                    cost=chance.uniform(1e-4, 1e-2),
                )
            )
        if chance.random() < 0.2:  # a job that makes its data up
            topic = chance.choice(sorted(written))
            made = chance.uniform(100, 5000)
            written[topic] += made
            jobs.append(
                job(f"made-{layer}", source_topic=None, sink_topic=topic, bytes_out_rate=made)
            )
        carried |= written
    return jobs


def place(chance: random.Random, jobs: list[JsonObject]) -> list[JsonObject]:
    """The same jobs at random sites, their inner links at random brokers."""
    topics = {row["sink_topic"] for row in jobs}
    brokers = {topic: chance.choice(SITES) for topic in sorted(topics)}
    return [
        {
            **row,
            "site": chance.choice(SITES),
            "source_site": brokers.get(row["source_topic"], row["source_site"]),
            "sink_site": brokers[row["sink_topic"]],
        }
        for row in jobs
    ]


@given(SEEDS)
def test_no_move_changes_an_origin_or_a_rank(seed: int) -> None:
    chance = random.Random(seed)
    jobs = make_graph(chance)
    one, other = (rank(place(chance, jobs), PLACES) for _ in range(2))
    assert [row["job_name"] for row in one] == [row["job_name"] for row in other]
    for before, after in zip(one, other, strict=True):
        for figure in ("rank", "edge", "origins", "score", "wan_bytes_saved_per_s"):
            assert before[figure] == after[figure], figure


@given(SEEDS)
def test_shares_add_up_and_name_no_inner_broker(seed: int) -> None:
    chance = random.Random(seed)
    jobs = make_graph(chance)
    entries = {row["source_site"] for row in jobs if (row["source_topic"] or "").startswith("in-")}
    for row in rank(place(chance, jobs), PLACES):
        shares = [each["share"] for each in row["origins"]]
        assert row["origins"]
        assert None in shares or sum(shares) == pytest.approx(1.0)
        assert {each["site"] for each in row["origins"] if "site" in each} <= entries


def make_problem(chance: random.Random, jobs: list[JsonObject]) -> Problem:
    """The graph as a placement problem, every link a load."""
    topics = {row[end] for row in jobs for end in ("source_topic", "sink_topic")} - {None}
    fed = {row["source_topic"]: row["source_site"] for row in jobs}
    written = {row["sink_topic"] for row in jobs}
    loads = [
        Load(topic, Kind.TOPIC, site=None if topic in written else fed[topic],
             pinned=None if topic in written else fed[topic])
        for topic in sorted(topics)
    ]  # fmt: skip
    flows = []
    for row in jobs:
        cost, rate = row["reference_core_s_per_record"], row["in_rate"]
        loads.append(Load(row["job_name"], core_s_per_record=cost, rate=rate))
        if row["source_topic"] is not None:
            taken = row["bytes_in_rate"]
            flows.append(Flow(row["source_topic"], row["job_name"], taken / 50, taken))
        sent = row["bytes_out_rate"]
        flows.append(Flow(row["job_name"], row["sink_topic"], sent / 50, sent))
    places = tuple(Place(name, "cloud" if name == "cloud" else "edge") for name in SITES)
    return Problem(tuple(loads), tuple(flows), places)


def move(chance: random.Random, problem: Problem) -> Problem:
    """Everything that is not fed from outside elsewhere, some of it pinned there."""
    loads = []
    for load in problem.loads:
        at = chance.choice(SITES)
        pin = at if load.kind is Kind.TOPIC and chance.random() < 0.3 else None
        loads.append(load if load.pinned else replace(load, site=at, pinned=pin))
    return replace(problem, loads=tuple(loads))


@given(SEEDS)
def test_the_ranking_of_a_problem_does_not_depend_on_where_it_runs_either(seed: int) -> None:
    chance = random.Random(seed)
    problem = make_problem(chance, make_graph(chance))
    one, other = (Instance(move(chance, problem)) for _ in range(2))
    assert find_origins(one) == find_origins(other)
    assert rank_loads(one) == rank_loads(other)
