"""Single requests and answers between the service and an engine are lost."""

from __future__ import annotations

import pytest

from bench.instruments.proxy import Fate
from tests.faults.trial import Trial, assert_nothing_lost, report

RUN = r"^POST /jars/[^/]+/run"
STOP = r"^POST /jobs/[^/]+/stop"
# quick: tests/unit/deploy/test_accidents.py
pytestmark = pytest.mark.long


@pytest.mark.parametrize(
    ("fate", "pattern", "site", "fault"),
    [
        ("lose the answer", RUN, "edge-b", "answer lost after a start"),
        ("drop the request", RUN, "edge-b", "request lost before a start"),
        ("lose the answer", STOP, "cloud", "answer lost after a stop"),
        ("drop the request", STOP, "cloud", "request lost before a stop"),
    ],
    ids=["start-answer", "start-request", "stop-answer", "stop-request"],
)
def test_lost(trial: Trial, fate: Fate, pattern: str, site: str, fault: str) -> None:
    with trial.flowing() as flow:
        trap = trial.proxies[site]["engine"].trap(fate, pattern)
        trial.apply(trial.chain(second_at="edge-b"))
        assert trap.sprung.is_set()
        flow.recovered()
        result = flow.finish()
    report(fault, "asked again under the same id; one incarnation", trial, result)
    assert_nothing_lost(trial, result)
