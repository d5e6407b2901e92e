"""The chains of bench.cancels."""

from __future__ import annotations

import random

from bench.cancels import draw_chain, make_composition
from speck.spec.schema import composition_from_data


def test_a_line_describes_a_composition() -> None:
    body = make_composition("run", "a:in>m1 b:m1>out", "exactly_once")
    ends = [(job["job_name"], job["source_topic"], job["sink_topic"]) for job in body["jobs"]]
    assert ends == [("run-a", "run.in", "run.m1"), ("run-b", "run.m1", "run.out")]
    assert body["outputs"][0]["client_id"] == "run-out"


def test_all_chains_lead_from_the_input_to_the_output_and_are_valid() -> None:
    dice = random.Random(1)
    drawn = [draw_chain(dice) for _ in range(50)]
    for line in drawn:
        words = line.split()
        assert ":in>" in words[0] and words[-1].endswith(">out")
        jobs = composition_from_data(make_composition("run", line, "at_least_once")).jobs
        assert len(jobs) == len(words)
    assert len({len(line.split()) for line in drawn}) == 3
