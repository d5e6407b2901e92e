"""A job that cannot start stops its own branch only."""

from __future__ import annotations

import pytest

from tests.e2e.harness import Speck, change_job, composition, job, numbers_of
from tests.waiting import wait_for

STATS = "io.speck.jobs.LocalStats"
GOOD = ["--site", "A", "--streams", "A1", "--window", "60s"]
BAD = ["--site", "A", "--streams", "A1", "--window", "soon"]


@pytest.mark.long
def test_a_new_job_whose_main_fails(speck: Speck) -> None:
    broken = composition(
        "branches",
        job("b-1", "edge-a", "b/in", "b/mid"),
        job("b-2", "edge-a", "b/mid", "b/out"),
        job("b-stats", "edge-a", "b/mid", "b/stats", entry_class=STATS, args=BAD),
        job("b-after", "edge-b", "b/stats", "b/after", source_site="edge-a"),
        inputs=[("edge-a", "b/in")],
        outputs=[("edge-a", "b/out", "e2e-branches")],
    )
    answer = speck.apply(broken, state="failed")

    change = speck.call("GET", f"/changes/{answer['change']}")
    assert "soon" in change["error"]
    failed = [it for it in change["operations"] if it["state"] == "failed"]
    assert [it["job_name"] for it in failed] == ["b-stats"]
    assert "soon" in failed[0]["error"]
    assert all(it["state"] == "done" for it in change["operations"] if it not in failed)
    states = {it["job_name"]: it["state"] for it in speck.call("GET", "/jobs")["jobs"]}
    assert states == {
        "b-1": "running",
        "b-2": "running",
        "b-stats": "failed",
        "b-after": "running",
    }
    before = speck.job("b-1")["engine_job_id"]
    source = speck.publisher("edge-a", "b/in")
    out = speck.reader("edge-a", "b/out", "e2e-branches")
    source.count(range(1, 11))
    wait_for(lambda: numbers_of(out) == list(range(1, 11)), "the branch that works")

    speck.apply(change_job(broken, "b-stats", args=GOOD))
    states = {it["job_name"]: it["state"] for it in speck.call("GET", "/jobs")["jobs"]}
    assert set(states.values()) == {"running"}
    assert speck.job("b-1")["engine_job_id"] == before
    # its session was reserved at the first try and has kept everything since
    wait_for(lambda: speck.count_taken("b-stats", "edge-a", "b/mid") == 10, "what came before")


def test_a_bad_update_leaves_the_running_incarnation_alone(speck: Speck) -> None:
    good = composition(
        "update",
        job("u-1", "edge-a", "u/in", "u/mid"),
        job("u-stats", "edge-a", "u/mid", "u/out", entry_class=STATS, args=GOOD),
        inputs=[("edge-a", "u/in")],
        outputs=[("edge-a", "u/out", "e2e-update")],
    )
    speck.apply(good)
    before = {name: speck.job(name)["engine_job_id"] for name in ("u-1", "u-stats")}

    bad = change_job(change_job(good, "u-stats", args=BAD), "u-1", args=["--note", "2"])
    answer = speck.apply(bad, state="failed")

    change = speck.call("GET", f"/changes/{answer['change']}")
    states = {(it["job_name"], it["kind"]): it["state"] for it in change["operations"]}
    assert states["u-stats", "try"] == "failed"
    assert states["u-stats", "stop"] == states["u-stats", "start"] == "skipped"
    assert states["u-1", "start"] == "done"
    stats = speck.job("u-stats")
    assert stats["engine_job_id"] == before["u-stats"]
    assert "soon" in stats["error"]
    assert len(speck.running()) == 2
    assert speck.job("u-1")["engine_job_id"] != before["u-1"]

    answer = speck.apply(change_job(bad, "u-stats", args=[*GOOD, "--lateness", "5m"]))
    assert [it["job_name"] for it in answer["plan"]["jobs"] if it["action"] != "unchanged"] == [
        "u-stats"
    ]
    assert speck.job("u-stats")["state"] == "running"
