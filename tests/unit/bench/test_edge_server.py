"""Which messages count as lost, and which cells are judged."""

from __future__ import annotations

from typing import Any

import pytest

from bench.edge_server import LIMITS, cell, count_passing, judge_cells, lost_of


@pytest.mark.parametrize(("share", "out"), [(0.3, [4, 7, 10]), (0.7, [2, 3, 5, 6, 8, 9, 10])])
def test_the_filter_passes_these_of_ten(share: float, out: list[int]) -> None:
    assert lost_of(range(1, 11), 0, share) == out
    assert count_passing(10, share) == len(out)


def test_the_filter_goes_on_where_it_was() -> None:
    assert lost_of([1, 2, 3], 8, 0.3) == [2]


def _rows(sink: float, share: float, cpu: float = 0.3) -> list[dict[str, Any]]:
    row = {
        "sink_per_s": sink,
        "uplink_share": share,
        "wan_bytes_per_s": 1000.0,
        "wan_bytes_per_record": 100.0 / sink,
        "machine_cpu": cpu,
        "lost": 0,
        "unexpected": 0,
    }
    return [row, row]


def _verdicts(edge: list[dict[str, Any]], server: list[dict[str, Any]]) -> dict[str, bool | None]:
    checks = judge_cells([cell(LIMITS[2], 0.3, {"edge": edge, "server": server})])
    return {check.name: check.ok for check in checks}


RATIO = "sink rate edge/server, 500 kb/s, selectivity 0.3"


@pytest.mark.parametrize(("edge", "ok"), [(3.3, True), (2.9, False), (1.0, False)])
def test_where_the_uplink_is_full_the_ratio_is_one_by_the_selectivity(
    edge: float, ok: bool
) -> None:
    assert _verdicts(_rows(edge, 0.98), _rows(1.0, 0.97))[RATIO] is ok


@pytest.mark.parametrize(("edge", "ok"), [(1.05, True), (3.3, False)])
def test_where_it_has_room_the_ratio_is_one(edge: float, ok: bool) -> None:
    assert _verdicts(_rows(edge, 0.02), _rows(1.0, 0.1))[RATIO] is ok


def test_a_repeat_on_a_busy_machine_does_not_spoil_the_others() -> None:
    edge, server = _rows(3.3, 0.98), _rows(1.0, 0.97)
    edge, server = [*edge, *_rows(1.0, 0.5, cpu=0.95)[:1]], [*server, server[0]]
    edge[2] = {**edge[2], "lost": 1}
    result = cell(LIMITS[2], 0.3, {"edge": edge, "server": server})
    assert (result["ratio"]["n"], result["saturated"], result["binds"]) == (2, False, True)
    assert (result["repeats"], result["saturated_repeats"], result["lost"]) == (3, 1, 1)


def test_nothing_at_the_server_is_no_ratio() -> None:
    silent = {**_rows(1.0, 0.97)[0], "sink_per_s": 0.0, "wan_bytes_per_record": None}
    result = cell(LIMITS[2], 0.3, {"edge": _rows(3.3, 0.98), "server": [silent] * 2})
    assert (result["ratio"]["mean"], result["wan_bytes_saved"]) == (None, None)
    assert _verdicts(_rows(3.3, 0.98), [silent] * 2)[RATIO] is False


def test_what_is_neither_is_a_fault_of_the_experiment() -> None:
    assert _verdicts(_rows(2.0, 0.6), _rows(1.0, 0.97))[RATIO] is False


def test_a_busy_machine_is_not_judged_but_something_must_be() -> None:
    verdicts = _verdicts(_rows(3.3, 0.98, cpu=0.9), _rows(1.0, 0.97))
    assert verdicts[RATIO] is None
    assert verdicts["cells judged where the WAN binds"] is False
    assert verdicts["cells judged at 500 kb/s"] is False
