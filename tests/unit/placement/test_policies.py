"""What all policies keep to, whatever their idea."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest

from speck.errors import InvalidError, PermanentError
from speck.placement.instance import Instance
from speck.placement.model import Candidate, Flow, Kind, Load, Place, Placement, Problem
from speck.placement.names import IDEAS, list_policies
from speck.placement.policies import find_policy
from tests.placement_problems import TREE, random_problem

SEEDS = range(25)


@cache
def place_by(name: str, seed: int) -> Placement:
    return find_policy(name).place(random_problem(seed))


@pytest.mark.parametrize("name", list_policies())
def test_what_cannot_move_stays_and_all_else_is_placed(name: str) -> None:
    for seed in SEEDS:
        problem, placement = random_problem(seed), place_by(name, seed)
        assert list(placement.sites) == [load.name for load in problem.loads]
        assert set(placement.reasons) == set(placement.sites)
        for load in problem.loads:
            fixed = load.kind is Kind.END or (load.kind is Kind.JOB and load.work is None)
            if load.pinned is not None:
                assert placement.sites[load.name] == load.pinned
            elif fixed:
                assert placement.sites[load.name] == load.site


@pytest.mark.parametrize("name", list_policies())
def test_what_is_said_to_be_feasible_is_by_a_count_of_its_own(name: str) -> None:
    feasible = 0
    for seed in SEEDS:
        problem, placement = random_problem(seed), place_by(name, seed)
        assert placement.objective == pytest.approx(bytes_between(problem, placement.sites))
        if placement.feasible:
            feasible += 1
            assert_kept(problem, placement.sites)
    assert feasible


def bytes_between(problem: Problem, sites: object) -> float:
    at = dict(sites)  # type: ignore[call-overload]
    far = {place.name: place.latency_ms for place in problem.places}
    total = 0.0
    for flow in problem.flows:
        a, b = at[flow.start], at[flow.end]
        if a != b:
            total += flow.bytes_per_s + problem.limits.latency_weight * (far[a] + far[b])
    return total


def assert_kept(problem: Problem, sites: object) -> None:
    """Slots, processors and uplinks, at the rate that is asked for."""
    at = dict(sites)  # type: ignore[call-overload]
    sensed = sum(flow.records_per_s for flow in problem.flows if flow.start.startswith("in-"))
    scale = max(1.0, (problem.limits.min_rate or 0.0) / sensed)
    for place in problem.places:
        here = [x for x in problem.loads if at[x.name] == place.name and x.kind is Kind.JOB]
        work = scale * sum(x.work or 0.0 for x in here)
        assert place.slots is None or sum(x.slots for x in here) <= place.slots
        if work:
            allowed = problem.limits.utilisation * place.cores * place.core_speed
            assert work + place.busy <= allowed * (1 + 1e-5)
        sent = sum(
            flow.bytes_per_s
            for flow in problem.flows
            if at[flow.start] == place.name and at[flow.end] != place.name
        )
        assert place.uplink is None or scale * sent <= place.uplink * (1 + 1e-5)


@pytest.mark.parametrize("name", list_policies())
def test_the_same_problem_gives_the_same_placement(name: str) -> None:
    for seed in range(10):
        assert find_policy(name).place(random_problem(seed)) == place_by(name, seed)


@pytest.mark.parametrize("name", list_policies())
def test_no_policy_beats_the_exact_one(name: str) -> None:
    for seed in SEEDS:
        best, placement = place_by("milp", seed), place_by(name, seed)
        if placement.feasible:
            assert best.feasible
            assert placement.objective is not None and best.objective is not None
            assert placement.objective >= best.objective * (1 - 2e-6)


def test_greedy_never_costs_more_than_all_in_the_cloud() -> None:
    count = 0
    for seed in range(200):
        problem = random_problem(seed)
        cloud, placement = (
            find_policy("all-cloud").place(problem),
            find_policy("greedy").place(problem),
        )
        assert cloud.objective is not None and placement.objective is not None
        if cloud.feasible and placement.feasible:
            count += 1
            assert placement.objective <= cloud.objective + 1e-6
    assert count > 10


# Two edges with a sensor each, a chain of two jobs behind each, one job that joins them.
@pytest.mark.parametrize(
    ("name", "sites"),
    [
        ("all-cloud", "cloud cloud cloud cloud cloud"),
        ("all-edge", "edge-1 edge-2 edge-1 edge-2 edge-1"),  # three slots for five jobs
        ("bottom-up", "edge-1 edge-2 edge-1 cloud cloud"),
        ("greedy", "edge-1 edge-2 edge-1 cloud cloud"),
        # stats save more for their work than clean, which feeds them: edge-2 has room for one job
        ("ranked", "edge-1 cloud edge-1 edge-2 cloud"),
        ("lightweight", "cloud cloud cloud cloud cloud"),  # nothing says that they keep no state
        ("milp", "edge-1 edge-2 edge-1 cloud cloud"),
    ],
)
def test_each_follows_its_idea(name: str, sites: str) -> None:
    placement = find_policy(name).place(TREE)
    jobs = ("clean-1", "clean-2", "stats-1", "stats-2", "merge")
    assert " ".join(placement.sites[job] for job in jobs) == sites


def test_lightweight_takes_the_job_with_the_highest_true_output_rate_first() -> None:
    loads = tuple(
        replace(load, stateful=load.name == "merge") if load.kind is Kind.JOB else load
        for load in TREE.loads
    )
    # clean passes on half of its records, stats a tenth: clean is lighter
    placement = find_policy("lightweight").place(replace(TREE, loads=loads))
    edges = {name: site for name, site in placement.sites.items() if site.startswith("edge")}
    assert edges.keys() - {"in-1", "in-2"} == {"clean-1", "clean-2", "stats-1"}
    # as measured, stats-2 sends more for each second of useful time, so it gets edge-2's only slot
    rates = {"stats-2": 2.0, "clean-2": 1.0}
    measured = tuple(replace(load, true_output_rate=rates.get(load.name)) for load in loads)
    placement = find_policy("lightweight").place(replace(TREE, loads=measured))
    assert (placement.sites["stats-2"], placement.sites["clean-2"]) == ("edge-2", "cloud")


def test_without_a_measured_rate_lightweight_goes_by_cost_and_selectivity() -> None:
    """fine sends 4000 records for each second of useful time, coarse 500, though most of them."""
    places = (Place("cloud", "cloud", cores=4), Place("edge", "edge", cores=4, slots=1))
    jobs = {"coarse": (1e-3, 50.0), "fine": (1e-4, 40.0)}
    loads = (
        Load("in", Kind.END, site="edge"),
        *(
            Load(name, core_s_per_record=cost, rate=100, site="cloud", stateful=False)
            for name, (cost, _) in jobs.items()
        ),
        Load("out", Kind.END, site="cloud"),
    )
    flows = (
        *(Flow("in", name, 100, 1000) for name in jobs),
        *(Flow(name, "out", sent, 100) for name, (_, sent) in jobs.items()),
    )
    placement = find_policy("lightweight").place(Problem(loads, flows, places))
    assert (placement.sites["fine"], placement.sites["coarse"]) == ("edge", "cloud")


@pytest.mark.parametrize(
    ("sent", "site"), [(99.0, "edge"), (100.0, "edge"), (102.0, "edge"), (120.0, "cloud")]
)
def test_lightweight_takes_a_job_that_passes_on_each_record_as_measured(
    sent: float, site: str
) -> None:
    """A window may end with a few records more sent than taken."""
    places = (Place("cloud", "cloud", cores=4), Place("edge", "edge", cores=4, slots=1))
    loads = (
        Load("in", Kind.END, site="edge"),
        Load("copy", core_s_per_record=1e-4, rate=100, site="cloud", stateful=False),
        Load("out", Kind.END, site="cloud"),
    )
    flows = (Flow("in", "copy", 100, 1000), Flow("copy", "out", sent, 1000))
    placement = find_policy("lightweight").place(Problem(loads, flows, places))
    assert placement.sites["copy"] == site


def test_ranked_goes_down_the_ranking_that_it_is_given() -> None:
    ranking = tuple(Candidate(name, "edge-2", 1.0) for name in ("stats-2", "clean-2"))
    placement = find_policy("ranked").place(replace(TREE, ranking=ranking))
    edges = [n for n, site in placement.sites.items() if site == "edge-2" and n != "in-2"]
    assert edges == ["stats-2"]  # its only slot
    refused = tuple(replace(each, score=-1.0) for each in ranking)
    placement = find_policy("ranked").place(replace(TREE, ranking=refused))
    assert placement.sites["stats-2"] == "cloud"


def test_the_names_of_all_policies_are_known_without_their_solvers() -> None:
    """Those of speck first, then the others by name; each name is that of its policy."""
    names = list_policies()
    assert names[: len(IDEAS)] == tuple(IDEAS)
    assert names[len(IDEAS) :] == (
        *("caps", "fsace", "rolbts", "rolbts-exact", "rolbts-links", "top-down"),
    )
    assert tuple(find_policy(name).name for name in names) == names


def test_all_edge_says_that_there_are_too_few_slots() -> None:
    placement = find_policy("all-edge").place(TREE)
    assert placement.violations == (
        "slots: edge-1 would need 3 slots, it has 2",
        "slots: edge-2 would need 2 slots, it has 1",
    )


def test_a_policy_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(InvalidError, match=r"cannot place by policy best: .* only milp, greedy"):
        find_policy("best")


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (replace(TREE, places=()), "cannot place anything: there are no sites"),
        (
            replace(TREE, loads=(*TREE.loads, Load("x", pinned="moon"))),
            "cannot place x at moon, where it must be .it is pinned.: there is no such site",
        ),
        (
            replace(TREE, loads=(*TREE.loads, Load("x", Kind.END))),
            "cannot place x: it is outside speck and has no site",
        ),
        (
            replace(TREE, flows=(*TREE.flows, Flow("merge", "clean-1", 1, 1))),
            "cannot place a cycle of flows: .*merge",
        ),
        (
            replace(TREE, flows=(Flow("merge", "nobody", 1, 1),)),
            "the flow merge -> nobody names nobody, which is not among the loads",
        ),
        (replace(TREE, loads=(*TREE.loads, Load("merge"))), "duplicate load: merge"),
    ],
)
def test_what_has_no_placement_at_all_is_refused(problem: Problem, message: str) -> None:
    for each in map(find_policy, list_policies()):
        with pytest.raises(PermanentError, match=message):
            each.place(problem)


def test_a_job_that_was_never_measured_and_runs_nowhere_begins_in_the_cloud() -> None:
    loads = (*TREE.loads, Load("new"))
    placement = find_policy("milp").place(replace(TREE, loads=loads))
    assert placement.sites["new"] == "cloud"
    assert Instance(replace(TREE, loads=loads)).why["new"].startswith("it was not measured")
