"""`speck offload` as a user runs it, on real engines, while messages flow."""

from __future__ import annotations

import json

import pytest

from tests.e2e.harness import Speck, await_all, composition, flowing, job, run_cli

BURN = {"entry_class": "io.speck.jobs.Burn"}
SPREAD = composition(
    "spread",
    job("sift", "cloud", "spread/raw", "spread/sifted", source_site="edge-a", **BURN)
    | {"args": ["--cpu-us", "1000"]},
    job("weigh", "edge-b", "spread/sifted", "spread/weighed", source_site="cloud", **BURN)
    | {"args": ["--cpu-us", "500"], "sink_site": "cloud"},
    inputs=[("edge-a", "spread/raw")],
    outputs=[("cloud", "spread/weighed", "spread-reader")],
)
"""`sift` belongs to edge-a, `weigh` should not be at edge-b; nothing was ever measured of them."""


@pytest.mark.long
def test_offload_starts_from_the_cloud_and_compares(speck: Speck) -> None:
    reader = speck.reader("cloud", "spread/weighed", "spread-reader")
    speck.apply(SPREAD)
    with flowing(speck.publisher("edge-a", "spread/raw")) as flow:
        options = ("--policy", "lightweight", "--window", "30", "--settle", "60", "--yes")
        result = run_cli(speck, "offload", "spread", *options, "-o", "json")
        flow.go_on()
        count = flow.end()
    await_all(count, reader)
    document = json.loads(result.stdout)
    figures = {row["figure"]: row for row in document["figures"]}
    assert figures["jobs at edges"]["before"] == 0
    assert figures["jobs at edges"]["after"] == figures["jobs at edges"]["predicted"] > 0
    cores = figures["CPU of cloud engines"]
    assert cores["after"] < cores["before"] and cores["predicted"] < cores["before"]
    assert speck.job("sift")["site"] == "edge-a"
