"""Measured, analysed, placed and moved: on real engines and brokers, while messages flow."""

from __future__ import annotations

import pytest

from speck.model.values import JsonObject
from tests.e2e.harness import Speck, await_all, composition, flowing, job
from tests.waiting import wait_for

BURN = {"entry_class": "io.speck.jobs.Burn", "args": ["--cpu-us", "1000"]}
APART = composition(
    "apart",
    job("clean", "cloud", "apart/raw", "apart/clean", source_site="edge-a", **BURN),
    job("keep", "cloud", "apart/clean", "apart/kept", sink_site="edge-a", **BURN),
    inputs=[("edge-a", "apart/raw")],
    outputs=[("edge-a", "apart/kept", "apart-reader")],
)
"""From edge-a to the cloud and back: everything crosses twice, and nothing has to."""
ENOUGH = 3000
"""Records, of some 250 a second: so many looks that one analysis has its evidence."""


def analyse(speck: Speck) -> JsonObject:
    """An analysis of the composition whose evidence carries figures of both jobs."""

    def look() -> JsonObject | None:
        analysis = speck.analyse("apart", window_s=60)
        evidence = {each["job_name"]: each["evidence"] for each in analysis["jobs"]}
        return analysis if evidence == dict.fromkeys(("clean", "keep"), "sufficient") else None

    def have_worked() -> bool:
        metrics = [speck.call("GET", f"/jobs/{name}/metrics") for name in ("clean", "keep")]
        return all((each["records_in"] or 0) > ENOUGH for each in metrics)

    wait_for(have_worked, "both jobs to have worked")
    return wait_for(look, "evidence", 400)  # type: ignore[return-value]


@pytest.mark.long
def test_what_crosses_for_nothing_is_placed_where_its_data_is(speck: Speck) -> None:
    reader = speck.reader("edge-a", "apart/kept", "apart-reader")
    speck.apply(APART)
    with flowing(speck.publisher("edge-a", "apart/raw")) as flow:
        analyse(speck)
        placed = speck.call(
            "POST", "/placements", 201, json={"composition": "apart", "policy": "milp"}
        )
        assert placed["today"]["sites"] == {"clean": "cloud", "keep": "cloud"}
        assert placed["proposed"]["sites"] == {"clean": "edge-a", "keep": "edge-a"}
        assert placed["today"]["wan_bytes_per_s"] > 1000
        assert placed["proposed"]["wan_bytes_per_s"] == 0
        accepted = speck.call("POST", f"/placements/{placed['id']}/apply", params={"wait": 120})
        assert accepted["state"] == "done"
        flow.go_on()
        sites = {name: speck.job(name)["site"] for name in ("clean", "keep")}
        assert sites == placed["proposed"]["sites"]
        count = flow.end()
    await_all(count, reader)
