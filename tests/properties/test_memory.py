"""Memory is kept by every policy if any placement keeps it: an engine without memory dies."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from speck.placement.evaluate import evaluate, predict
from speck.placement.instance import Instance
from speck.placement.model import Problem
from speck.placement.names import list_policies
from speck.placement.policies import find_policy
from tests.placement_problems import every_answer, limit_memory, random_problem

SEEDS = st.integers(0, 10**6)
MOVING = sorted(set(list_policies()) - {"stay"})
"""`stay` moves nothing: it can only report what is exceeded."""


def list_memory_violations(violations: tuple[str, ...]) -> list[str]:
    return [each for each in violations if each.startswith("memory: ")]


def can_keep_memory(problem: Problem) -> bool:
    """By trying all placements, with a sum of its own."""
    instance = Instance(problem)
    needs = {name: instance.memory_of(name) for name in instance.loads}
    return any(
        all(
            place.memory_bytes is None
            or sum(needs[name] for name, site in sites.items() if site == place.name)
            <= place.memory_bytes
            for place in problem.places
        )
        for sites in every_answer(problem)
    )


@given(SEEDS, st.sampled_from(MOVING))
def test_no_policy_exceeds_memory_that_can_be_kept(seed: int, name: str) -> None:
    problem = limit_memory(random_problem(seed), seed)
    placement = find_policy(name).place(problem)
    exceeded = list_memory_violations(evaluate(problem, placement.sites).violations)
    assert exceeded == list_memory_violations(placement.violations)
    if exceeded:
        assert not can_keep_memory(problem), f"{name}: {exceeded}"


@given(SEEDS)
def test_with_memory_the_exact_policy_is_equal_to_brute_force(seed: int) -> None:
    problem = limit_memory(random_problem(seed), seed)
    instance = Instance(problem)
    costs = [
        instance.objective(sites)
        for sites in every_answer(problem)
        if not predict(instance, sites).violations
    ]
    placement = find_policy("milp").place(problem)
    assert placement.feasible == bool(costs)
    if costs:
        assert placement.objective is not None
        assert abs(placement.objective - min(costs)) <= 2e-6 * max(1.0, min(costs))


def test_a_random_problem_can_have_too_little_memory_and_enough() -> None:
    """Otherwise the properties above would hold for nothing."""
    answers = [can_keep_memory(limit_memory(random_problem(seed), seed)) for seed in range(60)]
    assert 10 < sum(answers) < 50
