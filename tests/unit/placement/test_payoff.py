"""Which moves pay for themselves, and what they cost."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.placement.instance import Instance
from speck.placement.model import Flow, Kind, Limits, Load, Place, Problem
from speck.placement.move_costs import Silence, Silences, expect_silence, summarise_silences
from speck.placement.names import list_policies
from speck.placement.payoff import drop_moves
from speck.placement.policies import find_policy


def chain(saved: float, *, stateful: bool | None = False, silence_s: float = 1.0) -> Problem:
    """sensor (edge) -> filter -> out (cloud); at the edge it saves so many bytes/s of 1000."""
    return Problem(
        loads=(
            Load("sensor", Kind.END, site="edge"),
            Load(
                "filter",
                core_s_per_record=1e-3,
                rate=100,
                site="cloud",
                stateful=stateful,
                state_bytes=5_000,
                silence_s=silence_s,
            ),
            Load("out", Kind.END, site="cloud"),
        ),
        flows=(Flow("sensor", "filter", 100, 1000), Flow("filter", "out", 50, 1000 - saved)),
        places=(Place("edge", "edge", cores=4), Place("cloud", "cloud", cores=8)),
    )


def place(problem: Problem, policy: str = "milp") -> str:
    return find_policy(policy).place(problem).sites["filter"]


def test_a_move_costs_its_state_and_what_arrives_in_its_silence() -> None:
    instance = Instance(chain(600.0, silence_s=3.0))
    assert instance.move_bytes_of("filter") == 5_000 + 3 * 1000
    assert instance.restart_bytes_of("filter") == 3 * 1000
    assert instance.price_of_move("filter") == pytest.approx(8_000 / 3600)
    assert Instance(chain(600.0, silence_s=0.0)).move_bytes_of("filter") == 0


@pytest.mark.parametrize("policy", list_policies())
@pytest.mark.parametrize("stateful", [True, None])
def test_40_bytes_a_second_never_move_a_job_that_may_keep_state(
    policy: str, stateful: bool | None
) -> None:
    problem = chain(40.0, stateful=stateful)
    quiet = tuple(replace(flow, bytes_per_s=flow.bytes_per_s - 955) for flow in problem.flows)
    for each in (problem, replace(problem, flows=quiet)):
        for horizon_s in (60.0, 3600.0, 1e9):
            limits = Limits(horizon_s=horizon_s)
            assert place(replace(each, limits=limits), policy) == "cloud"


def test_a_job_without_state_moves_if_it_saves_more_than_it_costs() -> None:
    cost = chain(600.0, silence_s=100.0)  # 105 kB
    assert place(replace(cost, limits=Limits(horizon_s=300.0))) == "edge"
    assert place(replace(cost, limits=Limits(horizon_s=100.0))) == "cloud"
    free = chain(1.0, silence_s=0.0)
    assert place(free) == "edge"


def test_a_saving_within_the_error_of_rates_is_none() -> None:
    assert place(chain(150.0)) == "cloud"  # 1000 and 850 may be 900 and 935
    assert place(chain(250.0)) == "edge"


def test_a_move_that_a_limit_needs_stays() -> None:
    problem = chain(40.0, stateful=True)
    small = tuple(replace(p, cores=0.1) if p.name == "cloud" else p for p in problem.places)
    assert place(replace(problem, places=small)) == "edge"
    memory = tuple(replace(p, memory_bytes=1e6) if p.name == "cloud" else p for p in problem.places)
    assert place(replace(problem, places=memory)) == "edge"


def test_jobs_that_save_only_together_move_together() -> None:
    """grow sends twice what it takes, shrink a tenth of that."""
    problem = pair(grown=2000.0, shrunk=200.0)
    assert drop_moves(Instance(problem), BOTH) == BOTH
    worse = pair(grown=2000.0, shrunk=900.0)
    assert drop_moves(Instance(worse), BOTH)["grow"] == "cloud"


BOTH = {"sensor": "edge", "grow": "edge", "shrink": "edge", "out": "cloud"}


def pair(grown: float, shrunk: float) -> Problem:
    job = Load("grow", core_s_per_record=1e-3, rate=100, site="cloud", silence_s=2.0)
    return Problem(
        loads=(
            Load("sensor", Kind.END, site="edge"),
            job,
            replace(job, name="shrink"),
            Load("out", Kind.END, site="cloud"),
        ),
        flows=(
            Flow("sensor", "grow", 100, 1000),
            Flow("grow", "shrink", 100, grown),
            Flow("shrink", "out", 10, shrunk),
        ),
        places=(Place("edge", "edge", cores=4), Place("cloud", "cloud", cores=8)),
    )


def test_a_move_beside_a_good_one_has_to_pay_for_itself() -> None:
    """filter saves 9 kB/s at the edge; what the two behind it would save more is 40 B/s."""
    job = Load("filter", core_s_per_record=1e-3, rate=100, site="cloud", silence_s=2.0)
    names = ("filter", "grow", "shrink")
    sizes = (10_000.0, 1_000.0, 3_000.0, 960.0)
    ends = ("sensor", *names, "out")
    problem = Problem(
        loads=(
            Load("sensor", Kind.END, site="edge"),
            *(replace(job, name=name) for name in names),
            Load("out", Kind.END, site="cloud"),
        ),
        flows=tuple(
            Flow(a, b, 100, size) for a, b, size in zip(ends, ends[1:], sizes, strict=False)
        ),
        places=(Place("edge", "edge", cores=4), Place("cloud", "cloud", cores=8)),
    )
    sites = {"sensor": "edge", **dict.fromkeys(names, "edge"), "out": "cloud"}
    kept = drop_moves(Instance(problem), sites)
    assert [kept[name] for name in names] == ["edge", "cloud", "cloud"]


def test_what_the_policy_wanted_is_kept_beside_its_answer() -> None:
    placement = find_policy("all-edge").place(chain(40.0, stateful=True))
    assert placement.dropped == ("filter",)
    assert find_policy("all-edge").place(chain(600.0)).dropped == ()


def test_silences_are_medians_of_past_moves_and_defaults_until_then() -> None:
    default = Silences()
    assert summarise_silences([]) == default
    measured = summarise_silences([(False, 1.0), (False, 9.0), (False, 2.0), (None, 4.0)])
    assert measured == Silences(Silence(2.0, 3), Silence(4.0, 1))
    job = Load("job", stateful=None)
    assert expect_silence(job, measured).silence_s == 4.0
    assert expect_silence(replace(job, stateful=False), measured).silence_s == 2.0
    assert expect_silence(replace(job, slots=0), measured).silence_s == 0.0
    assert expect_silence(Load("t", Kind.TOPIC), measured).silence_s == 0.0
