"""The ideas of the policies from research; what all policies keep to: tests/unit/placement."""

from __future__ import annotations

import itertools
from dataclasses import replace

from speck.placement.evaluate import evaluate
from speck.placement.model import Flow, Kind, Load, Place, Problem
from speck.placement.policies import find_policy
from tests.placement_problems import TREE


def test_top_down_keeps_what_is_nearest_to_the_sink_in_a_small_cloud() -> None:
    small = replace(TREE, places=(replace(TREE.places[0], slots=3), *TREE.places[1:]))
    placement = find_policy("top-down").place(small)
    assert placement.feasible
    assert placement.sites["merge"] == "cloud"
    assert (placement.sites["clean-1"], placement.sites["clean-2"]) == ("edge-1", "edge-2")


def test_caps_keeps_each_site_within_the_thresholds_that_it_tells() -> None:
    placement = find_policy("caps").place(TREE)
    assert placement.feasible
    assert placement.notes[0].startswith("thresholds: processor ")
    threshold = float(placement.notes[0].split("processor ")[1].split("%")[0]) / 100
    shares = evaluate(TREE, placement.sites).utilisation
    assert max(share or 0.0 for share in shares.values()) <= threshold + 0.005


def test_rolbts_fills_sites_evenly_and_the_exact_one_sends_less() -> None:
    places = tuple(Place(n, "edge" if n != "c" else "cloud", cores=9, slots=6) for n in "abc")
    ends = (Load("in", Kind.END, site="a"), Load("out", Kind.END, site="c"))
    jobs = tuple(Load(f"j{n}", core_s_per_record=1e-4, rate=100, slots=1) for n in range(6))
    names = ["in", *(job.name for job in jobs), "out"]
    flows = tuple(Flow(a, b, 100, 1_000) for a, b in itertools.pairwise(names))
    problem = Problem((*ends, *jobs), flows, places)
    for name in ("rolbts", "rolbts-exact"):
        placement = find_policy(name).place(problem)
        assert evaluate(problem, placement.sites).slots == {"a": 2, "b": 2, "c": 2}
    assert find_policy("rolbts").place(problem).objective == 5_000
    assert find_policy("rolbts-exact").place(problem).objective == 2_000


def test_rolbts_with_links_keeps_uplinks_and_spreads_what_crosses() -> None:
    """Two sites are as empty: to the first one its input would have to cross, as over no limit."""
    places = tuple(
        Place(n, "edge" if n != "c" else "cloud", cores=9, slots=6, uplink=uplink)
        for n, uplink in (("a", None), ("b", 900.0), ("c", None))
    )
    loads = (
        Load("in", Kind.END, site="b"),
        Load("first", core_s_per_record=1e-4, rate=100),
        Load("second", core_s_per_record=1e-4, rate=100),
    )
    flows = (Flow("in", "first", 100, 1_000), Flow("in", "second", 100, 500))
    problem = Problem(loads, flows, places)
    assert [find_policy("rolbts").place(problem).sites[n] for n in ("first", "second")] == [
        "a",
        "b",
    ]
    linked = find_policy("rolbts-links").place(problem)
    assert linked.feasible
    assert linked.sites["first"] == "b"  # 1000 bytes/s do not fit b's uplink


def test_rolbts_exact_fills_sites_to_their_last_slot() -> None:
    places = tuple(Place(name, "cloud", cores=4, slots=2) for name in "ab")
    jobs = tuple(Load(f"j{n}", core_s_per_record=1e-4, rate=100) for n in range(4))
    placement = find_policy("rolbts-exact").place(Problem(jobs, (), places))
    assert (sorted(placement.sites.values()), placement.optimal) == (["a", "a", "b", "b"], True)


def test_fsace_fills_the_site_of_the_greatest_ability() -> None:
    places = (
        Place("a", "cloud", cores=2, memory_bytes=100e6),
        Place("b", "edge", cores=2, memory_bytes=200e6),
        Place("c", "edge", cores=2, memory_bytes=40e6),
    )
    jobs = tuple(
        Load(f"j{n}", core_s_per_record=1e-3, rate=400, memory_bytes=50e6) for n in range(4)
    )
    placement = find_policy("fsace").place(Problem(jobs, (), places))
    # free shares of memory and processor: a 1 and 1 (the first), then b 1 and 1, then b .75 and .8
    assert [placement.sites[f"j{n}"] for n in range(4)] == ["a", "b", "b", "a"]
    assert placement.feasible


def test_fsace_gives_a_site_without_memory_no_ability_by_memory() -> None:
    """No site has room: among these the one with half of its memory free comes first."""
    places = (
        Place("full", "cloud", cores=2, memory_bytes=0.0),
        Place("half", "edge", cores=2, memory_bytes=40e6),
    )
    job = Load("job", core_s_per_record=1e-3, rate=400, memory_bytes=50e6)
    stays = Load("stays", site="half", memory_bytes=20e6)
    placement = find_policy("fsace").place(Problem((stays, job), (), places))
    assert placement.sites["job"] == "half"
