"""What counts as the same evidence for a placement."""

from __future__ import annotations

from itertools import product
from typing import Any

import pytest

from speck.model.values import JsonObject
from speck.placement.consistency import describe_evidence, is_same_evidence
from speck.placement.model import Limits
from speck.placement.places import Condition
from speck.placement.problem import pose_question
from speck.placement.wiring import wire
from speck.spec.schema import composition_from_data
from speck.spec.site_schema import site_from_data
from tests.analyses import analysis, as_result, describe_measured
from tests.memory_fog import site_body
from tests.service_helpers import job_body

SITES = {name: site_from_data(site_body(name)) for name in ("cloud", "edge-a")}
CHAIN = ("one", "two", "three")
COMPOSITION = composition_from_data(
    {
        "name": "c",
        "jobs": [
            job_body(name, "cloud", source_topic=f"t{n}", sink_topic=f"t{n + 1}")
            for n, name in enumerate(CHAIN)
        ],
    }
)


def describe(cost: float = 0.001, **factors: tuple[float, float, float, float]) -> JsonObject:
    """The evidence of a chain. `factors`: by job, on the records that it takes and sends, and on
    the bytes of one."""
    reports = []
    for name in CHAIN:
        taken, sent, bytes_in, bytes_out = factors.get(name, (1.0, 1.0, 1.0, 1.0))
        figures: dict[str, Any] = {
            "selectivity": sent / taken,
            "out_rate": 100.0 * sent,
            "bytes_in_per_record": 100.0 * bytes_in,
            "bytes_out_per_record": 100.0 * bytes_out,
            "reference_core_s_per_record": cost,
        }
        reports.append(describe_measured(name, "cloud", 100.0 * taken, **figures))
    conditions = {name: Condition(free=9) for name in SITES}
    wiring = wire(COMPOSITION, SITES)
    return describe_evidence(
        pose_question(wiring, "c", as_result(analysis(reports)), SITES, conditions, Limits())
    )


@pytest.mark.parametrize("signs", list(product((0.9, 1.1), repeat=4)))
def test_rates_that_differ_by_a_tenth_at_each_end_are_the_same(signs: Any) -> None:
    """Along the chain their differences multiply."""
    assert is_same_evidence(describe(), describe(**dict.fromkeys(CHAIN, signs)))


@pytest.mark.parametrize(
    "factors",
    [
        {"one": (1.3, 1.3, 1.0, 1.0)},  # more enters
        {"one": (0.7, 0.7, 1.0, 1.0)},
        {"two": (1.0, 1.3, 1.0, 1.0)},  # it sends more of it
        {"three": (1.0, 1.0, 1.0, 1.3)},  # larger records
        dict.fromkeys(CHAIN, (1.0, 1.24, 1.0, 1.2)),  # each a little, and more than twice in all
    ],
)
def test_rates_that_changed_are_not_the_same(factors: Any) -> None:
    assert not is_same_evidence(describe(), describe(**factors))


def test_costs_of_idle_jobs_may_differ() -> None:
    assert is_same_evidence(describe(cost=0.0001), describe(cost=0.0004))
    assert not is_same_evidence(describe(cost=0.001), describe(cost=0.002))
