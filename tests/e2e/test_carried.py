"""State travels between sites that cannot read each other's disk; see tests/apart.py for how."""

from __future__ import annotations

import pytest

from speck.model.values import JsonObject
from tests.apart import sees
from tests.e2e.harness import Speck, actions, await_each_once, change_job, composition, flowing, job
from tests.e2e.test_state import detection
from tests.waiting import wait_for


def test_a_job_under_flow_goes_there_and_back_and_loses_nothing(speck: Speck) -> None:
    there = composition(
        "carried",
        job("c-1", "edge-a", "c/in", "c/out", source_site="edge-a", sink_site="edge-a"),
        inputs=[("edge-a", "c/in")],
        outputs=[("edge-a", "c/out", "e2e-carried")],
    )
    assert_apart(speck)
    speck.apply(there)
    source = speck.publisher("edge-a", "c/in")
    out = speck.reader("edge-a", "c/out", "e2e-carried")
    before = len(carried_events(speck, "c-1"))
    with flowing(source) as flow:
        for site in ("edge-b", "cloud", "edge-a"):
            answer = speck.apply(change_job(there, "c-1", site=site))
            assert actions(answer) == {"c-1": "move"}
            assert "carry" in [it["kind"] for it in answer["plan"]["operations"]]
            flow.go_on()
        sent = flow.end()
    await_each_once(sent, out)
    assert len(carried_events(speck, "c-1")) == before + 3


@pytest.mark.long
def test_a_window_survives_the_jobmanager_that_knew_of_it(speck: Speck) -> None:
    """Its engine is killed and knows nothing; the newest state is found by listing the site."""
    windows = composition(
        "orphan",
        job(
            "o-stats",
            "edge-c",
            "o/in",
            "o/out",
            source_site="edge-a",
            sink_site="edge-a",
            entry_class="io.speck.jobs.LocalStats",
            args=["--site", "A", "--streams", "A1", "--window", "60s"],
        ),
        inputs=[("edge-a", "o/in")],
        outputs=[("edge-a", "o/out", "e2e-orphan")],
    )
    speck.apply(windows)
    sensor = speck.publisher("edge-a", "o/in")
    out = speck.reader("edge-a", "o/out", "e2e-orphan")
    sensor.send(*(detection(number, 1000 * number) for number in range(1, 6)))
    wait_for(lambda: speck.count_taken("o-stats", "edge-a", "o/in") >= 5, "the job's state")

    speck.fog.kill("edge-c")
    speck.fog.start("edge-c")
    speck.apply(change_job(windows, "o-stats", site="edge-b"))

    assert speck.job("o-stats")["site"] == "edge-b"
    assert speck.running() == ["edge-b: o-stats"]
    sensor.send(detection(6, 6000), {"end": True, "stream": "A1", "time_ms": 7000})
    (result,) = wait_for(out.records, "the window's result")
    assert result["count"] == 6


def assert_apart(speck: Speck) -> None:
    """No process of a site sees anything in another's state folder."""
    state = speck.fog._load()
    names = [site.name for site in state.sites]
    for name in names:
        assert set(state.of(name)) == {"agent", "broker", "engine"}
        for other in set(names) - {name}:
            folder = speck.fog.state_folder(other)
            assert folder.is_dir()
            assert all(sees(process, folder) == [] for process in state.of(name).values())


def carried_events(speck: Speck, job_name: str) -> list[JsonObject]:
    events = speck.call("GET", "/events")["events"]
    return [
        it for it in events if it.get("job_name") == job_name and " carried from " in it["message"]
    ]
