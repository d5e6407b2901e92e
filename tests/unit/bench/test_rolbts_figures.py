"""The statements of the RoLBTS paper about its figures 4 to 6 hold of their data."""

from __future__ import annotations

import copy

from bench.rolbts_figures import count_solutions, find_deviations, list_scores


def test_figure_4_shows_what_the_paper_says_of_it() -> None:
    figure = list_scores()
    assert find_deviations(figure) == []
    assert set(figure["scores"]) == {
        *(f"RoLBTS {n}" for n in (1, 2, 4)),
        *(f"FSACE {rho}" for rho in ("0", "0.5", "1")),
    }


def test_a_deviation_is_found() -> None:
    figure = copy.deepcopy(list_scores())
    figure["scores"]["RoLBTS 4"][2] *= 3
    assert [each.split(" (")[0] for each in find_deviations(figure)] == [
        "the order at 4 kbit is",
        "RoLBTS 4 is not proportional to the length",
    ]


def test_figures_5_and_6_count_all_assignments() -> None:
    rows = {(row["servers"], row["branches"]): row for row in count_solutions()}
    assert len(rows) == 100
    assert rows[10, 10]["assignments"] == 10**10
    assert rows[3, 7]["assignments"] == 2187
    # branches make the number grow faster than servers
    assert rows[5, 10]["assignments"] > rows[10, 5]["assignments"]
    # the exact answer searches more states for more branches and servers, but not as many
    states = [rows[n, n]["exact_states"] for n in (2, 5, 10)]
    assert states == sorted(set(states))
    assert states[-1] == 39  # docs/placement.md says so
