"""Why a placement is not what the ranking suggests, job by job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.placement.differences import explain_difference
from speck.placement.filling import Filling
from speck.placement.instance import Instance
from speck.placement.model import Candidate, Flow, Kind, Limits, Load, Place, Problem

FILTER = Candidate("filter", "edge", 5000.0)
STORE = Candidate("store", "edge", 12741.0)


def chain(**edge: object) -> Problem:
    """sensor (edge) -> filter -> store -> out (cloud); each lets half of the bytes through."""
    return Problem(
        loads=(
            Load("sensor", Kind.END, site="edge"),
            Load("filter", core_s_per_record=1e-3, rate=100, site="cloud"),
            Load("store", core_s_per_record=1e-3, rate=50, site="cloud"),
            Load("out", Kind.END, site="cloud"),
        ),
        flows=(
            Flow("sensor", "filter", 100, 10_000),
            Flow("filter", "store", 50, 5_000),
            Flow("store", "out", 25, 2_500),
        ),
        places=(
            Place("edge", "edge", **{"cores": 1.0, **edge}),  # type: ignore[arg-type]
            Place("cloud", "cloud", cores=8, slots=8),
        ),
        ranking=(STORE, FILTER),
    )


def place(filter_at: str, store_at: str) -> dict[str, str]:
    return {"sensor": "edge", "filter": filter_at, "store": store_at, "out": "cloud"}


def explain(problem: Problem, sites: dict[str, str], policy: str = "milp") -> dict[str, str]:
    filling = Filling(Instance(problem), sites)
    sentences = {each.name: explain_difference(filling, each, policy) for each in problem.ranking}
    return {name: sentence for name, sentence in sentences.items() if sentence is not None}


def test_nothing_is_said_of_jobs_that_are_where_the_ranking_wants_them() -> None:
    assert explain(chain(), place("edge", "edge")) == {}
    assert explain(replace(chain(), ranking=()), place("cloud", "cloud")) == {}
    as_good = replace(chain(), ranking=(replace(FILTER, score=0.0),))
    assert explain(as_good, place("cloud", "cloud")) == {}


def test_a_job_whose_input_stays_in_the_cloud_would_send_more() -> None:
    sentences = explain(replace(chain(), ranking=(STORE,)), place("cloud", "cloud"))
    assert sentences == {
        "store": "the ranking suggests edge, but more bytes would be sent between sites if only"
        " this job were there: its input comes from cloud"
    }


@pytest.mark.parametrize(
    ("problem", "reason"),
    [
        (chain(slots=1), "with it at edge, edge would need 2 slots, it has 1"),
        (chain(cores=0.2), "with it at edge, edge would be 75.0% busy"),
        (chain(cores=0.04), "it could not keep up with its input"),
        (
            replace(chain(core_speed=0.5), limits=Limits(max_latency_ms=4.0)),
            "with it at edge, the longest path would take 4.7 ms, 4 ms is allowed",
        ),
    ],
)
def test_a_limit_is_named_with_its_figures(problem: Problem, reason: str) -> None:
    assert reason in explain(problem, place("edge", "cloud"))["store"]


def test_a_latency_that_is_too_long_anyway_is_no_reason() -> None:
    problem = replace(chain(), limits=Limits(max_latency_ms=0.1))
    assert "more bytes would be sent" in explain(problem, place("cloud", "cloud"))["store"]


def test_a_job_that_cannot_move_says_why() -> None:
    loads = tuple(
        replace(load, pinned="cloud") if load.name == "store" else load for load in chain().loads
    )
    sentence = explain(replace(chain(), loads=loads), place("edge", "cloud"))["store"]
    assert sentence.endswith("but it is pinned")


def test_an_edge_that_is_gone_is_named() -> None:
    gone = replace(chain(), ranking=(replace(STORE, edge="moon"),))
    assert "moon is not a registered site" in explain(gone, place("edge", "cloud"))["store"]


def test_a_policy_that_overlooks_a_saving_is_named() -> None:
    sentence = explain(chain(), place("cloud", "cloud"), "all-cloud")["filter"]
    assert "the policy all-cloud does not see that fewer bytes would be sent" in sentence
    assert (
        "this policy moves nothing" in explain(chain(), place("cloud", "cloud"), "stay")["filter"]
    )


def test_a_job_that_costs_as_much_at_either_site() -> None:
    flows = tuple(replace(flow, bytes_per_s=5_000.0) for flow in chain().flows)
    sentence = explain(replace(chain(), flows=flows), place("cloud", "cloud"))["filter"]
    assert sentence.endswith(
        "as many bytes would be sent between sites if only this job were there"
    )


def test_a_job_at_an_edge_that_the_ranking_objects_to() -> None:
    against = Candidate("filter", "edge", -3.0, ("it sends 3 B/s more than it receives",))
    sentence = explain(replace(chain(), ranking=(against,)), place("edge", "edge"))["filter"]
    assert sentence.startswith(
        "the ranking suggests the cloud (it sends 3 B/s more than it receives), but "
    )
    assert "more bytes would be sent between sites if only this job were there" in sentence
