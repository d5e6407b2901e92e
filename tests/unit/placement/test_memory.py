"""A placement that exceeds a site's memory is changed before it is returned."""

from __future__ import annotations

from dataclasses import replace

import pytest

from speck.placement.model import Flow, Kind, Load, Place, Problem
from speck.placement.names import list_policies
from speck.placement.policies import find_policy

MB = 1e6


def fleet(edge_mb: float, cloud_mb: float | None = None, slots: int | None = None) -> Problem:
    """Two jobs of 100 MB each that save bytes at the edge, the first one most."""
    jobs = ("first", "second")
    saved = {"first": 20_000.0, "second": 10_000.0}
    return Problem(
        loads=(
            Load("in", Kind.END, site="edge"),
            Load("out", Kind.END, site="cloud"),
            *(
                Load(
                    name,
                    core_s_per_record=1e-4,
                    rate=100,
                    site="cloud",
                    stateful=False,
                    memory_bytes=100 * MB,
                )
                for name in jobs
            ),
        ),
        flows=(
            *(Flow("in", name, 100, saved[name] + 1000) for name in jobs),
            *(Flow(name, "out", 10, 1000) for name in jobs),
        ),
        places=(
            Place("edge", "edge", cores=4, memory_bytes=edge_mb * MB, slots=slots),
            Place("cloud", "cloud", cores=4, memory_bytes=cloud_mb and cloud_mb * MB),
        ),
    )


@pytest.mark.parametrize("name", ["milp", "greedy", "ranked", "lightweight", "bottom-up"])
def test_what_has_no_memory_at_the_edge_stays_in_the_cloud(name: str) -> None:
    assert set(find_policy(name).place(fleet(200)).sites.values()) >= {"edge"}
    full = find_policy(name).place(fleet(150))
    assert sorted(full.sites[job] for job in ("first", "second")) == ["cloud", "edge"]
    none = find_policy(name).place(fleet(50))
    assert (none.sites["first"], none.sites["second"]) == ("cloud", "cloud")
    assert full.feasible and none.feasible


def test_the_exact_policy_gives_the_memory_to_the_job_that_saves_most() -> None:
    assert find_policy("milp").place(fleet(150)).sites["first"] == "edge"


def test_a_policy_that_wants_one_site_is_corrected_and_says_so() -> None:
    """The cloud has memory for one: `all-cloud` sends the one that costs less there to the edge."""
    placement = find_policy("all-cloud").place(fleet(150, cloud_mb=150))
    assert placement.feasible
    placement = find_policy("all-edge").place(fleet(150, cloud_mb=150))
    assert placement.notes == ("moved for lack of memory at their site: second",)
    assert (placement.sites["first"], placement.sites["second"]) == ("edge", "cloud")


def test_memory_may_be_used_to_the_last_byte() -> None:
    placement = find_policy("all-cloud").place(fleet(100, cloud_mb=100))
    assert placement.feasible
    assert sorted(placement.sites[job] for job in ("first", "second")) == ["cloud", "edge"]


def test_memory_comes_before_other_limits() -> None:
    """No slot is free at the edge, but the cloud's memory is enough for one job only."""
    for name in sorted(set(list_policies()) - {"stay"}):
        placement = find_policy(name).place(fleet(150, cloud_mb=150, slots=0))
        assert placement.violations == ("slots: edge would need 1 slot, it has 0",), name


def test_where_no_placement_keeps_memory_the_shortage_is_told() -> None:
    for name in list_policies():
        placement = find_policy(name).place(fleet(50, cloud_mb=150))
        assert any(each.startswith("memory: ") for each in placement.violations), name
        assert not placement.optimal


def test_stay_moves_nothing_and_reports_the_shortage() -> None:
    problem = fleet(500, cloud_mb=150)
    placement = find_policy("stay").place(problem)
    assert placement.violations == ("memory: jobs at cloud need 200 MB, 150 MB are free",)
    loads = tuple(replace(load, memory_bytes=None) for load in problem.loads)
    assert find_policy("stay").place(replace(problem, loads=loads)).feasible  # 10 MB a slot
