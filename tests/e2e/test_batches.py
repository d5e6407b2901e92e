"""Links on which many records share a message, changed while data flows."""

from __future__ import annotations

import pytest

from tests.e2e.harness import Speck, await_each_once, change_job, composition, job

BATCHES = {"batch_records": 50, "linger_ms": 20, "compression": "zstd"}


@pytest.mark.long
def test_a_link_goes_over_to_batches_and_back_and_every_record_comes_once(speck: Speck) -> None:
    plain = composition(
        "batched",
        job("b-1", "edge-a", "b/in", "b/mid", sink_site="edge-b"),
        job("b-2", "edge-b", "b/mid", "b/out"),
        inputs=[("edge-a", "b/in")],
        outputs=[("edge-b", "b/out", "e2e-batched")],
    )
    speck.apply(plain)
    source = speck.publisher("edge-a", "b/in")
    out = speck.reader("edge-b", "b/out", "e2e-batched")
    source.count(range(1, 101))

    between = change_job(plain, "b-1", link=BATCHES)
    answer = speck.apply(between)
    reasons = {it["job_name"]: it["reason"] for it in answer["plan"]["jobs"]}
    assert reasons["b-1"] == "link changed"
    assert answer["warnings"] == []
    source.count(range(101, 301))

    answer = speck.apply(change_job(between, "b-2", link=BATCHES))
    assert "an output: its readers must split them" in answer["warnings"][0]
    source.count(range(301, 501))
    speck.apply(plain)
    source.count(range(501, 601))
    await_each_once(600, out)
