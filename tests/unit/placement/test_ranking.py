"""The ranking of a problem: the analysis's, or one by the same formula."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.placement.instance import Instance
from speck.placement.model import Candidate, Flow, Kind, Load, Place, Problem
from speck.placement.ranking import find_origins, rank_loads

CLOUD, EDGE_A, EDGE_B = (
    Place("cloud", "cloud", cores=4),
    Place("edge-a", "edge", cores=4, core_speed=0.5),
    Place("edge-b", "edge", cores=4),
)


def job(name: str, rate: float = 100.0, cost: float = 1e-3, stateful: bool | None = False) -> Load:
    return Load(name, core_s_per_record=cost, rate=rate, site="cloud", stateful=stateful)


def fed(*jobs: tuple[Load, float]) -> Problem:
    """Jobs that take 5000 bytes/s from a sensor at edge-a, and save so many of them."""
    loads = [Load("in", Kind.END, site="edge-a"), Load("out", Kind.END, site="cloud")]
    flows = []
    for load, saved in jobs:
        loads.append(load)
        flows += [Flow("in", load.name, 100, 5000), Flow(load.name, "out", 100, 5000 - saved)]
    return Problem(tuple(loads), tuple(flows), (CLOUD, EDGE_A, EDGE_B))


def test_by_bytes_saved_for_each_core_second_of_the_edge() -> None:
    """The figures of tests/services/analyzer/test_ranking.py, which the analyzer computes."""
    jobs = ((job("dear", cost=0.01), 4000), (job("cheap"), 1000), (job("wider"), -200))
    ranking = rank_loads(Instance(fed(*jobs)))
    assert [each.name for each in ranking] == ["cheap", "dear", "wider"]
    assert ranking[0].score == pytest.approx(1000 / 0.2)
    assert {each.edge for each in ranking} == {"edge-a"}


def test_on_ties_those_without_state_come_first() -> None:
    ranking = rank_loads(
        Instance(
            fed(
                (job("keeps", stateful=True), 1005),
                (job("unknown", stateful=None), 1003),
                (job("keeps-not"), 1000),
                (job("less"), 900),
                (job("much-more", stateful=True), 2000),
            )
        )
    )
    names = [each.name for each in ranking]
    assert names == ["much-more", "keeps-not", "unknown", "keeps", "less"]


def test_input_from_another_edge_crosses_either_way_and_from_the_cloud_only_there() -> None:
    loads = (
        Load("a", Kind.END, site="edge-a"),
        Load("b", Kind.END, site="edge-b"),
        Load("c", Kind.END, site="cloud"),
        job("merge"),
    )
    inputs = (Flow("a", "merge", 1, 500), Flow("b", "merge", 1, 300), Flow("c", "merge", 1, 200))
    instance = Instance(Problem(loads, inputs, (CLOUD, EDGE_A, EDGE_B)))
    assert find_origins(instance)["merge"] == {"edge-a": 0.5, "edge-b": 0.3, None: 0.2}
    (merge,) = rank_loads(instance)
    assert (merge.edge, merge.score) == ("edge-a", pytest.approx((500 - 200) / 0.2))


def test_a_job_without_evidence_has_no_score_and_comes_last() -> None:
    ranking = rank_loads(Instance(fed((Load("new", site="cloud"), 9000), (job("known"), -1))))
    assert [(each.name, each.score is None) for each in ranking] == [
        ("known", False),
        ("new", True),
    ]


def test_the_ranking_of_the_analysis_comes_first() -> None:
    problem = fed((job("one"), 2000), (job("two"), 1000))
    given = (Candidate("two", "edge-a", 7.0), Candidate("gone", "edge-a", 3.0))
    assert rank_loads(Instance(replace(problem, ranking=given))) == given[:1]
